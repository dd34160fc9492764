"""Read what NCCL logs with NCCL_DEBUG=INFO: its network, the transport between each two ranks, GPUDirect. Pure.

The wording changes from version to version. The patterns here match NCCL 2.2 to 2.28, its plugins, and RCCL
(tests/unit/preflight/nccl_logs.txt and public_logs.txt have excerpts, with their sources). Unknown lines are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# Ranks (from, to) -> the transport between them: `P2P/IPC`, `SHM/direct`, `NET/IB/0/GDRDMA`.
Ways = dict[tuple[int, int], str]
NET = "NET"
SOCKET = "Socket"
# A host may send lines of any length, and the time of these patterns grows with the square of a line's length.
LONGEST = 1000
_VERSION = re.compile(r"\b([NR]CCL) version ?:? ?([0-9][\w.+-]*)")
_WAY = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d+)(?:/\d+)? ?: (?P<from>\d+)(?:\[\w+\])? -> (?P<to>\d+)(?:\[\w+\])?"
    r" ?(?:\[(?P<end>send|receive)\])? via (?P<via>P2P|SHM|NET|COLLNET|NVLS|direct shared memory)"
    r"(?:/(?P<rest>[^\s].*?))?(?: comm .*)?$"
)
_DEVICE = re.compile(r"\[(\d+)\] ?([\w.-]+):\d+/(IB|RoCE)")
_HCA = re.compile(r"NET/(?!Socket)\S{1,100} ?: GPU Direct RDMA .{0,300}for HCA (\d+) '([\w.-]+)")
_NO_DIRECT = re.compile(r"NET/(?!Socket).{0,300}(?:GPU Direct RDMA Disabled|disabling GDR)")
_SOCKET = re.compile(r"(?:NET/(?:Socket|FastSocket)|NET) : Using (.*)")
_INTERFACE = re.compile(r"(?:\[\d+\]|^interface )([\w.-]+):")
# NCCL before 2.4 wrote `internal Network`. Today's `internal network plugin` does not tell which network it is.
_NETWORK = re.compile(r"Using (?:network|internal Network) (\S+(?: Libfabric)?)")
_OVER = re.compile(r"NET/([^/]+)/\d")
_PROVIDER = re.compile(r"NET/OFI Selected Provider is ([\w;.-]+)")
# Why NCCL does not use RDMA: a pattern of the log, and its meaning. The first pattern found in the log is the reason.
REASONS = (
    (r"NCCL_IB_DISABLE set by environment to 1", "NCCL_IB_DISABLE=1 is set"),
    (r"Selected Provider is (?:tcp|sockets)", "its libfabric found no RDMA provider, and used TCP"),
    (r"NCCL_NET set by environment to Socket", "NCCL_NET=Socket is set"),
    (r"Failed to open libibverbs", "the image has no libibverbs"),
    (
        r"Could not find any optimal provider|provider efa output empty|fi_getinfo\(\) call failed",
        "its plugin found no EFA device",
    ),
    (r"NET/IB : No device found", "it found no InfiniBand or RoCE device with an active port"),
)


@dataclass(frozen=True)
class NcclLog:
    """The facts that a log shows.

    network: what NCCL uses between hosts: `IB`, `Socket`, a plugin's name; empty if the log does not show it. devices:
    by index, the RDMA devices that it uses. provider: the provider that libfabric uses below NCCL's plugin. no_direct:
    a device cannot access the GPUs' memory directly.
    """

    library: str = ""
    version: str = ""
    network: str = ""
    devices: Mapping[int, str] = field(default_factory=dict)
    interfaces: tuple[str, ...] = ()
    ways: Mapping[tuple[int, int], str] = field(default_factory=dict)
    reason: str = ""
    provider: str = ""
    no_direct: bool = False

    @property
    def between(self) -> Ways:
        """The transports between ranks on different hosts."""
        return {pair: way for pair, way in self.ways.items() if way.startswith(NET)}

    @property
    def sockets(self) -> bool:
        """Whether ranks on different hosts use sockets; libfabric's plugin may use sockets under its own name."""
        if self.provider.startswith(("tcp", "sockets")):
            return True
        ways = self.between.values()
        return any(way.startswith("NET/Socket") for way in ways) if ways else self.network == SOCKET

    @property
    def direct(self) -> bool | None:
        """Whether the network accesses the GPUs' memory (GPUDirect RDMA) between all ranks; None if the log is silent.

        A transport that was really used counts more than what a device can do.
        """
        ways = [way for way in self.between.values() if not way.startswith("NET/Socket")]
        return all("GDRDMA" in way for way in ways) if ways else False if self.no_direct else None

    def device_of(self, pair: tuple[int, int]) -> str:
        """Return the RDMA device between two ranks, by its name in NCCL_IB_HCA; empty if there is none."""
        number = re.match(r"NET/(?!Socket)[^/]+/(\d+)", self.ways.get(pair, ""))
        return self.devices.get(int(number[1]), "") if number else ""


