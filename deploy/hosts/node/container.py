"""What each real host runs: its container, with memory, shared memory, limits, GPUs, mounts and variables. Pure.

The rules are those of design.md ("prevent by construction"): the rendezvous endpoint is an IP literal of the first
host, one node is the host of the rendezvous, and every node names the one interface that leads to its peers.
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
from ...job.again import command_of, words_of
from ...job.inventory import Host
from ...job.options import Job, Options
from ...job.script import PER_NODE
from ...job.values import VISIBLE, Mount
from ...run import environment
from ...run.roles import Acted
from ...send.folder.content import WORKSPACE
from .docker_run import DockerRun

# With Docker's default of 64 MB, data loaders die of a bus error.
SHM_SHARE, SHM_LEAST = 2, 64 << 20
OPEN_FILES = 1048576
# Threads count as well: 8 ranks with 32 loader workers of 100 threads are 25,600. A fork bomb ends here.
PIDS = 32768
LOG_LIMITS = ("--log-driver", "json-file", "--log-opt", "max-size=50m", "--log-opt", "max-file=2")
# When its engine stops a container, its ranks need time to write a checkpoint.
STOP_PATIENCE_S, _AFTER_GRACE_S = 60, 40
# The engine restarts a node this often, after its own host or a peer's host has rebooted. A node that waits for a host
# to boot gives up after a minute each time.
RESTARTS = 5
# While a node waits, its host may reboot this often.
WAIT_RESTARTS = 5


@dataclass(frozen=True)
class Work:
    """The work of a run: `script` goes to torchrun (`train.py --lr 3e-4`); without one, `arguments` go to the trainer.

    `start` counts from 1 and grows with each resume. `token`: a random word that no other start has. `sent`: the image
    holds a folder of the user's for the script to work in. `observe`: a script's ranks are watched from inside.
    `restarts`: how often a script is started again, as --restarts says. `max_hours`, `on_end`: as their options say.
    `ends`: the variables of --grace and --restart-with. `share_key`: known to the nodes of this start alone, which
    share a script's files with it before each attempt.
    `waits`: its nodes wait on their hosts first. `least`: so many nodes train on without the others (0: all are
    needed), which meet on `ports`. `overlay`: what the nodes keep their own network alive with. `resumed`: the words
    for its hosts, and the options, of the command that resumes it. `bare`: typed so that its only rank has none of
    torchrun's variables. `roles`: in a run of several; `script` is then that of the first that ends it, and `role` the
    present one. `places`: of its hosts in the run, where they are not all of it.
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
    roles: tuple[Acted, ...] = ()
    role: str = ""
    places: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments of the container's Python. -P keeps a user's folder called `muster` from hiding ours."""
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
    """The container of one node on its host. `docker` makes it; `environment` and `secrets` go there by standard input.

    `fresh`: this start makes the run folder; no earlier start has left checkpoints in it. `start`: the label of
    everything that this start makes. `first`: this node is the host of the rendezvous. `keep`: paths in the container
    that are folders of the run folder. `claim`: what holds its GPUs for us until it has them. `own`: its own claim
    on the host, which mounts what the node needs of it (scripts/start.sh).
    `witness`: the container beside it that reports the run's end. `overlay`: what makes its network's end.
    `memory`: what it may use, as Docker takes it.
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
        """The `docker run` that makes it."""
        return self.docker.argv

    @property
    def name(self) -> str:
        """The container's name."""
        return self.docker.name

    @property
    def input(self) -> bytes:
        """What `host_commands.start` reads: variables, secrets for the running node, and a folder for claims."""
        variables = commands.variable_lines(self.environment)
        folder = commands.line(commands.claims_folder()) if self.own.name else b""
        return commands.line(variables) + commands.line(secrets_document(self.secrets)) + folder


def secrets_document(secrets: Mapping[str, str]) -> bytes:
    """Secrets as the node's agent takes them (contract.md); empty if there are none."""
    return json.dumps(dict(secrets)).encode() if secrets else b""


def meeting_of(hosts: Sequence[Host], address: str, port: int, routes: Sequence[Route]) -> Meeting:
    """The meeting at `address`; an interface that the user named overrides the route's."""
    interfaces = (host.interface or route.interface for host, route in zip(hosts, routes, strict=True))
    return Meeting(address, port, tuple(interfaces))


def node_containers(
    hosts: Sequence[Host], facts: Sequence[HostFacts], job: Job, work: Work, meeting: Meeting
) -> tuple[NodeContainer, ...]:
    """One node for each host, in their order; the first is the host of the rendezvous.

    Raises UsageError for a variable of several lines and for two hosts with the same node name.
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
    """One node more, of a host that joins a run; `meeting` has its interface alone."""
    work = replace(work, places={host.name: place})
    made = _node_container(0, [node_of(host.name)], host, facts, job, work, meeting)
    return replace(made, environment={**made.environment, "PET_NODE_RANK": str(place)})


def container_name(run_id: str) -> str:
    """The container's name on every host: a host has one node of a run."""
    return f"muster-{run_id}"


