"""The name, variables, memory and threads (OMP_NUM_THREADS) of each node, on any backend; local nodes. Pure.

The names are the control side's half of contract.md; tests/unit/test_contract.py compares both halves.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.program import COMMAND
from ..core.suggest import near_match
from ..core.text import several
from ..job.script import PER_NODE
from ..job.values import VISIBLE

RUN_ID, RUN_DIR, NODE, STOP_ON_EOF = "MUSTER_RUN_ID", "MUSTER_RUN_DIR", "MUSTER_NODE", "MUSTER_STOP_ON_EOF"
RESTARTED_BY_HOST, RESUME_COMMAND, SECRETS = "MUSTER_RESTARTED_BY_HOST", "MUSTER_RESUME_COMMAND", "MUSTER_SECRET_NAMES"
# The folder in a container for what scripts download and compile. The host keeps it across runs.
CACHE = "/muster/cache"
SECRET_FILES, SECRETS_PRESENT = "MUSTER_SECRET_FILES", "MUSTER_SECRETS_PRESENT"
PLAIN_TORCHRUN, SEPARATE = "MUSTER_PLAIN_TORCHRUN", "MUSTER_SEPARATE"
SENT, SAVE_CHANGES, OBSERVE = "MUSTER_SENT", "MUSTER_SAVE_CHANGES", "MUSTER_OBSERVE"
SENT_DIGEST, CODE_DIGEST, DATA = "MUSTER_SENT_DIGEST", "MUSTER_CODE_DIGEST", "MUSTER_DATA"
LAUNCHER_RANKS, MAX_HOURS, ON_END = "MUSTER_LAUNCHER_RANKS", "MUSTER_MAX_HOURS", "MUSTER_ON_END"
SHARE_KEY = "MUSTER_SHARE_KEY"
# The agent's option that precedes the words of a script.
SCRIPT = "--script"
STYLE, STYLES, BARE_RANK = "MUSTER_STYLE", ("slurm", "mpi"), "MUSTER_BARE_RANK"
CLAIM, WAIT, GROUP = "MUSTER_CLAIM", "MUSTER_WAIT", "MUSTER_GROUP"
OVERLAY, GRACE, RESTART_WITH = "MUSTER_OVERLAY", "MUSTER_GRACE", "MUSTER_RESTART_WITH"
MUSTER_NAMES = (
    RUN_ID, RUN_DIR, NODE, STOP_ON_EOF, RESTARTED_BY_HOST, RESUME_COMMAND, SECRETS, SECRET_FILES, SECRETS_PRESENT,
    SEPARATE, SENT, DATA, SAVE_CHANGES, OBSERVE, LAUNCHER_RANKS, MAX_HOURS, ON_END, SHARE_KEY, STYLE, BARE_RANK,
    CLAIM, WAIT, GROUP, OVERLAY, GRACE, RESTART_WITH,
)  # fmt: skip

MAX_RESTARTS_NAME = "PET_MAX_RESTARTS"
MASTER_PORT = 29500
MAX_RESTARTS = 100
MONITOR_INTERVAL_S = 0.1
SHUTDOWN_TIMEOUT_S = 20
# torch notices a lost node after interval x attempts = 5 s. With 2 attempts it splits a job into two that train alone.
RDZV_CONF = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5,join_timeout=60"

# The image's user, who must be able to write into a run folder that root makes.
IMAGE_USER = 1000
# Where Muster's own image has the trainer package; with another image it is in a folder that was sent.
TRAINER_HOME = "/muster"
RUNS_IN_CONTAINER = "/muster/runs"
# The subfolder of the run folder that holds the paths given with --keep.
KEEP = "keep"
DEFAULT_RECIPE = "digits"
# A run's name consists of the minute, the recipe and perhaps a number, and may be names.LONGEST characters long.
_LONGEST_RECIPE = 75
LOOPBACK = {"Linux": "lo", "Darwin": "lo0"}

_RESERVE_SHARE, _RESERVE_LEAST, _RESERVE_MOST = 20, 1 << 30, 16 << 30


@dataclass(frozen=True)
class Rendezvous:
    """The rendezvous of one start: `address:port`, and an id for this start only: a closed rendezvous stays closed."""

    endpoint: str
    id: str


@dataclass(frozen=True)
class Placement:
    """One node among `nodes`: its name, its node rank, its number of processes, their interface, threads for each."""

    name: str
    rank: int
    nodes: int
    processes: int
    interface: str
    threads: int


def threads(cores: int, ranks: int) -> int:
    """How many OpenMP threads each of the ranks gets that share these cores."""
    return max(1, cores // ranks)


@dataclass(frozen=True)
class NodeSpec:
    """One node: its name, its place (from 0), and its variables in addition to those of this shell.

    `arguments`, `restarts`, `role`: those of the node's role, in a run of several roles.
    """

    name: str
    place: int
    environment: dict[str, str]
    arguments: tuple[str, ...] = ()
    restarts: int = 0
    role: str = ""


# Where a run's container has its packages, within the image's own /muster. Installed packages contain this path.
PACKAGES = "/muster/packages"


@dataclass(frozen=True)
class Packages:
    """A project's packages on this machine: their folder, or volume for containers, and the variables to use them."""

    name: str
    variables: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True)
