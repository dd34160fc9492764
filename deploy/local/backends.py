"""The backends of this machine: each performs a plan, and decides nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.errors import DeployError, EngineLost
from ..core.facts import EngineFacts, NodeState
from ..core.names import run_ids
from ..core.program import FAB, MAKE, option
from ..engine import client
from ..image import commands
from ..run import folders, own_files, record
from ..run.backend import Backend
from ..run.environment import IMAGE_USER, RunSpec, memory_limit, mounted, mounts_file
from ..run.events import Event
from ..run.outcome import may_restart
from ..run.output import RankLogs
from ..run.progress import State
from . import machine, plan, processes

STOP_PATIENCE_S = 30.0
LOOK_EVERY_S = 0.5
LOGS_EVERY_S = 2.0
# The run id docker-compose.yml falls back to when nobody gives one.
PLAIN_COMPOSE = "compose"


class LocalBackend(Backend):
    """A backend of this machine. Other commands than the one that started a run find it here, and end it."""

    # Whether the nodes meet on a port of this machine, which has to be free.
    meets_on_machine = False

    @abstractmethod
    def __init__(self, spec: RunSpec) -> None:
        """The nodes of one start of a run."""

    @classmethod
    def running(cls, runs: Path, engine: EngineFacts) -> frozenset[str]:
        """Ids of the runs of the folder `runs` that have nodes on this backend."""
        return frozenset()

    @classmethod
    def end(cls, run_dir: Path, say: Callable[[str], None]) -> None:
        """Stop the nodes of a run, kill those that do not stop in time, and remove what the run left on the machine."""


class ProcessBackend(LocalBackend):
    """Nodes as `trainer.node.agent` processes of this machine."""

    meets_on_machine = True

    def __init__(self, spec: RunSpec) -> None:
        self._spec, self._stopping = spec, False
        self._logs = RankLogs(spec.run_dir)
        command = commands.agent(sys.executable, spec.arguments)
        self._nodes = processes.LocalNodes(spec.run_dir, command, folders.RUNS.parent)

    def check(self) -> None:
        """Refuse a Python without torch."""
        plan.check_processes(machine.machine())

    def start(self) -> None:
        """Start the master first: the others look for it."""
        for node in self._spec.nodes:
            self._nodes.start(node, self._spec.run_dir / "logs" / f"{node.name}.log")

    def states(self, state: State) -> list[NodeState]:
        """How each node stands; one that died without a verdict is started again (at most three times)."""
        return self._nodes.states(lambda node: may_restart(node, state.verdicts, self._stopping))

    def output(self, state: State) -> list[Event]:
        """The ends of the ranks' logs: the run folder is on this machine."""
        return self._logs.take(state.began)

    def stop(self) -> None:
        """SIGTERM to every agent."""
        self._stopping = True
        self._nodes.signal_all(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to every process that carries the run's label."""
        self._stopping = True
        self._nodes.end()

    def clean(self) -> None:
        """As kill: processes leave nothing else, and write into their log files themselves."""
        self.kill()

    @classmethod
    def running(cls, runs: Path, engine: EngineFacts) -> frozenset[str]:
        """Runs with a live process. Those of another checkout have another folder."""
        return frozenset(processes.runs_alive(runs))

    @classmethod
    def end(cls, run_dir: Path, say: Callable[[str], None]) -> None:
        """SIGTERM to the agents, SIGKILL after a while."""
        members = processes.labelled(run_dir)
        say(f"stopping {run_dir.name}: {len(members)} processes")
        if not processes.stop(members, STOP_PATIENCE_S):
            say(f"{run_dir.name}: killed what had not stopped after {STOP_PATIENCE_S:.0f} s")


class ComposeBackend(LocalBackend):
    """Nodes as containers of the compose services `master` and `worker`."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._logs = RankLogs(spec.run_dir)
        self._seen: list[NodeState] = []
        self._looked, self._logged = 0.0, 0.0
        self._read: dict[str, int] = {}

    def check(self) -> None:
        """Bring the image up to date with the code. A first build takes minutes, and they are not the run's."""
        prepare_image(folders.CHECKOUT)

    def prepare(self) -> None:
        """Let the image's user write into the run folder."""
        record.give_to_image_user(self._spec.run_dir)

    def start(self) -> None:
        """Start all nodes. What the arguments name on this machine is mounted where the arguments say it is."""
        arguments, paths = mounted(self._spec.arguments, Path.cwd())
        shared = self._spec.nodes[0].environment
        environment = {
            "MUSTER_ARGS": shlex.join(arguments),
            "MUSTER_RDZV_ID": shared["PET_RDZV_ID"],
            "OMP_NUM_THREADS": shared["OMP_NUM_THREADS"],
            # Each node may use what the machine can give to one; the user's own word goes first.
            "MUSTER_MEMORY": os.environ.get("MUSTER_MEMORY") or str(memory_limit(client.memory())),
            "MUSTER_UID": str(os.getuid() or IMAGE_USER),
            "MUSTER_GID": str(os.getgid() if os.getuid() else IMAGE_USER),
        }
        # Not in the run folder: containers of other runs can write there, and this says what is mounted.
        with TemporaryDirectory(prefix="muster-") as scratch:
            files = [folders.CHECKOUT / "docker-compose.yml"]
            if paths:
                files.append(Path(scratch) / "compose.paths.json")
                files[-1].write_text(json.dumps(mounts_file(paths)))
            client.up(self._spec.run_id, environment, len(self._spec.nodes) - 1, files)

    def undo(self) -> None:
        """Remove the containers that were made. Raises EngineLost: they may start once the engine is back."""
        try:
            client.down(self._spec.run_id)
        except EngineLost as fault:
            raise EngineLost(fault.message, f"once Docker is back: `{MAKE} down`") from fault

    def states(self, state: State) -> list[NodeState]:
        """How each container stands, asked twice a second. Docker's restart policy brings lost nodes back."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            self._seen = [container.as_node() for container in client.states(self._spec.run_id)]
        if now - self._logged >= LOGS_EVERY_S:
            self._logged = now
            self.collect_logs()
        return self._seen

    def output(self, state: State) -> list[Event]:
        """The ends of the ranks' logs: the run folder is on this machine."""
        return self._logs.take(state.began)

    def stop(self) -> None:
        """SIGTERM to every node; its restart policy leaves it alone from then on."""
        client.ask_to_stop(self._spec.run_id)

    def kill(self) -> None:
        """SIGKILL to every node."""
        with suppress(EngineLost):
            client.kill(self._spec.run_id)

    def clean(self) -> None:
        """Remove the run's containers and network."""
        with suppress(EngineLost):  # they died with it, or `make down` removes them when it is back
            client.down(self._spec.run_id)

    def collect_logs(self) -> None:
        """Append what each console said since the last time: a resumed run's logs keep what its earlier starts said."""
        for node in self._spec.names:
            try:
                console = b"".join(client.logs(self._spec.run_id, node))
            except EngineLost:
                raise
            except DeployError:  # it has no container yet
                continue
            with own_files.open_to_append(self._spec.run_dir, f"logs/{node}.log") as file:
                file.write(console[self._read.get(node, 0) :])
            self._read[node] = len(console)

    @classmethod
    def running(cls, runs: Path, engine: EngineFacts) -> frozenset[str]:
        """Runs with a container, and a plain `docker compose up`. Runs of other checkouts use the same engine."""
        if not engine.answers:
            return frozenset()
        on_engine = client.runs_there()
        return (run_ids(on_engine) & {path.name for path in runs.glob("*")}) | ({PLAIN_COMPOSE} & on_engine)

    @classmethod
    def end(cls, run_dir: Path, say: Callable[[str], None]) -> None:
        """Stop the containers, and remove them and their network."""
        say(f"stopping {run_dir.name}: its containers")
        client.stop(run_dir.name, STOP_PATIENCE_S)
        client.down(run_dir.name)


# What BACKEND= names. A backend of this machine is its class, and one line here. `make down` ends their runs in this
# order: an engine that fails in the middle keeps no process alive.
BACKENDS: dict[str, type[LocalBackend]] = {
    "processes": ProcessBackend,
    "docker": ComposeBackend,
}


def running(runs: Path, engine: EngineFacts) -> frozenset[str]:
    """Ids of the runs of the folder `runs` that have nodes on any backend."""
    return frozenset().union(*(backend.running(runs, engine) for backend in BACKENDS.values()))


def prepare_image(home: Path) -> None:
    """Bring the image up to date with the code; says something only when that takes a while. Raises DeployError."""
    script = home / "images/build.sh"
    if not script.is_file():
        raise DeployError(
            "containers on this machine are built from Muster's checkout, which this is not",
            f"there: `make image up`; from here: `{MAKE} up {option('BACKEND', 'processes')}`, "
            f"or real hosts: `{FAB} deploy --hosts a,b`",
        )
    if processes.run(commands.build_image(str(script)), home) != 0:
        raise DeployError(
            "the image was not built",
            f"its last lines stand above; without it: `{MAKE} up {option('BACKEND', 'processes')}`",
        )