def resume_command(run_id: str, where: str = "", again: str = "") -> str:
    """The command that the trainer's hint names for a stopped run: `where` it ran, and its options `again`.

    A variable has one line: where the options have more, they are left out.
    """
    resume = Options(resume=run_id)
    whole = " ".join(filter(None, ("muster", "deploy", where, *words_of(resume), again)))
    return whole if whole.isprintable() else command_of("deploy", resume)


def processes(facts: HostFacts, job: Job) -> int:
    """How many ranks a host gets: one for each GPU, or one."""
    if job.processes != "auto":
        return job.processes
    return max(1, len(facts.gpus))


def restarts(work: Work, variables: Mapping[str, str]) -> int:
    """How often the engine restarts a node. It restarts a user's script only as often as the user asks.

    If nodes continue without a lost one, its return does not count as a restart of the script.
    """
    if not work.script or work.least:
        return RESTARTS
    return environment.restarts_of(variables)


def gpu_options(facts: HostFacts) -> tuple[str, ...]:
    """`docker run` options for the GPUs that the run gets on this host."""
    if not facts.gpus:
        return ()
    seen = facts.candidates or facts.gpus
    # Some engines (WSL 2) can only give all of them. Docker reads a value with commas as CSV, so it needs these quotes.
    return ("--gpus", f'"device={_uuids(seen)}"' if facts.picked else "all")


def visible_gpus(host: Host, facts: HostFacts) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES of a run that has it: a container counts the GPUs that it gets from 0."""
    return {} if host.visible is None else {VISIBLE: _uuids(facts.gpus)}


def _uuids(gpus: Sequence[GpuUse]) -> str:
    return ",".join(gpu.uuid for gpu in gpus)


def container_options(host: Host, facts: HostFacts, job: Job) -> tuple[str, ...]:
    """`docker run` options for every container of a run: network, user, memory, limits, devices, mounts."""
    # An engine that may not raise its own limit (in a container, say) cannot grant more than that limit.
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
    """`docker run` options that keep a container from taking the host's memory and processes."""
    return ("--memory", memory_of(facts, job), "--pids-limit", str(job.pids or PIDS))


def memory_of(facts: HostFacts, job: Job) -> str:
    """The memory that a container may use on a host, as Docker takes it."""
    return job.memory or f"{environment.memory_limit(facts.memory)}b"


def mount_option(mount: Mount) -> str:
    """A folder for `docker run --mount`, which reads CSV. Unlike --volume, it never makes a missing folder."""
    text = io.StringIO()
    fields = ("type=bind", f"source={mount.source}", f"target={mount.target}", *["readonly"] * mount.read_only)
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def mounts(host: Host, job: Job) -> tuple[Mount, ...]:
    """The mounts of job and host; if both mount the same target, the host's."""
    return tuple({mount.target: mount for mount in (*job.mounts, *host.mounts)}.values())


def cache_folder(facts: HostFacts, job: Job) -> str:
    """The folder of a host with what scripts download and compile again and again; empty where no run shall use it.

    Each uid has its own: a container of another one could neither read nor write it.
    """
    return f"{facts.home}/.muster/cache/{ids_of(facts, job)[0]}" if job.cache else ""


def ids_of(facts: HostFacts, job: Job) -> tuple[int, int]:
    """Uid and gid of the run: the login's own, on a bare host also root's; for root, what host/run_user.py chose."""
    if facts.uid or facts.bare:
        return facts.uid, facts.gid
    if job.user is None:
        raise ValueError("you log in as root, and no uid was chosen for the run")
    return job.user, job.user


def user_of(facts: HostFacts, job: Job) -> str:
    """The same as Docker takes them."""
    return "{}:{}".format(*ids_of(facts, job))


def owner_of(facts: HostFacts, job: Job) -> str:
    """Whose is what the login makes for the run; empty: its own."""
    return "" if facts.uid or facts.bare else user_of(facts, job)


def _labels_of_work(facts: HostFacts, work: Work) -> dict[str, str]:
    """What it runs, and what it has on its host: its GPUs; or, if it waits, what its claim will say."""
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
    """`docker run` options of a node, which its rehearsal has too: those of every container, its run folder, mounts.

    A read-only cover lies over the folder of what is kept: a container could put links there for the next start.
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
    """How many seconds the engine waits for a node that it stops: longer than the node for its ranks."""
    return max(STOP_PATIENCE_S, ceil(float(work.ends.get(environment.GRACE, "0"))) + _AFTER_GRACE_S)


def _variables(
    index: int, names: Sequence[NodeName], facts: HostFacts, job: Job, work: Work, meeting: Meeting
) -> dict[str, str]:
    """The variables that contract.md promises a node."""
    ranks, per_node = processes(facts, job), work.script[:1] == (PER_NODE,)
    address = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
    # The token keeps our rendezvous apart from another user's.
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
        **(_for_a_script(work) if work.script else {}),
    }


def _for_a_script(work: Work) -> dict[str, str]:
    """How the agent keeps what a script writes, and whether its ranks are watched."""
    where = {environment.SENT: WORKSPACE} if work.sent else {environment.SAVE_CHANGES: "1"}
    return where if work.observe else {**where, environment.OBSERVE: "0"}
