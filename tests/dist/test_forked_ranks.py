"""A script must not see whether its rank is forked or started by torchrun itself."""

import json
import os
import runpy
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from lab.ports import free_port
from lab.waiting import alive, until
from tests.dist.conftest import HOME, OURS, TORCHS, environment

# With a build of torch for GPUs, no rank is forked (test_no_rank_is_forked_where_torchrun_asks_cuda...).
BUILD = runpy.run_path(str(Path(find_spec("torch").origin).with_name("version.py")))
FORKS = not (BUILD["cuda"] or BUILD["hip"])
# LOOKS leaves out variables that differ from start to start: ports, ids, files, MUSTER_LIFE.
LOOKS = """
import faulthandler, json, os, random, signal, sys
before = "torch" in sys.modules
import torch
def annotated(x: int): ...
here = {
    "name": __name__, "file": __file__, "argv": sys.argv, "annotated": str(annotated.__annotations__),
    "beside": {n: v for n, v in globals().items() if n in ("__doc__", "__package__", "__annotations__")},
    "orig": sys.orig_argv, "path": sys.path[0], "folder": os.getcwd(),
    "main": sys.modules["__main__"].__dict__ is globals(), "session": os.getsid(0) == os.getpid(),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
    "buffered": not sys.stdout.write_through, "crashes": faulthandler.is_enabled(), "threads": torch.get_num_threads(),
    "foreign": sorted(name for name in sys.modules if name.split(".")[0] in ("trainer", "muster")),
    "environment": {k: v for k, v in os.environ.items() if not any(n in k for n in ("PORT", "ID", "FILE", "LIFE"))},
}
with open(f"seen-{os.environ['RANK']}.json", "w") as file:  # not printed: lines of two ranks may mix
    json.dump({"here": here, "before": before, "drawn": random.random(), "seed": torch.initial_seed()}, file)
"""


