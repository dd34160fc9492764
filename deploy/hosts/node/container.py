"""What each real host runs: its container, with memory, shared memory, limits, GPUs, mounts and variables. Pure.

The rules are those of design.md ("prevent by construction"): the rendezvous endpoint is an IP literal of the first
host, one node hosts the rendezvous, and every node gets the name of the one interface that leads to its peers.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from ...core.errors import UsageError
from ...core.formats import LABELS
from ...core.names import NODE_PROGRAMS, NodeName, node_of
from ...host import commands
from ...host.facts import HostFacts, Route
from ...host.gpus import GpuUse
from ...job.inventory import Host
from ...job.option_words import command_of, words_of
from ...job.options import Job, Options
from ...job.script import PER_NODE
from ...job.values import VISIBLE, Mount
from ...run import environment
from ...run.roles import PlannedRole
from ...send.folder.content import WORKSPACE
from .docker_run import DockerRun

# With Docker's default of 64 MB of shared memory, data loaders die of a bus error.
SHM_SHARE, SHM_LEAST = 2, 64 << 20
OPEN_FILES = 1048576
# Threads count too: 8 ranks with 32 loader workers of 100 threads each are 25,600. A fork bomb ends at this limit.
PIDS = 32768
LOG_LIMITS = ("--log-driver", "json-file", "--log-opt", "max-size=50m", "--log-opt", "max-file=2")
# Seconds: when the engine stops a container, its ranks need time to write a checkpoint.
STOP_PATIENCE_S, _AFTER_GRACE_S = 60, 40
# The engine restarts a node at most this many times, after its own host or a peer's host has rebooted. A node that
# waits for a host to boot gives up after a minute each time.
RESTARTS = 5
# How many times a node's host may reboot while the node waits.
WAIT_RESTARTS = 5


@dataclass(frozen=True)
class Work:
    """The work of a run: `script` goes to torchrun (`train.py --lr 3e-4`); without one, `arguments` go to the trainer.

    `start` counts from 1 and grows with each resume. `token`: a random word that no other start has. `sent`: the user's
    folder was sent, and the script works in it. `observe`: a script's ranks are watched from inside. `restarts`: how
    often a script is started again (--restarts). `max_hours`, `on_end`: the values of these options. `ends`: the
    variables of --grace and --restart-with. `share_key`: a key that only the nodes of this start know; with it they
    share a script's files before each attempt. `waits`: the nodes first wait on their hosts, until these are free.
    `least`: how many nodes are enough to keep training without the others (0: all are needed); such nodes meet on
    `ports`. `overlay`: the socket with which the nodes keep the run's own network alive. `resumed`: for the command
    that resumes the run: the words for its hosts, and the options. `bare`: the user typed a command whose only rank
    gets none of torchrun's variables. `roles`: the roles of a run with several; `script` is then that of the first
    role whose end ends the run, and `role` is the current role. `places`: each host's place in the run, if the hosts
    given are not all of the run's hosts.
    """

    run_id: str
    image: str
    script: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    start: int = 1
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    secrets: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    token: str = ""
    sent: bool = False
    observe: bool = True
    restarts: int | None = None
    max_hours: str = ""
    ends: Mapping[str, str] = field(default_factory=dict, hash=False)
    on_end: str = ""
    share_key: str = field(default="", repr=False)
    waits: bool = False
    least: int = 0
    ports: tuple[int, ...] = ()
    overlay: str = ""
    resumed: tuple[str, str] = ("", "")
    bare: bool = False
    roles: tuple[PlannedRole, ...] = ()
    role: str = ""
    places: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments for the container's Python. -P keeps a user's folder called `muster` from hiding Muster's."""
        rest = (environment.SCRIPT, *self.script) if self.script else self.arguments
        return ("-P", "-m", NODE_PROGRAMS, "agent", *rest)


@dataclass(frozen=True)
class Meeting:
    """The rendezvous: its address and port, and each host's interface to its peers, in the hosts' order."""

    address: str
    port: int
    interfaces: tuple[str, ...]