def read(lines: Iterable[str]) -> NcclLog:
    """Read the log of one rank, or of several. The first line of each kind counts; for a transport, its sender's line.

    If one rank reports that it uses sockets, the network is sockets.
    """
    text = [line[:LONGEST] for line in lines]
    library, version = _first(_VERSION, text) or ("", "")
    listed = next(
        (line for line in text if ("Using [0]" in line or "NET/IB: [0]" in line) and _DEVICE.search(line)), ""
    )
    devices = {int(number): device for number, device, _ in _DEVICE.findall(listed)}
    devices = devices or {int(number): device for line in text for number, device in _HCA.findall(line)}
    interfaces = tuple(_INTERFACE.findall("".join(_first(_SOCKET, text))))
    named = [match[1] for line in text if (match := _NETWORK.search(line))]
    ways = _ways(text)
    provider = "".join(_first(_PROVIDER, text))
    return NcclLog(
        library=library,
        version=version,
        network=_network(named, ways, devices, interfaces) if named or not provider else "Libfabric",
        devices=devices,
        interfaces=interfaces,
        ways=ways,
        reason=next((words for known, words in REASONS if any(re.search(known, line) for line in text)), ""),
        provider=provider,
        no_direct=any(map(_NO_DIRECT.search, text)),
    )


def _first(words: re.Pattern[str], text: Sequence[str]) -> tuple[str, ...]:
    """Return the groups of the first line that matches; empty if no line does."""
    return next((match.groups() for line in text if (match := words.search(line))), ())


def _ways(text: Sequence[str]) -> Ways:
    """Return the transport for each pair of ranks (from, to), as the sender logged it, else as the receiver did."""
    ways, told_by = Ways(), Ways()
    for line in text:
        if way := _WAY.search(line.strip()):
            pair, end = (int(way["from"]), int(way["to"])), way["end"] or ""
            if pair not in ways or (told_by[pair] == "receive" and end == "send"):
                via = "SHM" if way["via"] == "direct shared memory" else way["via"]
                ways[pair], told_by[pair] = "/".join(filter(None, (via, way["rest"]))), end
    return ways


def _network(
    named: Sequence[str], ways: Mapping[tuple[int, int], str], devices: Mapping[int, str], interfaces: Sequence[str]
) -> str:
    """Return the network between hosts, by its name, else by the transports, else by the devices or interfaces.

    NCCL before 2.5 logs only the devices and interfaces.
    """
    if named:
        return SOCKET if SOCKET in named else named[0]
    over = [match[1] for way in ways.values() if (match := _OVER.match(way))]
    if over:
        return SOCKET if SOCKET in over else over[0]
    return "IB" if devices else SOCKET if interfaces else ""


def summary(log: NcclLog) -> str:
    """Return a summary: `NCCL 2.21.5 by IB (mlx5_0, mlx5_1) with GPUDirect; in a host P2P`."""
    by = f" by {log.network}" if log.network else ""
    used = sorted({log.device_of(pair) for pair in log.between} - {""}) or list(log.interfaces if log.sockets else ())
    words = [f"{log.library or 'NCCL'} {log.version}".strip() + by + (f" ({', '.join(used)})" if used else "")]
    if log.direct is not None:
        words[0] += f" {'with' if log.direct else 'without'} GPUDirect"
    inside = sorted({way.partition("/")[0] for way in log.ways.values() if not way.startswith(NET)})
    words += [f"in a host {' and '.join(inside)}"] if inside else []
    return "; ".join(words)