class Script:
    """How a user's script runs on this machine: the folder that was sent, and the GPUs that its nodes share.

    `asked`: how many ranks the user wants on each node. `observe`: whether its ranks are watched from inside.
    `restarts`: how often it starts again if it fails. `keep`: container paths that are folders in the run folder.
    `uuids`: the ids of these GPUs, if they are not all GPUs of the machine. `packages`: what was installed for it.
    `secrets`: secret variables; those in `secret_files` are files in /run/secrets instead. `cache`: the folder on this
    machine where its containers keep downloads. `own`: more variables for its nodes. `bare`: the command asks for no
    torchrun, so an only rank gets none of its variables. `data`: container paths, with the local folders mounted there.
    """

    sent: str
    gpus: int = 0
    nodes: int = 1
    observe: bool = True
    asked: int | None = None
    restarts: int = 0
    keep: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    packages: Packages | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    secret_files: tuple[str, ...] = ()
    cache: str = ""
    own: Mapping[str, str] = field(default_factory=dict, hash=False)
    bare: bool = False
    data: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def ranks(self) -> int:
        """The number of ranks on each node: as asked, or else one for each of its GPUs, or one on the CPU."""
        return self.asked or self.gpus // self.nodes or 1

    def variables(self, node: int, nodes: int) -> dict[str, str]:
        """The script's variables for one node. Ranks never share a GPU: if there are too few, no node gets any."""
        return self.given(shares([-1] * nodes, self.gpus)[node], nodes)

    def given(self, share: range, nodes: int) -> dict[str, str]:
        """The script's variables for one of `nodes` nodes that gets this share of the run's GPUs."""
        own = (self.uuids or tuple(map(str, range(self.gpus))))[share.start : share.stop]
        given = self.gpus and (nodes > 1 or self.uuids)
        shared = {VISIBLE: ",".join(own)} if given else {}
        return {SENT: self.sent, **self.own, **shared, **({} if self.observe else {OBSERVE: "0"})}