@dataclass(frozen=True)
class NodeContainer:
    """The container of one node on its host. `docker` makes it; `environment` and `secrets` arrive on standard input.

    `fresh`: this start makes the run folder, so no earlier start has left checkpoints in it. `start`: the label of
    everything that this start makes. `first`: this node hosts the rendezvous. `keep`: paths in the container that are
    stored in the run folder. `claim`: the claim that holds its GPUs for this deploy until the container has them.
    `own`: the node's own claim on the host; the container mounts the parts that the node needs (scripts/start.sh).
    `witness`: the container next to it that reports the run's end. `overlay`: the container that holds the node's end
    of the run's own network. `memory`: how much it may use, in Docker's form.
    """

    host: str
    node: NodeName
    run: str
    image: str
    folder: str
    owner: str
    docker: DockerRun
    environment: Mapping[str, str] = field(hash=False)
    secrets: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    fresh: bool = True
    start: str = ""
    first: bool = False
    keep: tuple[str, ...] = ()
    claim: str = ""
    own: commands.OwnClaim = commands.NO_CLAIM
    witness: NodeContainer | None = None
    overlay: DockerRun | None = None
    memory: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        """The `docker run` command that makes it."""
        return self.docker.argv

    @property
    def name(self) -> str:
        """The container's name."""
        return self.docker.name

    @property
    def input(self) -> bytes:
        """What `host_commands.start` reads: variables, secrets for the running node, and a folder for claims."""
        variables = commands.variable_lines(self.environment)
        folder = commands.base64_line(commands.claims_folder()) if self.own.name else b""
        return commands.base64_line(variables) + commands.base64_line(secrets_document(self.secrets)) + folder


def secrets_document(secrets: Mapping[str, str]) -> bytes:
    """Secrets in the form that the node's agent reads (contract.md); empty if there are none."""
    return json.dumps(dict(secrets)).encode() if secrets else b""


def meeting_of(hosts: Sequence[Host], address: str, port: int, routes: Sequence[Route]) -> Meeting:
    """The meeting at `address`; an interface that the user chose overrides the route's."""
    interfaces = (host.interface or route.interface for host, route in zip(hosts, routes, strict=True))
    return Meeting(address, port, tuple(interfaces))


def node_containers(
    hosts: Sequence[Host], facts: Sequence[HostFacts], job: Job, work: Work, meeting: Meeting
) -> tuple[NodeContainer, ...]:
    """Return one node for each host, in their order; the first node hosts the rendezvous.

    Raises UsageError for a variable with several lines and for two hosts with the same node name.
    """
    names = [node_of(host.name) for host in hosts]
    if len(set(names)) < len(names):
        raise UsageError("two hosts would have the same node name", "give them names in cluster.toml")
    for name, value in work.environment.items():
        if "\n" in value:
            raise UsageError(f"{name}: a variable cannot have several lines", "put it in a file and mount the file")
    return tuple(
        _node_container(index, names, host, fact, job, work, meeting)
        for index, (host, fact) in enumerate(zip(hosts, facts, strict=True))
    )


def newcomer(place: int, host: Host, facts: HostFacts, job: Job, work: Work, meeting: Meeting) -> NodeContainer:
    """One more node, for a host that joins a run; `meeting` has only this host's interface."""
    work = replace(work, places={host.name: place})
    made = _node_container(0, [node_of(host.name)], host, facts, job, work, meeting)
    return replace(made, environment={**made.environment, "PET_NODE_RANK": str(place)})


def container_name(run_id: str) -> str:
    """The container's name, the same on every host: a host has one node of a run."""
    return f"muster-{run_id}"


def resume_command(run_id: str, where: str = "", again: str = "") -> str:
    """The command in the trainer's hint for resuming a stopped run: `where` it ran, and its options `again`.

    A variable has one line, so options that contain line breaks are left out.
    """
    resume = Options(resume=run_id)
    whole = " ".join(filter(None, ("muster", "deploy", where, *words_of(resume), again)))
    return whole if whole.isprintable() else command_of("deploy", resume)


def processes(facts: HostFacts, job: Job) -> int:
    """How many ranks a host gets: the job's number, or one for each GPU, or one without GPUs."""
    if job.processes != "auto":
        return job.processes
    return max(1, len(facts.gpus))


def restarts(work: Work, variables: Mapping[str, str]) -> int:
    """How often the engine restarts a node. It restarts a user's script only as often as the user asks.

    If nodes continue without a lost node, that node's return does not count as a restart of the script.
    """
    if not work.script or work.least:
        return RESTARTS
    return environment.restarts_of(variables)


def gpu_options(facts: HostFacts) -> tuple[str, ...]:
    """`docker run` options for the GPUs that the run gets on this host."""
    if not facts.gpus:
        return ()
    seen = facts.candidates or facts.gpus
    # Some engines (WSL 2) can only grant all GPUs. Docker reads a value with commas as CSV, so it needs these quotes.
    return ("--gpus", f'"device={_uuids(seen)}"' if facts.picked else "all")


def visible_gpus(host: Host, facts: HostFacts) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES, if the host's is set: by UUID, since a container numbers the GPUs that it gets from 0."""
    return {} if host.visible is None else {VISIBLE: _uuids(facts.gpus)}


def _uuids(gpus: Sequence[GpuUse]) -> str:
    return ",".join(gpu.uuid for gpu in gpus)


