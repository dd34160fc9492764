"""What each real host shall run: its container, the `docker run` that makes it, its variables. Pure.

The rules are those of docs/design.md ("prevent by construction"): the nodes meet at an IP literal that the first host
has, one node is host of the rendezvous, and every node names the one interface that leads to its peers.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..config.inventory import Host, Job
from ..config.values import Mount
from ..core.errors import UsageError
from ..core.formats import LABELS
from ..core.names import NodeName, node_of
from ..host import commands
from ..host.facts import HostFacts, Route
from ..image.model import TRAINER_HOME, WORKSPACE
from ..run import environment

# Docker's own 64 MB is where data loaders die of a bus error.
SHM_SHARE, SHM_LEAST = 2, 64 << 20
OPEN_FILES = 1048576
# Threads count as well: 8 ranks with 32 loader workers of 100 threads are 25,600. A fork bomb ends here.
PIDS = 32768
LOG_LIMITS = ("--log-driver", "json-file", "--log-opt", "max-size=50m", "--log-opt", "max-file=2")
# A container needs time to let its ranks write a checkpoint when its engine stops it.
STOP_PATIENCE_S = 60
# A node whose host rebooted, or whose peers did, is started again this often. One that waits for a host that boots
# gives up after a minute each time.
RESTARTS = 5


@dataclass(frozen=True)
class Work:
    """What is to run: `script` is what torchrun gets (`train.py --lr 3e-4`), or else `arguments` go to the trainer.

    `start` counts from 1 and grows with each resume. `token`: no other start, of whomever, has it. `sent`: a folder
    goes along; else a script stands in the image.
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

    @property
    def command(self) -> tuple[str, ...]:
        """What the container's Python gets. -P: a folder of the user's called `trainer` must not be taken for ours."""
        rest = ("--script", *self.script) if self.script else self.arguments
        return ("-P", "-m", "trainer.node.agent", *rest)


@dataclass(frozen=True)
class Meeting:
    """Where the nodes meet, and each host's interface to its peers, in the hosts' order."""

    address: str
    port: int
    interfaces: tuple[str, ...]


@dataclass(frozen=True)
class NodeContainer:
    """The container of one node on its host. `argv` makes it; `environment` and `secrets` go there over standard input.

    `fresh`: its run folder is made by this start, not by an earlier one whose checkpoints are in it. `start`: the label
    by which what this start made is known; `first`: the others meet on it.
    """

    host: str
    node: NodeName
    run: str
    image: str
    folder: str
    owner: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(hash=False)
    secrets: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    fresh: bool = True
    start: str = ""
    first: bool = False

    @property
    def name(self) -> str:
        """The container's name."""
        return container_name(self.run)

    @property
    def input(self) -> bytes:
        """What `host_commands.start` reads: the container's variables, and what is handed in once it runs."""
        variables = commands.variable_lines(self.environment)
        return commands.line(variables) + commands.line(handed_in(self.secrets))


def handed_in(secrets: Mapping[str, str]) -> bytes:
    """Secrets as the node's agent takes them (docs/contract.md); empty where there are none."""
    return json.dumps(dict(secrets)).encode() if secrets else b""


def python_of(image: str) -> tuple[str, ...]:
    """The end of a `docker run` that starts the image's Python; its arguments follow."""
    return ("--entrypoint", "sh", image, "-c", commands.PYTHON, "sh")


def meeting_of(hosts: Sequence[Host], address: str, port: int, routes: Sequence[Route]) -> Meeting:
    """The meeting at `address`; an interface the user named goes before the route's."""
    interfaces = (host.interface or route.interface for host, route in zip(hosts, routes, strict=True))
    return Meeting(address, port, tuple(interfaces))


def node_containers(
    hosts: Sequence[Host], facts: Sequence[HostFacts], job: Job, work: Work, meeting: Meeting
) -> tuple[NodeContainer, ...]:
    """One node a host, in their order; the first is host of the rendezvous.

    Raises UsageError for a variable of several lines and for two hosts with one node name.
    """
    names = [node_of(host.name) for host in hosts]
    if len(set(names)) < len(names):
        raise UsageError("two hosts would be nodes of one name", "give them names in cluster.toml")
    for name, value in work.environment.items():
        if "\n" in value:
            raise UsageError(f"{name}: a variable of several lines cannot be passed on", "put it in a file, mount that")
    return tuple(
        _one(place, names, host, fact, job, work, meeting)
        for place, (host, fact) in enumerate(zip(hosts, facts, strict=True))
    )


def script_name(words: Sequence[str]) -> str:
    """What a script's command starts: train.py, or pkg.train behind -m."""
    return next((word for word in words if not word.startswith("-")), "the script")


def container_name(run_id: str) -> str:
    """The container's name on every host: one node of a run a host."""
    return f"muster-{run_id}"


def processes(host: Host, facts: HostFacts, job: Job) -> int:
    """How many ranks a host gets: as many as GPUs, or one."""
    if job.processes != "auto":
        return job.processes
    if host.gpus == "auto":
        return max(1, len(facts.gpus))
    return max(1, host.gpus if isinstance(host.gpus, int) else len(host.gpus))


def restarts(work: Work, variables: Mapping[str, str]) -> int:
    """How often the engine starts a node again: a script of the user's, as often as they ask for it."""
    if not work.script:
        return RESTARTS
    asked = variables.get("PET_MAX_RESTARTS", "0")
    return int(asked) if re.fullmatch(r"[0-9]{1,9}", asked) else 0


def gpu_options(host: Host, facts: HostFacts) -> tuple[str, ...]:
    """`docker run` options for the GPUs asked for; auto asks for what there is."""
    if host.gpus == "auto":
        return ("--gpus", "all") if facts.gpus else ()
    if isinstance(host.gpus, int):
        return ("--gpus", str(host.gpus)) if host.gpus else ()
    # Docker reads a value with commas as CSV: the quotes are its own.
    return ("--gpus", f'"device={",".join(map(str, host.gpus))}"')


