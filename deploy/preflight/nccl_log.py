"""What NCCL says of itself with NCCL_DEBUG=INFO: its network, the way between each two ranks, GPUDirect. Pure.

The wording changes from version to version; the lines here are those of NCCL 2.2 to 2.28, of its plugins, and of RCCL
(tests/unit/preflight/nccl_logs.txt and public_logs.txt have excerpts, with their sources). Everything that is not
known is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# By ranks (from, to), the transport: `P2P/IPC`, `SHM/direct`, `NET/IB/0/GDRDMA`.
Ways = dict[tuple[int, int], str]
NET = "NET"
SOCKET = "Socket"
# A host may send what it likes, and the patterns need the square of a line's length.
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
# NCCL before 2.4 wrote `internal Network`; `internal network plugin` of today names no network.
_NETWORK = re.compile(r"Using (?:network|internal Network) (\S+(?: Libfabric)?)")
_OVER = re.compile(r"NET/([^/]+)/\d")
_PROVIDER = re.compile(r"NET/OFI Selected Provider is ([\w;.-]+)")
# Why no RDMA: words of the log, and what they mean. The first one that is in the log is the reason.
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
    """What a log says.

    network: what NCCL uses between hosts: `IB`, `Socket`, a plugin's name, empty if the log does not say it. devices:
    by index, the RDMA devices that it uses. provider: what libfabric drives below its plugin. no_direct: a device
    cannot reach the GPUs' memory.
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
        """The ways that leave a host."""
        return {pair: way for pair, way in self.ways.items() if way.startswith(NET)}

    @property
    def sockets(self) -> bool:
        """Whether ranks of different hosts talk by sockets; libfabric's plugin may do so under its own name."""
        if self.provider.startswith(("tcp", "sockets")):
            return True
        ways = self.between.values()
        return any(way.startswith("NET/Socket") for way in ways) if ways else self.network == SOCKET

    @property
    def direct(self) -> bool | None:
        """Whether the network reaches the GPUs' memory (GPUDirect RDMA) on every way; None if nothing shows it.

        A way that was taken says more than what a device can do.
        """
        ways = [way for way in self.between.values() if not way.startswith("NET/Socket")]
        return all("GDRDMA" in way for way in ways) if ways else False if self.no_direct else None

    def device_of(self, pair: tuple[int, int]) -> str:
        """The RDMA device of a way, as NCCL_IB_HCA calls it; empty if it has none."""
        number = re.match(r"NET/(?!Socket)[^/]+/(\d+)", self.ways.get(pair, ""))
        return self.devices.get(int(number[1]), "") if number else ""


def read(lines: Iterable[str]) -> NcclLog:
    """A log of one rank, or of several: what the first line of each kind says; of a way, what its sender says.

    Where one rank says that it uses sockets, the network is sockets.
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
    """The groups of the first line that has the words; empty if none has."""
    return next((match.groups() for line in text if (match := words.search(line))), ())


def _ways(text: Sequence[str]) -> Ways:
    """By ranks (from, to), the transport, as the sender says it; as the receiver does if the sender does not."""
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
    """The network between hosts: by name, else by the ways, else by what NCCL before 2.5 lists alone."""
    if named:
        return SOCKET if SOCKET in named else named[0]
    over = [match[1] for way in ways.values() if (match := _OVER.match(way))]
    if over:
        return SOCKET if SOCKET in over else over[0]
    return "IB" if devices else SOCKET if interfaces else ""


def summary(log: NcclLog) -> str:
    """In words: `NCCL 2.21.5 by IB (mlx5_0, mlx5_1) with GPUDirect; in a host P2P/CUMEM`."""
    by = f" by {log.network}" if log.network else ""
    used = sorted({log.device_of(pair) for pair in log.between} - {""}) or list(log.interfaces if log.sockets else ())
    words = [f"{log.library or 'NCCL'} {log.version}".strip() + by + (f" ({', '.join(used)})" if used else "")]
    if log.direct is not None:
        words[0] += f" {'with' if log.direct else 'without'} GPUDirect"
    inside = sorted({way.partition("/")[0] for way in log.ways.values() if not way.startswith(NET)})
    words += [f"in a host {' and '.join(inside)}"] if inside else []
    return "; ".join(words)