def container_options(host: Host, facts: HostFacts, job: Job) -> tuple[str, ...]:
    """`docker run` options for every container of a run: network, user, memory, limits, devices, mounts."""
    # An engine that may not raise its own limit (for example, in a container) cannot grant more than that limit.
    files = min(OPEN_FILES, facts.open_files or OPEN_FILES)
    return (
        *("--network", "host", "--init", "--no-healthcheck", "--user", user_of(facts, job)),
        *("--security-opt", "no-new-privileges"),
        *("--shm-size", job.shm_size or f"{max(SHM_LEAST, facts.memory // SHM_SHARE)}b"),
        *memory_options(facts, job),
        *("--ulimit", f"nofile={files}:{files}"),
        *(("--ulimit", "memlock=-1:-1", "--device", "/dev/infiniband") if facts.rdma else ()),
        *gpu_options(facts),
        *(word for mount in mounts(host, job) for word in ("--mount", mount_option(mount))),
    )


def memory_options(facts: HostFacts, job: Job) -> tuple[str, ...]:
    """`docker run` options that keep a container from using up the host's memory and processes."""
    return ("--memory", memory_of(facts, job), "--pids-limit", str(job.pids or PIDS))


def memory_of(facts: HostFacts, job: Job) -> str:
    """The memory that a container may use on a host, in Docker's form."""
    return job.memory or f"{environment.memory_limit(facts.memory)}b"


def mount_option(mount: Mount) -> str:
    """A folder for `docker run --mount`, which reads CSV. Unlike --volume, it never makes a missing folder."""
    text = io.StringIO()
    fields = ("type=bind", f"source={mount.source}", f"target={mount.target}", *["readonly"] * mount.read_only)
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def mounts(host: Host, job: Job) -> tuple[Mount, ...]:
    """The mounts of the job and the host; if both mount the same target, the host's mount is used."""
    return tuple({mount.target: mount for mount in (*job.mounts, *host.mounts)}.values())


def cache_folder(facts: HostFacts, job: Job) -> str:
    """The host's folder for what scripts download and compile repeatedly; empty if the run uses no cache.

    Each uid has its own folder: a container with another uid could neither read nor write it.
    """
    return f"{facts.home}/.muster/cache/{ids_of(facts, job)[0]}" if job.cache else ""


def ids_of(facts: HostFacts, job: Job) -> tuple[int, int]:
    """The run's uid and gid: the login's (on a bare host, also root's); if the login is root, run_user.py's choice."""
    if facts.uid or facts.bare:
        return facts.uid, facts.gid
    if job.user is None:
        raise ValueError("you log in as root, and no uid was chosen for the run")
    return job.user, job.user


def user_of(facts: HostFacts, job: Job) -> str:
    """The run's uid and gid in Docker's form."""
    return "{}:{}".format(*ids_of(facts, job))


def owner_of(facts: HostFacts, job: Job) -> str:
    """The owner of the files that the login makes for the run; empty: the login itself."""
    return "" if facts.uid or facts.bare else user_of(facts, job)


def _labels_of_work(facts: HostFacts, work: Work) -> dict[str, str]:
    """Labels for what it runs, and for its GPUs; for a waiting node, the token of its claim instead of GPUs."""
    given = {"muster.gpus": _uuids(facts.gpus)} if facts.gpus else {}
    return {
        "muster.command": " ".join(work.script or work.arguments)[:200],
        "muster.claim": work.token,
        **({"muster.waits": work.token} if work.waits else given),
        **({"muster.least": str(work.least)} if work.least else {}),
        **({"muster.secrets": ",".join(sorted(work.secrets))} if work.secrets else {}),
        **({"muster.role": work.role} if work.role else {}),
    }


def _node_options(folder: str, host: Host, facts: HostFacts, job: Job, work: Work) -> tuple[str, ...]:
    """`docker run` options of a node, which its rehearsal also gets: those of every container, its run folder, mounts.

    A read-only mount covers the folder of kept paths: otherwise a container could put links there for the next start.
    """
    cache, keep_at = cache_folder(facts, job) if work.script else "", f"{folder}/{environment.KEEP}"
    mounted = [
        *([Mount(keep_at, f"{commands.RUN_IN_CONTAINER}/{environment.KEEP}", True)] if job.keep else []),
        *(Mount(f"{keep_at}{path}", path, False) for path in job.keep),
        *([Mount(cache, environment.CACHE, False)] if cache else []),
    ]
    secret_files = any(secret.as_file for secret in job.secrets)
    return (
        *("--volume", f"{folder}:{commands.RUN_IN_CONTAINER}"),
        *container_options(host, facts, job),
        *(word for mount in mounted for word in ("--mount", mount_option(mount))),
        *(("--tmpfs", environment.secrets_folder(user_of(facts, job))) if secret_files else ()),
        *(("--ulimit", "core=0") if work.secrets else ()),  # a core dump would write the secrets to a file
    )


