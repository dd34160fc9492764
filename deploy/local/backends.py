"""The backends of this machine: local processes, and compose services. They decide nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.errors import DeployError, EngineLost
from ..core.facts import EngineFacts, NodeState
from ..core.names import run_ids
from ..core.text import in_seconds
from ..engine import client
from ..job.option_words import grace_s
from ..job.options import FLAG
from ..report.console import Console
from ..run.backend import Backend
from ..run.environment import (
    BARE_RANK,
    DATA,
    GRACE,
    IMAGE_USER,
    KEEP,
    LAUNCHER_RANKS,
    MAX_HOURS,
    OBSERVE,
    RESTART_WITH,
    RUNS_IN_CONTAINER,
    SECRET_FILES,
    SECRETS,
    SEPARATE,
    STYLE,
    Packages,
    RunSpec,
    Script,
    memory_limit,
    mounted,
    mounts_file,
)
from ..run.events import Event
from ..run.files import folders, own_files, record
from ..run.follow import stop_patience_s
from ..run.outcome import may_restart
from ..run.output import RankLogs
from ..run.progress import State
from ..send.image import commands
from ..send.packages.requirements import Requirements
from . import machine, packages, plan, processes, script

# A function that shows a line to the user.
Say = Callable[[str], None]
LOOK_EVERY_S = 0.5
LOGS_EVERY_S = 2.0
# Variables that a script's nodes get on each backend; docker-compose.yml must list each of them.
_HANDED_ON = (LAUNCHER_RANKS, GRACE, RESTART_WITH, MAX_HOURS, OBSERVE, STYLE, SEPARATE, BARE_RANK)
# docker-compose.yml uses this run id if none is given.
PLAIN_COMPOSE = "compose"
# The program that builds the image, in a checkout.
_BUILD = "images/build.sh"


class LocalBackend(Backend):
    """A backend of this machine. Commands other than the one that started a run can find the run here, and end it."""

    # Whether the nodes meet on a port of this machine, which has to be free.
    meets_on_machine = False
    # Whether a script cannot reach this user's own files on this machine.
    in_containers = False
    # Gets a line about anything that takes a while.
    say: Say

    def __init__(self, spec: RunSpec) -> None:
        """The nodes of one start of a run."""
        self._spec, self._logs = spec, RankLogs(spec.run_dir)

    def output(self, state: State) -> list[Event]:
        """The new output in the ranks' logs: the run folder is on this machine."""
        return self._logs.take(state.ranks.began)

    @classmethod
    def script(cls, asked: Script, run_dir: Path, gpus: int, nodes: int) -> Script:
        """How the user's script runs here. local/script.py has already copied its folder into the run folder."""
        data = {DATA: os.pathsep.join(asked.data.values())} if asked.data else {}
        return replace(asked, sent=str(script.sent_folder(run_dir)), gpus=gpus, nodes=nodes, own={**asked.own, **data})

    @classmethod
    def with_caches(cls, own: Script) -> Script:
        """Return the script with a folder for its downloads, which is kept across runs."""
        return own

    @classmethod
    def install(cls, needs: Requirements, run_dir: Path, console: Console) -> Packages | None:
        """Install what a script needs, for this backend; None if everything is there."""
        return None

    @classmethod
    def running(cls, runs: Path, engine: EngineFacts) -> frozenset[str]:
        """The ids of the runs in the folder `runs` that have nodes on this backend."""
        return frozenset()

    @classmethod
    def end(cls, run_dir: Path, say: Say, at_once: bool = False) -> None:
        """Stop the nodes of a run, kill those that do not stop in time, and remove what the run left on the machine.

        `at_once`: give them no time to save.
        """


