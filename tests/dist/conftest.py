"""Real torchrun, real agents and real gloo on this machine's loopback interface."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from deploy.local import processes
from deploy.run.environment import local_spec
from lab.ports import free_port
from tests.dist.warm import OURS, Warm
from trainer.node.notes import Journal

HOME = Path(__file__).resolve().parents[2]
SECONDS = 120


def environment(**more):
    """The variables that a rank gets from its machine, without those of an outer run."""
    outer = ("PET_", "MUSTER_", "NNODES", "NODE_RANK")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    return {**variables, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo", **more}


def waits_for(folder):
    """The epoch above which a node's ranks wait for the next one, from its private folder; None while they train."""
    return Journal(folder).newest("says").get("after")


TORCHS = "torch.distributed.run"


class Torchrun:
    """One torchrun with `world` ranks, as a user who has only the trainer starts it.

    It is Muster's torchrun, or with `module=TORCHS` torch's own. `warm` forks Muster's, because importing torch again
    takes most of the time of a short run.
    """

    def __init__(self, warm, world, arguments, run_dir, home=HOME, module=OURS, **variables):
        self.run_dir, self._output = Path(run_dir), Path(f"{run_dir}.said")
        words = [
            f"--nproc-per-node={world}",
            f"--master-port={free_port()}",
            "-m",
            "muster.trainer",
            *map(str, arguments),
        ]
        given = environment(**{"MUSTER_RUN_DIR": str(run_dir), "MUSTER_NODE": "here", **variables})
        with self._output.open("w") as output:
            # Python reads PYTHONPATH when it starts.
            if module == OURS and "PYTHONPATH" not in variables:
                self.process = warm().start(words, home, given, self._output)
                return
            command = [sys.executable, "-m", module, *words]
            self.process = subprocess.Popen(
                command, cwd=home, env=given, stdout=output, stderr=output, start_new_session=True
            )

    def wait(self):
        """Wait for the exit code and return it; `output` then has all that torchrun printed."""
        code = self.process.wait(timeout=SECONDS)
        self.output = self._output.read_text()
        return code

    def log(self, rank):
        """What a rank printed."""
        return (self.run_dir / "logs" / f"rank-{rank}.log").read_text()


@pytest.fixture(scope="session")
def warm():
    """get(): the process that forks torchruns, started by the first test that needs it."""
    made = []

    def get():
        if not made:
            made.append(Warm(HOME, environment()))
        return made[0]

    yield get
    for process in made:
        process.stop()


@pytest.fixture
def torchrun(tmp_path, warm):
    """start(world, *arguments): start a torchrun; kills what a failed test left of it."""
    started = []

    def start(world, *arguments, folder="run", **variables):
        run = Torchrun(warm, world, arguments, tmp_path / folder, **variables)
        started.append(run)
        return run

    yield start
    for run in started:
        if run.process.poll() is None:
            for child in psutil.Process(run.process.pid).children(recursive=True):
                child.kill()
            os.kill(run.process.pid, signal.SIGKILL)
            run.process.wait()


class Nodes:
    """Several nodes of one run, each with its own agent, as `make up` starts them."""

    def __init__(self, run_dir, workers, arguments, start=1):
        for folder in (run_dir, run_dir / "logs"):
            folder.mkdir(exist_ok=True)
        self.run_dir = run_dir
        self.spec = local_spec(run_dir, start, workers, [*map(str, arguments)], free_port(), 2, "Linux")
        command = [sys.executable, "-m", "muster.trainer.node", "agent", *self.spec.arguments]
        self.nodes = processes.LocalNodes(run_dir, command, HOME)

    def start(self, *names):
        """Start the named nodes, or all, the last one first, because nothing may depend on the order."""
        for node in reversed(self.spec.nodes):
            if not names or node.name in names:
                self.nodes.start(node, self.run_dir / "logs" / f"{node.name}.log")
        return self

    def codes(self):
        """The exit code by node, None while it runs; dead nodes are not restarted."""
        return {state.node: state.code for state in self.nodes.states(lambda _: False)}

    def restarting_codes(self):
        """Like `codes`, but nodes that died are restarted, as a supervisor does."""
        states = self.nodes.states(lambda state: state.code not in (0, 2, 75))
        return {state.node: state.code if state.state == "exited" else None for state in states}

    def pids(self, node):
        """The process ids of a node, its agent first."""
        labelled = processes.labelled(self.run_dir, node)
        return [process.pid for process in sorted(labelled, key=lambda process: process.create_time())]

    def kill_everything(self):
        """Kill every process of the run with SIGKILL."""
        self.nodes.end()

    def terminate(self, node):
        """Send SIGTERM to one node's agent, as `docker stop` does."""
        os.kill(self.pids(node)[0], signal.SIGTERM)


@pytest.fixture
def nodes(tmp_path):
    """make(workers, *arguments): make Nodes; they are killed when the test ends."""
    made = []

    def make(workers, *arguments, folder="run", start=1):
        run = Nodes(tmp_path / folder, workers, arguments, start)
        made.append(run)
        return run

    yield make
    for run in made:
        run.kill_everything()


@pytest.fixture
def recipe_file(tmp_path):
    """write(body): write a recipe with a linear model on 203 numbered samples; the test's `body` changes it."""

    def write(body="", name="mine.py", train=203, held_out=37):
        file = tmp_path / name
        file.write_text(
            textwrap.dedent(
                f"""
                import math, os, time
                import torch
                from torch import nn
                from torch.utils.data import TensorDataset

                RANK = int(os.environ["RANK"])

                def model():
                    return nn.Linear(4, 1)

                def numbered(count):
                    ids = torch.arange(count)
                    x = torch.stack([torch.sin(ids * f) for f in (0.1, 0.7, 1.3, 2.1)], 1)
                    return TensorDataset(ids, x, x.sum(1, keepdim=True))

                def datasets(data):
                    return numbered({train}), numbered({held_out})

                def seen(ids):
                    pass

                def loss(model, batch):
                    ids, x, y = batch
                    seen(ids)
                    return ((model(x) - y) ** 2).mean()

                def metrics(model, batch):
                    return {{"number": batch[0].double()}}
                """
            )
            + textwrap.dedent(body)
        )
        return file

    return write
