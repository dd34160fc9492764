"""A node that Slurm's `srun` has started: makes contract.md's variables from Slurm's, and refuses a wrong setup.

`srun muster agent -- train.py` starts one task on each host of a job, and only Slurm's variables show where the nodes
can meet. The first host of the step is the first node, so it has rank 0. Variables that are already set stay as they
are. Standard library only.
"""

from __future__ import annotations

import fcntl
import re
import socket
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.errors import Refused

from ..membership import meeting
from ..variables import number

_PATIENCE_SECONDS = 20.0
# Below the ports that a system assigns to connections. Each step of each job, and each start of it, has its own port.
_FIRST_PORT, _PORTS = 15000, 15000
# The same text as on the control side (deploy/run/environment.py); tests/unit/test_contract.py compares the two.
RDZV_CONF = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5,join_timeout=60"
# Long, because a host that imports torch from a slow shared disk may be ready minutes later than the others.
_JOIN_SECONDS = 600
_MOST_NODES = 65536
_SIOCGIFADDR = 0x8915


def applies(given: Mapping[str, str]) -> bool:
    """Whether Slurm has started this process, and no variable states the rendezvous."""
    return "SLURM_JOB_ID" in given and "PET_RDZV_ENDPOINT" not in given and "PET_NNODES" not in given