class ProcessBackend(LocalBackend):
    """Nodes as `muster.trainer.node agent` processes on this machine."""

    meets_on_machine = True

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        self._stopping = False
        python = script.python() if spec.script else sys.executable
        if spec.script and spec.script.packages:
            python = f"{spec.script.packages.name}/bin/python"
        # Each node of a role has its own command.
        command = commands.agent(python, () if spec.nodes[0].arguments else spec.arguments)
        # If the other nodes continue when one is lost, its return does not count as a restart.
        counted = spec.script and not spec.least
        restarts = spec.script.restarts if spec.script and counted else processes.MOST_RESTARTS
        secrets = spec.script.secrets if spec.script else {}
        self._nodes = processes.LocalNodes(
            spec.run_dir, command, folders.RUNS.parent, bool(spec.script), restarts, secrets
        )

    @classmethod
    def with_caches(cls, own: Script) -> Script:
        """This user's own caches: a script's home is another folder here, and it would download everything again."""
        return replace(own, own={**script.own_caches(os.environ, Path.home()), **own.own})

    @classmethod
    def install(cls, needs: Requirements, run_dir: Path, console: Console) -> Packages | None:
        """Install into an environment of the script's Python.

        A Python without torch is refused first, before uv resolves anything.
        """
        _refuse_without_torch()
        return packages.in_processes(needs, run_dir, console)

    def check(self) -> None:
        """Refuse a Python without torch."""
        if self._spec.script:
            _refuse_without_torch()
        else:
            plan.check_processes(machine.machine())
            script.refuse_arguments(self._spec.arguments, folders.RUNS.parent)

    def start(self) -> None:
        """Start the nodes, the master first: the others connect to it."""
        for node in self._spec.nodes:
            self._nodes.start(node, self._spec.run_dir / "logs" / f"{node.name}.log")

    def states(self, state: State) -> list[NodeState]:
        """The state of each node. One that died without a verdict is restarted: three times, or a script as asked."""
        return self._nodes.states(lambda node: may_restart(node, state.verdicts, self._stopping))

    def stop(self) -> None:
        """Send SIGTERM to every agent."""
        self._stopping = True
        self._nodes.signal_all(signal.SIGTERM)

    def pass_on(self, number: signal.Signals) -> None:
        """Send the signal to every agent."""
        self._nodes.signal_all(number)

    def kill(self) -> None:
        """Send SIGKILL to every process of the run."""
        self._stopping = True
        self._nodes.end()

    def clean(self) -> None:
        """Kill the processes, which leave nothing else behind; they write their log files themselves."""
        self.kill()

    @classmethod
    def running(cls, runs: Path, engine: EngineFacts) -> frozenset[str]:
        """The runs in this folder with a live process. Another checkout has another folder."""
        return frozenset(processes.runs_alive(runs))

    @classmethod
    def end(cls, run_dir: Path, say: Say, at_once: bool = False) -> None:
        """Send SIGTERM to the agents, and SIGKILL to what has not stopped in time."""
        members = processes.labelled(run_dir)
        say(f"stopping {run_dir.name}: {len(members)} processes")
        patience_s = _patience_s(run_dir, at_once)
        if not processes.stop(members, patience_s):
            say(f"{run_dir.name}: killed the processes that had not stopped after {in_seconds(patience_s)}")