def _node_container(
    index: int,
    names: Sequence[NodeName],
    host: Host,
    facts: HostFacts,
    job: Job,
    work: Work,
    meeting: Meeting,
) -> NodeContainer:
    folder = f"{facts.home}/.muster/runs/{work.run_id}"
    place = work.places.get(host.name, index)
    start = f"{work.token}-{place}"
    secret_names = ",".join(sorted(work.secrets))
    labels = {
        "muster.format": str(LABELS),
        "muster.run": work.run_id,
        "muster.user": facts.user,
        "muster.start": start,
        "muster.node": names[index],
        "muster.place": str(place),
        "muster.nodes": str(len(work.places) or len(names)),
        "muster.port": str(meeting.port),
        **_labels_of_work(facts, work),
    }
    variables = {
        **_variables(index, names, facts, job, work, meeting),
        **job.environment,
        **host.environment,
        **work.environment,
        **visible_gpus(host, facts),
    }
    if work.restarts is not None:
        variables[environment.MAX_RESTARTS_NAME] = str(work.restarts)
    variables = environment.finding_muster(variables)
    restart_count = restarts(work, variables) + WAIT_RESTARTS * work.waits
    variables |= {environment.RESTARTED_BY_HOST: "1"} if restart_count else {}
    again = work.start > 1 or restart_count > WAIT_RESTARTS * work.waits
    shares = again and work.script and work.sent and len(names) > 1
    variables |= {environment.SHARE_KEY: work.share_key} if shares else {}
    variables |= {environment.SECRETS: secret_names} if secret_names else {}
    secret_files = ",".join(sorted(secret.name for secret in job.secrets if secret.as_file))
    variables |= {environment.SECRET_FILES: secret_files} if secret_files else {}
    lifetime = (
        *(("--restart", f"on-failure:{restart_count}") if restart_count else ()),
        *("--stop-timeout", str(_stop_patience(work)), *LOG_LIMITS),
    )
    options = _node_options(folder, host, facts, job, work)
    return NodeContainer(
        host.name,
        names[index],
        work.run_id,
        work.image,
        folder,
        owner_of(facts, job),
        DockerRun(container_name(work.run_id), labels, options, work.image, work.command, lifetime),
        variables,
        work.secrets,
        work.start == 1,
        start,
        place == 0,
        job.keep,
        memory=memory_of(facts, job),
    )


def _stop_patience(work: Work) -> int:
    """How many seconds the engine waits when it stops a node: longer than the node waits for its ranks."""
    return max(STOP_PATIENCE_S, ceil(float(work.ends.get(environment.GRACE, "0"))) + _AFTER_GRACE_S)


def _variables(
    index: int, names: Sequence[NodeName], facts: HostFacts, job: Job, work: Work, meeting: Meeting
) -> dict[str, str]:
    """The variables that contract.md promises to a node."""
    ranks, per_node = processes(facts, job), work.script[:1] == (PER_NODE,)
    address = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
    # The token separates this rendezvous from another user's.
    rendezvous = environment.Rendezvous(f"{address}:{meeting.port}", f"{work.run_id}-{work.start}-{work.token}")
    node = environment.Placement(
        names[index],
        index,
        len(names),
        1 if per_node else ranks,
        meeting.interfaces[index],
        environment.threads(facts.cores, ranks),
    )
    # A user's script starts from its beginning each time, so it restarts only if the user asks for that (--restarts).
    max_restarts = 0 if work.script else environment.MAX_RESTARTS
    return {
        **environment.node_environment(node, rendezvous, work.run_id, commands.RUN_IN_CONTAINER, max_restarts),
        environment.RESUME_COMMAND: resume_command(work.run_id, *work.resumed),
        **({environment.LAUNCHER_RANKS: str(ranks)} if per_node else {}),
        **environment.bare_rank(work.bare, node.nodes, node.processes),
        **({environment.SEPARATE: "1"} if job.separate else {}),
        **({environment.MAX_HOURS: work.max_hours} if work.max_hours else {}),
        **work.ends,
        **({environment.OVERLAY: work.overlay} if work.overlay else {}),
        **(_script_variables(work) if work.script else {}),
    }


def _script_variables(work: Work) -> dict[str, str]:
    """Variables that tell the agent how to keep what a script writes, and whether its ranks are watched."""
    where = {environment.SENT: WORKSPACE} if work.sent else {environment.SAVE_CHANGES: "1"}
    return where if work.observe else {**where, environment.OBSERVE: "0"}