class Started:
    """Torchrun as `python -m MODULE`, Muster's or torch's own, with the arguments `words`, in `folder`."""

    def __init__(self, module, words, folder, ranks=1, **variables):
        self.folder = folder
        command = [sys.executable, "-u", "-P", "-m", module, f"--nproc-per-node={ranks}"]
        self.process = subprocess.Popen(
            [*command, f"--master-port={free_port()}", *words],
            cwd=folder,
            env=environment(PYTHONPATH=str(HOME), **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self):
        """Wait for its end; return its output, its errors and its exit code."""
        out, err = self.process.communicate(timeout=120)
        return out, err, self.process.returncode

    def looks(self):
        """What each rank that ran LOOKS saw, ordered by rank."""
        _, err, code = self.ended()
        assert code == 0, err
        return _seen(self.folder)


def _seen(folder):
    files = sorted(folder.glob("seen-*.json"))
    return [json.loads((file.read_text(), file.unlink())[0]) for file in files]


@pytest.mark.parametrize(
    ("words", "given"),
    [(["train.py", "--lr", "3e-4"], {}), (["-m", "pkg.train", "--lr", "3e-4"], {"PYTHONFAULTHANDLER": "1"})],
)
def test_a_script_sees_what_it_would_see_in_a_new_process(tmp_path, words, given):
    (tmp_path / "pkg").mkdir()
    for place in (tmp_path / "train.py", tmp_path / "pkg" / "train.py"):
        place.write_text(LOOKS)
    forked, started = (Started(module, words, tmp_path, ranks=2, **given).looks() for module in (OURS, TORCHS))

    # docs/how-to/launch.md: these variables are for scripts that start their own processes.
    more = [{name: seen["here"]["environment"].pop(name) for name in ("NNODES", "NODE_RANK")} for seen in forked]
    assert more == [{"NNODES": "1", "NODE_RANK": "0"}] * 2
    assert [seen["here"] for seen in forked] == [seen["here"] for seen in started]
    assert [seen["before"] for seen in forked + started] == [FORKS, FORKS, False, False]
    for draw in ("drawn", "seed"):
        assert len({seen[draw] for seen in forked + started}) == 4, "ranks that draw alike would shuffle alike"


# What a script does before `import torch`, and what torch then reports: threads, debug level, jit, and one setting of
# torch._inductor. All start with one thread, which the launcher sets.
SAYS = """
import torch, torch.distributed as dist, torch._inductor.config as inductor
print(torch.get_num_threads(), dist.get_debug_level().name, torch.jit._state._enabled.enabled, inductor.fx_graph_cache)
"""
FIRST = {
    "threads": ("import os; os.environ['OMP_NUM_THREADS'] = '2'", "2 OFF True True"),
    "debug": ("import os; os.environ['TORCH_DISTRIBUTED_DEBUG'] = 'DETAIL'", "1 DETAIL True True"),
    "jit": ("import os; os.environ['PYTORCH_JIT'] = '0'", "1 OFF False True"),
    "inductor": ("import os; os.environ['TORCHINDUCTOR_FX_GRAPH_CACHE'] = '0'", "1 OFF True False"),
    "update": ("import os; os.environ.update(OMP_NUM_THREADS='2', PYTORCH_JIT='0')", "2 OFF False True"),
    "setdefault": ("import os; os.environ.setdefault('PYTORCH_JIT', '0')", "1 OFF False True"),
    "loop": ("import os\nfor name in ['OMP_NUM_THREADS']: os.environ[name] = '2'", "2 OFF True True"),
    "own module": ("import settings", "2 DETAIL True True"),
    "own package": ("from pack import settings", "2 DETAIL True True"),
    "function": ("import os\ndef first(): os.environ['OMP_NUM_THREADS'] = '2'\nfirst()", "2 OFF True True"),
    "command line": (
        "import argparse, os\np = argparse.ArgumentParser(); p.add_argument('--threads')\n"
        "os.environ['OMP_NUM_THREADS'] = p.parse_args().threads",
        "2 OFF True True",
    ),
    "devices": ("import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''; os.environ['NCCL_DEBUG'] = 'INFO'", None),
}


@pytest.mark.parametrize("name", FIRST)
def test_settings_made_before_import_torch_take_effect(tmp_path, name):
    """The rank gets a new Python if a fork would have torch too early, and is forked otherwise; no line runs twice."""
    text, answer = FIRST[name]
    sets = "import os\nos.environ['OMP_NUM_THREADS'] = '2'\nos.environ['TORCH_DISTRIBUTED_DEBUG'] = 'DETAIL'\n"
    (tmp_path / "pack").mkdir()
    for path in ("settings.py", "pack/settings.py"):
        (tmp_path / path).write_text(sets)
    (tmp_path / "pack/__init__.py").touch()
    begins = "import sys; print('begins', 'torch' in sys.modules)\n"
    (tmp_path / "train.py").write_text(begins + text + SAYS)
    out, err, code = Started(OURS, ["train.py", "--threads", "2"], tmp_path, OMP_NUM_THREADS="1").ended()
    assert code == 0, err
    assert out.splitlines() == [f"begins {FORKS and answer is None}", answer or "1 OFF True True"]


@pytest.mark.parametrize("name", ["trainer", "muster", "secrets"])
def test_a_users_module_wins_over_one_of_muster_or_python_with_the_same_name(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("whose = 'mine'")
    (tmp_path / "train.py").write_text(f"import {name}; print({name}.whose)")
    assert Started(OURS, ["train.py"], tmp_path).ended()[0] == "mine\n"


SPAWNS = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
class Batch: ...
def batch(_): return Batch()
if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        print(type(pool.submit(batch, 0).result()) is Batch)
"""


@pytest.mark.parametrize("words", [["train.py"], ["-m", "train"]])
def test_objects_from_a_spawned_child_have_the_scripts_own_class(tmp_path, words):
    """Like a batch from a DataLoader with spawned workers: pickle finds the script under the child's module name."""
    (tmp_path / "train.py").write_text(SPAWNS)
    out, err, _ = Started(OURS, words, tmp_path).ended()
    assert out == "True\n", err


def test_a_plain_torchrun_starts_ranks_as_torchs_own_does(tmp_path):
    (tmp_path / "train.py").write_text(LOOKS)
    seen = Started(OURS, ["train.py"], tmp_path, ranks=2, MUSTER_PLAIN_TORCHRUN="1").looks()
    assert [each["before"] for each in seen] == [False, False]


def test_a_command_with_no_python_runs_as_under_torchs_own_torchrun(tmp_path):
    (tmp_path / "run.sh").write_text("echo rank $RANK of $WORLD_SIZE")
    out, err, code = Started(OURS, ["--no-python", "bash", "run.sh"], tmp_path).ended()
    assert (out, code) == ("rank 0 of 1\n", 0), err


@pytest.mark.parametrize(
    "ends",
    [
        "def f():\n    1 / 0\nf()",
        "raise SystemExit(7)",
        "import os; os.kill(os.getpid(), 9)",
        "def f():\n    raise KeyboardInterrupt\nf()",
        "class Stop(BaseException): pass\nraise Stop",
    ],
)
def test_a_script_that_fails_fails_the_same_way(tmp_path, ends):
    (tmp_path / "train.py").write_text(ends)

    def report(module):
        """The script's own output, torchrun's exit-code line, and torchrun's code."""
        _, err, code = Started(module, ["train.py"], tmp_path).ended()
        lines = err.splitlines()
        own = next(at for at, line in enumerate(lines) if "failed (exitcode" in line)
        return lines[:own], next(line.split() for line in lines if "exitcode  :" in line)[:3], code

    assert report(OURS) == report(TORCHS)


def test_ranks_are_new_processes_if_a_loaded_library_would_miss_a_variable(tmp_path):
    (tmp_path / "train.py").write_text(LOOKS)
    # Without the variable, torchrun itself sets the number of threads: too late for libraries that it has loaded.
    seen = Started(OURS, ["train.py"], tmp_path, ranks=2, OMP_NUM_THREADS="").looks()
    assert [each["before"] for each in seen] == [FORKS, FORKS]
    variables = environment()
    del variables["OMP_NUM_THREADS"]
    command = [sys.executable, "-u", "-P", "-m", OURS, "--nproc-per-node=2", f"--master-port={free_port()}", "train.py"]
    subprocess.run(command, cwd=tmp_path, env=variables | {"PYTHONPATH": str(HOME)}, capture_output=True, check=True)
    assert [each["before"] for each in _seen(tmp_path)] == [False, False]


ASKS = """
import os, sys, torch
from torch.distributed.launcher.api import LaunchConfig
from trainer.node.launch import forks
for torch.version.cuda, torch.version.hip, LaunchConfig.numa_options in (
    ("13.0", None, None), (None, "7.0", None), (None, None, None)
):
    print(forks.can_start([sys.executable, "-u", "train.py"], os.environ))
del LaunchConfig.numa_options
torch.version.cuda = "12.1"
print(forks.can_start([sys.executable, "-u", "train.py"], os.environ))
"""


def test_no_rank_is_forked_where_torchrun_asks_cuda_for_gpus_even_if_there_are_none(tmp_path):
    """In such a fork, torch raises `Cannot re-initialize CUDA in forked subprocess` if the machine has no driver."""
    (tmp_path / "train.py").touch()
    command = [sys.executable, "-P", "-c", ASKS]
    variables = environment(PYTHONPATH=str(HOME))
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False", "True", "True"]


WAITS = """
import os, sys, time
if "-" in sys.argv: os.environ["OMP_NUM_THREADS"] = "2"
import torch
open(os.environ["HERE"] + f"/{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.getpid()}", "w").close()
time.sleep(0 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1" else 600)
"""


def _ranks(folder, attempt, count):
    """Wait until all ranks of an attempt have started; return their process ids."""
    return until(
        lambda: (
            len(numbers := [int(p.name.partition("-")[2]) for p in folder.glob(f"{attempt}-*")]) == count and numbers
        ),
        f"{count} ranks",
    )


@pytest.fixture
def waiting(tmp_path, request):
    """Muster's torchrun with two ranks that wait forever at first, and end immediately when restarted.

    With `-`, each rank has a new Python.
    """
    (tmp_path / "train.py").write_text(WAITS)
    each = Started(
        OURS, ["--max-restarts=1", "train.py", *getattr(request, "param", "")], tmp_path, ranks=2, HERE=str(tmp_path)
    )
    yield each.process, _ranks(tmp_path, 0, 2)
    each.process.kill()
    each.process.wait()


def test_a_rank_that_is_killed_comes_back(tmp_path, waiting):
    torchrun, ranks = waiting
    os.kill(ranks[0], signal.SIGKILL)
    assert torchrun.wait(60) == 0
    assert not any(alive(pid) for pid in (*ranks, *_ranks(tmp_path, 1, 2)))


@pytest.mark.parametrize("waiting", ["", "-"], indirect=True)
def test_a_killed_torchrun_leaves_no_process(waiting):
    torchrun, ranks = waiting
    below = [each.pid for each in psutil.Process(psutil.Process(ranks[0]).ppid()).children()]
    assert len(below) == len(ranks) + 1, "the ranks, and the process of their store"
    torchrun.kill()
    until(lambda: not any(map(alive, below)), "the end of the store and the ranks")


def test_a_terminated_torchrun_ends_its_ranks(waiting):
    torchrun, ranks = waiting
    torchrun.terminate()
    assert torchrun.wait(60) != 0
    assert not any(alive(pid) for pid in ranks)