class ComposeBackend(LocalBackend):
    """Nodes as containers of the compose services `master` and `worker`."""

    in_containers = True

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        self._states: list[NodeState] = []
        self._looked_at, self._logged_at = 0.0, 0.0
        self._read: dict[str, int] = {}
        self._given = set[tuple[str, str]]()

    @classmethod
    def script(cls, asked: Script, run_dir: Path, gpus: int, nodes: int) -> Script:
        """Return the script with its folder as containers see it. Their image has torch for the CPU."""
        sent = f"{RUNS_IN_CONTAINER}/{run_dir.name}/{script.sent_folder(run_dir).relative_to(run_dir)}"
        data = {DATA: ":".join(asked.data)} if asked.data else {}
        return replace(asked, sent=sent, own={**asked.own, **data})

    @classmethod
    def with_caches(cls, own: Script) -> Script:
        """A folder in this user's cache. If this user is root, it belongs to the image's user, who writes to it."""
        folder = folders.cache_folder() / "containers"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.getuid():
            os.chown(folder, IMAGE_USER, IMAGE_USER)
        return replace(own, cache=str(folder))

    @classmethod
    def install(cls, needs: Requirements, run_dir: Path, console: Console) -> Packages | None:
        """Install into a volume, in addition to the packages in the image."""
        prepare_image(folders.CHECKOUT, console.note)
        return packages.in_containers(needs, run_dir, console)

    def check(self) -> None:
        """Bring the image up to date with the code. A first build takes minutes, which do not count as the run's."""
        if not self._spec.script:
            script.refuse_arguments(self._spec.arguments, Path.cwd())
        prepare_image(folders.CHECKOUT, self.say)

    def prepare(self) -> None:
        """Make the folders that are kept, and let the image's user write into the run folder."""
        for path in self._spec.script.keep if self._spec.script else ():
            own_files.clear(self._spec.run_dir, f"{KEEP}{path}")
        record.give_to_image_user(self._spec.run_dir)

    def start(self) -> None:
        """Start all nodes. Paths in the arguments are mounted at the same paths in every node."""
        # A script's own files are in the folder that was sent; any other path in its arguments is a path on this
        # machine.
        here = Path("/") / "nowhere" if self._spec.script else Path.cwd()
        arguments, paths = mounted(self._spec.arguments, here)
        shared, own = self._spec.nodes[0].environment, self._spec.script or Script("")
        uid, gid = machine.container_user()
        environment = {
            "MUSTER_ARGS": shlex.join(arguments),
            "MUSTER_RDZV_ID": shared["PET_RDZV_ID"],
            "MUSTER_RANKS": shared["PET_NPROC_PER_NODE"],
            **{name: shared.get(name, "") for name in _HANDED_ON},
            "MUSTER_SENT": own.sent,
            SECRETS: ",".join(own.secrets),
            SECRET_FILES: ",".join(own.secret_files),
            "MUSTER_MOUNT": str(self._spec.run_dir),
            "MUSTER_MOUNT_AT": f"{RUNS_IN_CONTAINER}/{self._spec.run_id}",
            "MUSTER_MAX_RESTARTS": shared["PET_MAX_RESTARTS"],
            "MUSTER_RESTART": self._restart_policy(),
            "OMP_NUM_THREADS": shared["OMP_NUM_THREADS"],
            # Each node may use as much memory as a single node could; the user's own setting overrides this.
            "MUSTER_MEMORY": os.environ.get("MUSTER_MEMORY") or str(memory_limit(client.memory())),
            "MUSTER_UID": str(uid),
            "MUSTER_GID": str(gid),
        }
        # Not in the run folder, where its containers can write: this file decides what is mounted.
        with TemporaryDirectory(prefix="muster-") as scratch:
            files = [folders.CHECKOUT / "docker-compose.yml"]
            if paths or own.keep or own.packages or own.cache or own.secret_files or own.data or own.own:
                files.append(Path(scratch) / "compose.paths.json")
                text = json.dumps(mounts_file(paths, self._spec, f"{uid}:{gid}"))
                files[-1].write_text(text.replace("$", "$$"))  # compose would insert this shell's variables
            client.up(self._spec.run_id, environment, len(self._spec.nodes) - 1, files)

    def _restart_policy(self) -> str:
        """What Docker does with a node that is lost; empty: as in docker-compose.yml."""
        script = self._spec.script
        return "" if script is None else f"on-failure:{script.restarts}" if script.restarts else "no"

    def undo(self) -> None:
        """Remove the containers that were made. Raises EngineLost: they may start when the engine is back."""
        try:
            client.down(self._spec.run_id)
        except EngineLost as fault:
            raise EngineLost(fault.message, "once Docker is back: `muster down`") from fault

    def states(self, state: State) -> list[NodeState]:
        """The state of each container, asked twice a second. Docker's restart policy restarts lost nodes."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            containers = client.states(self._spec.run_id)
            self._states = [container.as_node() for container in containers]
            self._give_secrets(containers)
        if now - self._logged_at >= LOGS_EVERY_S:
            self._logged_at = now
            self.collect_logs()
        return self._states

    def _give_secrets(self, containers: Sequence[client.ContainerState]) -> None:
        """Give each node its secrets after each start or restart, because a container has them only in its memory."""
        secrets = self._spec.script.secrets if self._spec.script else {}
        if not secrets:
            return
        for seen in (container.seen for container in containers):
            life = (seen.id, seen.started)
            if seen.status == "running" and life not in self._given:
                self._given.add(life)
                client.hand_in(seen.id, json.dumps(dict(secrets)).encode())

    def stop(self) -> None:
        """Send SIGTERM to every node; after that, Docker's restart policy leaves it alone."""
        client.signal(self._spec.run_id, "SIGTERM")

    def pass_on(self, number: signal.Signals) -> None:
        """Send the signal to every container."""
        client.signal(self._spec.run_id, number.name)

    def kill(self) -> None:
        """Send SIGKILL to every node."""
        with suppress(EngineLost):
            client.signal(self._spec.run_id, "SIGKILL")

    def clean(self) -> None:
        """Remove the run's containers and network."""
        with suppress(EngineLost):  # the containers died with the engine, or `make down` removes them later
            client.down(self._spec.run_id)

    def collect_logs(self) -> None:
        """Append the new output of each console to its log, which keeps the output of earlier starts."""
        for node in self._spec.names:
            try:
                console = b"".join(client.logs(self._spec.run_id, node))
            except EngineLost:
                raise
            except DeployError:  # its container does not exist yet
                continue
            with own_files.open_to_append(self._spec.run_dir, f"logs/{node}.log") as file:
                file.write(console[self._read.get(node, 0) :])
            self._read[node] = len(console)

    @classmethod
    def running(cls, runs: Path, engine: EngineFacts) -> frozenset[str]:
        """Runs with a container, and a plain `docker compose up`. Leaves out other checkouts' runs on that engine."""
        if not engine.version:
            return frozenset()
        on_engine = client.run_ids()
        return (run_ids(on_engine) & {path.name for path in runs.glob("*")}) | ({PLAIN_COMPOSE} & on_engine)

    @classmethod
    def end(cls, run_dir: Path, say: Say, at_once: bool = False) -> None:
        """Stop the containers, and remove them and their network."""
        say(f"stopping {run_dir.name}: its containers")
        client.stop(run_dir.name, _patience_s(run_dir, at_once))
        client.down(run_dir.name)