def shares(asked: Sequence[int], gpus: int) -> list[range]:
    """Which of this machine's `gpus` each node gets: as many as it asks for, or (-1) an equal part of the rest."""
    rest = gpus - sum(count for count in asked if count > 0)
    counts = [max(0, rest // asked.count(-1)) if count < 0 else count for count in asked]
    ends = accumulate(counts)
    return [range(end - count, end) if end <= gpus else range(0) for count, end in zip(counts, ends, strict=True)]


@dataclass(frozen=True)
class RunSpec:
    """One start of a run: `start` counts from 1 and grows with each resume. `script`: set if a user's script runs.

    `least`: the run continues while this many nodes are left; 0: it needs all of them.
    """

    run_id: str
    run_dir: Path
    start: int
    arguments: tuple[str, ...]
    nodes: tuple[NodeSpec, ...]
    script: Script | None = None
    least: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names, by place."""
        return tuple(node.name for node in self.nodes)

    def with_variables(self, more: Mapping[str, str]) -> RunSpec:
        """Return a copy of the run whose nodes have these variables, too."""
        nodes = tuple(replace(node, environment={**node.environment, **more}) for node in self.nodes)
        return replace(self, nodes=nodes)

    def grouped(self, least: int, where: Sequence[tuple[str, int, int]], key: str) -> RunSpec:
        """Return a copy of the run that continues while at least `least` nodes are left.

        `where`: for each node its address, and the two ports on which the other nodes reach it. `key`: for this start.
        """
        more = group_variable(least, key, dict(zip(self.names, where, strict=True)))
        return replace(self.with_variables(more), least=least)


def local_spec(
    run_dir: Path,
    start: int,
    workers: int,
    arguments: Sequence[str],
    port: int,
    cores: int,
    system: str,
    script: Script | None = None,
) -> RunSpec:
    """The nodes of one start as local processes, with their rendezvous on `port` of the loopback interface.

    A node of Muster's own trainer has one rank. With `script`, `arguments` are the words of a user's script.
    """
    names = node_names(workers)
    rendezvous = Rendezvous(f"127.0.0.1:{port}", f"{run_dir.name}-{start}")
    interface = LOOPBACK.get(system, "lo")
    nodes = []
    ranks = script.ranks if script else 1
    per_node = tuple(arguments[:1]) == (PER_NODE,)
    shared = threads(cores, len(names) * ranks)
    for rank, name in enumerate(names):
        placement = Placement(name, rank, len(names), 1 if per_node else ranks, interface, shared)
        restarts = script.restarts if script else MAX_RESTARTS
        variables = node_environment(placement, rendezvous, run_dir.name, str(run_dir), restarts)
        variables |= {STOP_ON_EOF: "1", RESUME_COMMAND: f"muster resume {run_dir.name}"}
        variables |= script.variables(rank, len(names)) if script else {}
        variables |= {LAUNCHER_RANKS: str(ranks)} if per_node else {}
        variables |= bare_rank(bool(script and script.bare), len(names), placement.processes)
        variables |= script.packages.variables if script and script.packages else {}
        nodes.append(NodeSpec(name, rank, variables))
    words = (SCRIPT, *arguments) if script else arguments
    return RunSpec(run_dir.name, run_dir, start, tuple(words), tuple(nodes), script)


def restarts_of(variables: Mapping[str, str]) -> int:
    """How often a node's variables let its script start again; 0 if torchrun would not accept the number."""
    text = variables.get(MAX_RESTARTS_NAME, "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0


def node_environment(
    node: Placement, rendezvous: Rendezvous, run_id: str, run_dir: str, max_restarts: int = MAX_RESTARTS
) -> dict[str, str]:
    """The variables that contract.md promises a node. `run_dir` is the path of the run folder on the node.

    docker-compose.yml sets the same variables; tests/unit/test_contract.py compares the two.
    """
    return {
        "PET_NNODES": str(node.nodes),
        "PET_NPROC_PER_NODE": str(node.processes),
        "PET_NODE_RANK": str(node.rank),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": rendezvous.endpoint,
        "PET_RDZV_ID": rendezvous.id,
        "PET_RDZV_CONF": f"is_host={int(node.rank == 0)},{RDZV_CONF}",
        MAX_RESTARTS_NAME: str(max_restarts),
        "PET_MONITOR_INTERVAL": str(MONITOR_INTERVAL_S),
        "PET_SHUTDOWN_TIMEOUT": str(SHUTDOWN_TIMEOUT_S),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "GLOO_SOCKET_IFNAME": node.interface,
        "NCCL_SOCKET_IFNAME": f"={node.interface}",
        "OMP_NUM_THREADS": str(node.threads),
        RUN_ID: run_id,
        RUN_DIR: run_dir,
        NODE: node.name,
    }


def bare_rank(typed: bool, nodes: int, processes: int) -> dict[str, str]:
    """The variable that starts a run's only rank as without torchrun; `typed`: the command asks for no torchrun."""
    return {BARE_RANK: "1"} if typed and nodes == processes == 1 else {}


def group_variable(
    least: int,
    key: str,
    where: Mapping[str, Sequence[object]],
    apart: bool = False,
    spares: Sequence[str] = (),
    arbiter: str = "",
) -> dict[str, str]:
    """The variable that tells a node of the others, in a run that continues while `least` nodes are left.

    `apart`: each node has its own run folder. `spares`: nodes that wait until another is lost. `arbiter`: only votes.
    """
    given = {"apart": apart, "spares": list(spares), "arbiter": arbiter}
    more = {name: value for name, value in given.items() if value}
    return {GROUP: json.dumps({"least": least, "key": key, "nodes": where, **more})}


def asked_style(text: str) -> dict[str, str]:
    """--style as a variable for the nodes; empty if not given. Raises UsageError for an unknown style."""
    if text and text not in STYLES:
        style = near_match(text, STYLES, 0.5) or STYLES[0]
        raise UsageError(
            f"--style {text}: not one of {', '.join(STYLES)}", f"muster {COMMAND} ... --style {style} -- train.py"
        )
    return {STYLE: text} if text else {}


def asked_least(
    text: str, nodes: int, arguments: Sequence[str], script: bool, spares: bool = False, arbiter: bool = False
) -> int:
    """--min-nodes as a number; 0 if it is not given. Raises UsageError if the nodes could not continue with it.

    Fewer than a majority must not continue: the other nodes could continue, too, and the run would be trained twice.
    `spares`: more hosts wait for a free place; `nodes` excludes them. `arbiter`: one more host votes, so half suffices.
    """
    majority = nodes // 2 + (not arbiter)
    if not text:
        return 0
    if arbiter and nodes % 2:
        raise UsageError(f"--arbiter: with {nodes} hosts, more than half can be left without one", "leave it out")
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= nodes:
        hint = f"--min-nodes {majority}" if majority < nodes else "leave out --min-nodes: then all are needed"
        raise UsageError(f"--min-nodes {text}: not a number from 1 to {nodes}, the nodes", hint)
    if nodes < 3 and not arbiter:
        raise UsageError(
            f"--min-nodes {text}: with {several(nodes, 'node')}, the one that is left cannot tell whether the "
            "other is lost or still training",
            "leave out --min-nodes: one node can be lost out of three, or out of two with an arbiter"
            + "; a spare has no vote" * spares,
        )
    if int(text) == nodes and not spares:
        raise UsageError(
            f"--min-nodes {text}: none of {nodes} nodes could be lost",
            "leave out --min-nodes: then all nodes are needed",
        )
    if int(text) < majority:
        raise UsageError(
            f"--min-nodes {text}: fewer than a majority of {nodes} nodes; if the network splits in two, both "
            "parts would keep training",
            f"--min-nodes {majority}",
        )
    if not script and any(word == "--mesh" or word.startswith("--mesh=") for word in arguments):
        raise UsageError(
            f"--min-nodes {text} with --mesh: a lost node's part of the model would be lost too",
            "leave out one of the two",
        )
    return int(text)


def memory_limit(total: int) -> int:
    """The bytes of a machine's `total` memory that a container may use: all but a reserve, and at least half.

    The reserve is a twentieth of `total`, at least 1 GiB and at most 16 GiB. With it, a run that uses up its memory
    dies alone, without the machine's SSH server.
    """
    reserve = min(_RESERVE_MOST, max(_RESERVE_LEAST, total // _RESERVE_SHARE))
    return max(total // 2, total - reserve)


def node_names(workers: int) -> tuple[str, ...]:
    """`master`, `worker-1`, ... by place in the run."""
    return ("master", *(f"worker-{number}" for number in range(1, workers + 1)))


def script_name(words: Sequence[str]) -> str:
    """The script that a command starts: train.py, pkg.train after -m, or the script after `accelerate launch`."""
    names = [word for word in words if not word.startswith("-")]
    if names and Path(names[0]).name in ("accelerate", "deepspeed", "bash", "sh", "muster.ray"):
        return next((word for word in names[1:] if word.endswith((".py", ".sh", ".sbatch", ".slurm"))), names[0])
    return next(iter(names), "the script")


def recipe_name(arguments: Sequence[str]) -> str:
    """The recipe in the trainer's arguments, as part of a folder name: `my_recipe` from `--recipe lib/my_recipe.py`."""
    recipe = DEFAULT_RECIPE
    for position, argument in enumerate(arguments):
        if argument == "--recipe" and position + 1 < len(arguments):
            recipe = arguments[position + 1]
        elif argument.startswith("--recipe="):
            recipe = argument.partition("=")[2]
    stem = Path(recipe).stem
    return re.sub(r"[^A-Za-z0-9_-]", "-", stem)[:_LONGEST_RECIPE] or DEFAULT_RECIPE


def what_runs(words: Sequence[str], script: bool) -> str:
    """The name of the script, or of the recipe of Muster's own trainer, that a run's words start."""
    return script_name(words) if script else recipe_name(words)


def mounted(arguments: Sequence[str], here: Path) -> tuple[list[str], list[Path]]:
    """The trainer's arguments for a container: existing paths, relative to `here`, become absolute.

    Returns the arguments and the paths to mount. `--recipe text` means a recipe even if a folder `text` exists.
    """
    words = []
    paths = []
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
        names_recipe = option == "--recipe" or (not option and position > 0 and arguments[position - 1] == "--recipe")
        path = here / os.path.expanduser(value)
        if value and os.path.exists(path) and (not names_recipe or value.endswith(".py")):
            paths.append(path.resolve())
            words.append(f"{option}{equals}{path.resolve()}")
        else:
            words.append(argument)
    return words, sorted(set(paths))


def secrets_folder(user: str) -> str:
    """A folder in the container's memory for secrets that are files, as `docker run --tmpfs` takes it."""
    uid, gid = user.split(":")
    return f"/run/secrets:mode=0700,uid={uid},gid={gid},size=8m,noexec,nosuid,nodev"


def finding_muster(variables: Mapping[str, str], home: str = TRAINER_HOME) -> dict[str, str]:
    """The user's variables, with `home` put first in their PYTHONPATH, if they set one.

    Their PYTHONPATH replaces the image's own, by which Python finds the agent.
    """
    theirs = variables.get("PYTHONPATH")
    return {**variables, **({} if theirs is None else {"PYTHONPATH": f"{home}:{theirs}".rstrip(":")})}


def mounts_file(paths: Sequence[Path], run: RunSpec, user: str = "") -> dict[str, Any]:
    """A compose file (JSON is YAML) with the mounts and variables of every node.

    `paths` (at the same paths) and data are read-only. The folders that `run` keeps are writable, but within the run
    folder a read-only mount covers them: a container could put links there. `user`: the containers' user, `uid:gid`.
    """
    script = run.script or Script("")
    keep = run.run_dir / KEEP
    mounts = [*((str(path), str(path), True) for path in paths), *((own, at, True) for at, own in script.data.items())]
    mounts += [(str(keep), f"{RUNS_IN_CONTAINER}/{run.run_id}/{KEEP}", True)] * bool(script.keep)
    mounts += [(f"{keep}{path}", path, False) for path in script.keep]
    mounts += [(script.cache, CACHE, False)] * bool(script.cache)
    volumes = [{"type": "bind", "source": own, "target": at, "read_only": only} for own, at, only in mounts]
    node: dict[str, Any] = {"volumes": volumes, "environment": finding_muster(script.own)}
    if script.secret_files:
        node["tmpfs"] = [secrets_folder(user)]
    services = {"services": dict.fromkeys(("master", "worker"), node)}
    if script.packages is None:
        return services
    volumes.append({"type": "volume", "source": "packages", "target": PACKAGES, "read_only": True})
    node["environment"] |= script.packages.variables
    return {**services, "volumes": {"packages": {"external": True, "name": script.packages.name}}}