def container_options(host: Host, facts: HostFacts, job: Job) -> tuple[str, ...]:
    """`docker run` options that make a container what training gets: network, user, memory, limits, devices, mounts."""
    # More than the engine's own limit it cannot grant where it may not raise that (in a container, say).
    files = min(OPEN_FILES, facts.open_files or OPEN_FILES)
    return (
        *("--network", "host", "--init", "--no-healthcheck", "--user", _user(facts, job)),
        *("--security-opt", "no-new-privileges"),
        *("--shm-size", job.shm_size or f"{max(SHM_LEAST, facts.memory // SHM_SHARE)}b"),
        *(
            "--memory",
            job.memory or f"{environment.memory_limit(facts.memory)}b",
            "--pids-limit",
            str(job.pids or PIDS),
        ),
        *("--ulimit", f"nofile={files}:{files}"),
        *(("--ulimit", "memlock=-1:-1", "--device", "/dev/infiniband") if facts.rdma else ()),
        *gpu_options(host, facts),
        *(word for mount in mounts(host, job) for word in ("--mount", mount_option(mount))),
    )


def mount_option(mount: Mount) -> str:
    """A folder for `docker run --mount`, which reads CSV. Unlike --volume that makes no folder where there is none."""
    text = io.StringIO()
    fields = ("type=bind", f"source={mount.source}", f"target={mount.target}", *["readonly"] * mount.read_only)
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def mounts(host: Host, job: Job) -> tuple[Mount, ...]:
    """The job's and the host's: of two at one place the host's."""
    return tuple({mount.target: mount for mount in (*job.mounts, *host.mounts)}.values())


def _user(facts: HostFacts, job: Job) -> str:
    """The login's own number; where that is root, the one of host/run_user.py: no user of the host may have it."""
    if facts.uid:
        return f"{facts.uid}:{facts.gid}"
    if job.user is None:
        raise ValueError("a login as root, and no number was chosen for the run")
    return f"{job.user}:{job.user}"


def _one(
    place: int,
    names: Sequence[NodeName],
    host: Host,
    facts: HostFacts,
    job: Job,
    work: Work,
    meeting: Meeting,
) -> NodeContainer:
    folder = f"{facts.home}/.muster/runs/{work.run_id}"
    start = f"{work.token}-{place}"
    labels = {
        "muster.format": str(LABELS),
        "muster.run": work.run_id,
        "muster.user": facts.user,
        "muster.start": start,
        "muster.node": names[place],
        "muster.place": str(place),
        "muster.nodes": str(len(names)),
        "muster.port": str(meeting.port),
        "muster.command": " ".join(work.script or work.arguments)[:200],
        **({"muster.secrets": due} if (due := ",".join(sorted(work.secrets))) else {}),
    }
    variables = {
        **_variables(place, names, host, facts, job, work, meeting),
        **job.environment,
        **host.environment,
        **work.environment,
    }
    if "PYTHONPATH" in variables:  # what the image says of it is gone then, and would be the agent
        variables["PYTHONPATH"] = f"{TRAINER_HOME}:{variables['PYTHONPATH']}".rstrip(":")
    again = restarts(work, variables)
    variables |= {environment.RESTARTED_BY_HOST: "1"} if again else {}
    variables |= {environment.SECRETS: due} if due else {}
    argv = (
        *("docker", "run", "--detach", "--pull", "never", "--name", container_name(work.run_id)),
        *(word for name, value in labels.items() for word in ("--label", f"{name}={value}")),
        *(("--restart", f"on-failure:{again}") if again else ()),
        *("--stop-timeout", str(STOP_PATIENCE_S), *LOG_LIMITS, "--volume", f"{folder}:{commands.RUN_IN_CONTAINER}"),
        *container_options(host, facts, job),
        *(("--ulimit", "core=0") if due else ()),  # a core is a file, with the secrets in it
        *("--env-file", commands.VARIABLES_FIRST, *python_of(work.image), *work.command),
    )
    owner = "" if facts.uid else _user(facts, job)
    return NodeContainer(
        host.name,
        names[place],
        work.run_id,
        work.image,
        folder,
        owner,
        argv,
        variables,
        work.secrets,
        work.start == 1,
        start,
        place == 0,
    )


def _variables(
    place: int, names: Sequence[NodeName], host: Host, facts: HostFacts, job: Job, work: Work, meeting: Meeting
) -> dict[str, str]:
    """What docs/contract.md promises a node."""
    ranks = processes(host, facts, job)
    address = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
    # The token: another user's rendezvous is not ours.
    rendezvous = environment.Rendezvous(f"{address}:{meeting.port}", f"{work.run_id}-{work.start}-{work.token}")
    node = environment.Placement(
        names[place], place, len(names), ranks, meeting.interfaces[place], max(1, facts.cores // ranks)
    )
    # A script of the user's starts from its beginning each time: again only where they ask for it.
    max_restarts = 0 if work.script else environment.MAX_RESTARTS
    return {
        **environment.node_environment(node, rendezvous, work.run_id, commands.RUN_IN_CONTAINER, max_restarts),
        environment.RESUME_COMMAND: f"fab deploy --resume {work.run_id}",
        **({environment.SEPARATE: "1"} if job.separate else {}),
        **(_where_to_write(work) if work.script else {}),
    }


def _where_to_write(work: Work) -> dict[str, str]:
    """How the agent keeps what a script writes."""
    return {environment.SENT: WORKSPACE} if work.sent else {environment.SAVE_CHANGES: "1"}