def _patience_s(run_dir: Path, at_once: bool) -> float:
    """How long the nodes of a run may take to stop."""
    return 0.0 if at_once else stop_patience_s(grace_s(record.facts(run_dir)))


def _refuse_without_torch() -> None:
    """Raise DeployError if neither an active environment nor Muster's own Python has torch for a script."""
    if script.python() == sys.executable:
        plan.check_processes(machine.machine(), script=True)


# The names that BACKEND= accepts. To add a backend of this machine, write its class and add a line here. `make down`
# ends their runs in this order: so processes are ended even if the engine then fails.
BACKENDS: dict[str, type[LocalBackend]] = {
    "processes": ProcessBackend,
    "docker": ComposeBackend,
}


def running(runs: Path, engine: EngineFacts) -> frozenset[str]:
    """The ids of the runs in the folder `runs` that have nodes on any backend."""
    return frozenset().union(*(backend.running(runs, engine) for backend in BACKENDS.values()))


def has_build(home: Path) -> bool:
    """Whether the image for containers on this machine can be built: an installed wheel cannot build it."""
    return (home / _BUILD).is_file()


def refuse_no_build(home: Path) -> None:
    """Raise DeployError if no image can be built."""
    if not has_build(home):
        raise DeployError(
            "this is not Muster's checkout, and only a checkout can build the image for containers on this machine",
            f"{FLAG.backend} processes; or real hosts: {FLAG.hosts} a,b",
        )


def prepare_image(home: Path, say: Say) -> None:
    """Bring the image up to date with the code; prints something only if that takes a while. Raises DeployError."""
    refuse_no_build(home)
    if processes.run((str(home / _BUILD),), home, say) != 0:
        raise DeployError(
            "the image was not built",
            f"see the lines above; to train without it: {FLAG.backend} processes",
        )