def variables(given: Mapping[str, str], arguments: Sequence[str], here: Path) -> dict[str, str]:
    """The variables that this node gets in addition to `given`. `arguments`: those of the agent.

    The run folder is below `here`, and stays the same when the job is requeued. Raises Refused if srun is missing or
    has started several tasks on a host, and TrainError for a host name that has no address.
    """
    nodes = number(given, "SLURM_STEP_NUM_NODES", number(given, "SLURM_NNODES", 1))
    if "SLURM_STEP_ID" not in given and nodes > 1:
        raise Refused(
            f"this runs in the batch script of a job with {nodes} nodes, not in a step of the job",
            "put srun in front: srun --ntasks-per-node=1 muster agent -- train.py",
        )
    tasks = number(given, "SLURM_STEP_NUM_TASKS", nodes)
    if "SLURM_STEP_ID" in given and tasks != nodes:
        raise Refused(
            f"srun started {tasks} tasks on {nodes} hosts: Muster starts the ranks of a host itself",
            f"one task per host: srun --ntasks={nodes} --ntasks-per-node=1 muster agent --nproc N -- train.py",
        )
    place, ranks = number(given, "SLURM_NODEID", 0), ranks_of(given)
    step = (given["SLURM_JOB_ID"], given.get("SLURM_STEP_ID", "0"), given.get("SLURM_RESTART_COUNT", "0"))
    name = f"slurm-{step[0]}" + (f"-{step[1]}" if step[1].isdecimal() and step[1] != "0" else "")
    cores = number(given, "SLURM_CPUS_ON_NODE", 1)
    made = {
        **unplanned_node_variables(arguments, ranks),
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": str(place),
        "OMP_NUM_THREADS": str(max(1, cores // ranks)),
        "MUSTER_RUN_ID": name,
        "MUSTER_RUN_DIR": str(here / "runs" / name),
        "MUSTER_NODE": given.get("SLURMD_NODENAME") or socket.gethostname(),
        "MUSTER_STYLE": "slurm",
        # Slurm signals every process of a step, so torchrun ignores these signals and leaves them to the agent, which
        # can still ask torchrun to end by SIGQUIT.
        "MUSTER_ALL_SIGNALLED": "1",
        "PET_SIGNALS_TO_HANDLE": "SIGQUIT",
    }
    if nodes > 1:
        made |= _meeting(given, place, "-".join(step))
    return missing_variables(given, arguments, made)


def unplanned_node_variables(arguments: Sequence[str], ranks: int) -> dict[str, str]:
    """The variables of a node that no control side has planned: its number of ranks, and torchrun's settings."""
    return {
        "PET_NPROC_PER_NODE": str(ranks),
        "PET_MAX_RESTARTS": "0" if list(arguments[:1]) == ["--script"] else "100",
        "PET_MONITOR_INTERVAL": "0.1",
        "PET_SHUTDOWN_TIMEOUT": "20",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def missing_variables(given: Mapping[str, str], arguments: Sequence[str], made: Mapping[str, str]) -> dict[str, str]:
    """The variables of `made` that are not in `given`; also those for a command that starts a node's ranks itself."""
    own = {variable: value for variable, value in made.items() if variable not in given}
    if list(arguments[:2]) == ["--script", "--per-node"]:
        own |= {"PET_NPROC_PER_NODE": "1", "MUSTER_LAUNCHER_RANKS": str(ranks_of(given))}
    return own


def remove_earlier_verdicts(given: Mapping[str, str]) -> None:
    """On the first node, remove an earlier start's verdicts: a requeued job has the same run folder."""
    if given.get("PET_NODE_RANK") == "0":
        for path in Path(given["MUSTER_RUN_DIR"]).glob("outcome/*.json"):
            path.unlink(missing_ok=True)


def read_host_list(text: str) -> list[str]:
    """The hosts of a Slurm list, in its order: `n[1-2,07],login` is n1, n2, n07, login.

    Raises Refused for a text that is not such a list, and for a list of too many hosts.
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names += _named(part)
        if len(names) > _MOST_NODES:
            raise Refused(
                f"a list of more than {_MOST_NODES} hosts: {text[:100]}", "set PET_RDZV_ENDPOINT to one of the hosts"
            )
    if text.count("[") != text.count("]") or not names or not all(re.fullmatch(r"[\w.-]+", name) for name in names):
        raise Refused(
            f"not a list of hosts: {text[:100]!r}", "set PET_RDZV_ENDPOINT and the other PET_ variables: contract.md"
        )
    return names


def _named(part: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    made = []
    for item in inside.split(","):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) - int(first) > _MOST_NODES):
            return [part]  # read_host_list() refuses it
        numbers = range(int(first), int(last or first) + 1)
        made += [f"{head}{number:0{len(first)}}{end}" for number in numbers for end in _named(tail)]
    return made


def _meeting(given: Mapping[str, str], place: int, start: str) -> dict[str, str]:
    """The rendezvous at the first host's address, as the other hosts resolve its name, and the interface to it."""
    names = read_host_list(given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST", ""))
    first = meeting.resolve(names[0], _PATIENCE_SECONDS)
    peer = meeting.resolve(names[-1], _PATIENCE_SECONDS) if place == 0 else first
    own = meeting.local_address(peer, 1)
    if place == 0 and _is_loopback(first) and not _is_loopback(peer):
        first = own  # Debian's /etc/hosts maps the host's own name to 127.0.1.1, which no other host reaches
    return rendezvous_variables(first, own, _port(given, start), place, f"slurm-{start}")


def rendezvous_variables(first: str, own: str, port: int | str, place: int, start: str) -> dict[str, str]:
    """The rendezvous variables: the nodes meet at `first`, the first node's address.

    `own`: the address of this node on the network to the first one. `start`: an id of this start of the nodes.
    """
    patient = re.sub(r"join_timeout=\d+", f"join_timeout={_JOIN_SECONDS}", RDZV_CONF)
    made = {
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": meeting.endpoint(first, port),
        "PET_RDZV_ID": start,
        "PET_RDZV_CONF": f"is_host={int(place == 0)},{patient}",
    }
    if interface := _interface(own):
        made |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
    return made


def _port(given: Mapping[str, str], start: str) -> int:
    reserved = re.match(r"\d+", given.get("SLURM_STEP_RESV_PORTS", ""))
    return int(reserved[0]) if reserved else _FIRST_PORT + zlib.crc32(start.encode()) % _PORTS


def ranks_of(given: Mapping[str, str]) -> int:
    """How many ranks this host has: as many as asked for, else one for each of the step's GPUs, else one."""
    if given.get("PET_NPROC_PER_NODE", "").isdecimal():
        return int(given["PET_NPROC_PER_NODE"])
    lists: Sequence[str] = [given.get(name, "") for name in ("SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES")]
    listed = next((len(text.split(",")) for text in lists if re.match(r"\w", text)), 0)
    return max(1, number(given, "SLURM_GPUS_ON_NODE", listed))


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _interface(address: str) -> str:
    """The interface that has this IPv4 address; empty if there is none."""
    if ":" in address:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                asked = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)
            except OSError:  # it has no IPv4 address
                continue
            if socket.inet_ntoa(answer[20:24]) == address or (_is_loopback(address) and name == "lo"):
                return name
    return ""
