"""What NCCL says of itself with NCCL_DEBUG=INFO: its network, the way between each two ranks, GPUDirect, NVLS. Pure.

The wording changes from version to version; the lines here are those of NCCL 2.4 to 2.28, of its plugins, and of RCCL
(tests/unit/preflight/nccl_logs.txt has an excerpt of each, with its source). Everything that is not known is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

P2P, SHM, NET = "P2P", "SHM", "NET"
SOCKET = "Socket"
_VERSION = re.compile(r"\b([NR]CCL) version ?:? ?([0-9][\w.+-]*)")
_WAY = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d+)(?:/\d+)? ?: (?P<from>\d+)(?:\[\w+\])? -> (?P<to>\d+)(?:\[\w+\])?"
    r" ?(?:\[(?P<end>send|receive)\])? via (?P<via>P2P|SHM|NET|COLLNET|NVLS)(?:/(?P<rest>[^\s].*?))?(?: comm .*)?$"
)
_DEVICE = re.compile(r"\[(\d+)\]([\w.-]+):\d+/(IB|RoCE)")
_SOCKET = re.compile(r"NET/(?:Socket|FastSocket) : Using (.*)")
_INTERFACE = re.compile(r"\[\d+\]([\w.-]+):")
_NETWORK = re.compile(r"Using network (\S+(?: Libfabric)?)")
# Why no RDMA: words of the log, and what they mean. The first one that is in the log is the reason.
REASONS = (
    (r"NCCL_IB_DISABLE set by environment to 1", "NCCL_IB_DISABLE=1 is set"),
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
    """What a log says. `ways`: by ranks (from, to), the transport: `P2P/IPC`, `SHM/direct`, `NET/IB/0/GDRDMA`.

    network: what NCCL uses between hosts: `IB`, `Socket`, a plugin's name, empty if the log does not say it. devices:
    by index, the RDMA devices that it uses. nvls: whether NVLink multicast is there; None if the log does not say it.
    """

    library: str = ""
    version: str = ""
    network: str = ""
    devices: Mapping[int, str] = field(default_factory=dict, hash=False)
    interfaces: tuple[str, ...] = ()
    ways: Mapping[tuple[int, int], str] = field(default_factory=dict, hash=False)
    nvls: bool | None = None
    reason: str = ""

    @property
    def between(self) -> dict[tuple[int, int], str]:
        """The ways that leave a host."""
        return {pair: way for pair, way in self.ways.items() if way.startswith(NET)}

    @property
    def sockets(self) -> bool:
        """Whether ranks of different hosts talk by sockets."""
        ways = self.between.values()
        return any(way.startswith("NET/Socket") for way in ways) if ways else self.network == SOCKET

    @property
    def direct(self) -> bool | None:
        """Whether the network reaches the GPUs' memory (GPUDirect RDMA) on every way; None if nothing shows it."""
        ways = [way for way in self.between.values() if not way.startswith("NET/Socket")]
        return all("GDRDMA" in way for way in ways) if ways else None

    def device_of(self, pair: tuple[int, int]) -> str:
        """The RDMA device of a way, as NCCL_IB_HCA calls it; empty if it has none."""
        number = re.match(r"NET/(?!Socket)[^/]+/(\d+)", self.ways.get(pair, ""))
        return self.devices.get(int(number[1]), "") if number else ""


def read(lines: Iterable[str]) -> NcclLog:
    """A log of one rank, or of several: what the first line of each kind says; of a way, what its sender says."""
    text = list(lines)
    library, version, network = "", "", ""
    devices, interfaces, nvls = dict[int, str](), tuple[str, ...](), None
    ways, told_by = dict[tuple[int, int], str](), dict[tuple[int, int], str]()
    for line in text:
        if not version and (named := _VERSION.search(line)):
            library, version = named[1], named[2]
        if not network and (named := _NETWORK.search(line)):
            network = named[1]
        if not devices and "Using [0]" in line:
            devices = {int(number): device for number, device, _ in _DEVICE.findall(line)}
        if not interfaces and (named := _SOCKET.search(line)):
            interfaces = tuple(_INTERFACE.findall(named[1]))
        if "NVLS multicast support is" in line:
            nvls = "is not" not in line and nvls is not False
        if way := _WAY.search(line.strip()):
            pair, end = (int(way["from"]), int(way["to"])), way["end"] or ""
            if pair not in ways or (told_by[pair] == "receive" and end == "send"):
                ways[pair], told_by[pair] = "/".join(filter(None, (way["via"], way["rest"]))), end
    if not network:
        out = [way for way in ways.values() if way.startswith(NET)]
        rdma = any(way.startswith("NET/IB") for way in out)
        network = "IB" if rdma or (devices and not out) else SOCKET if interfaces and not devices else ""
    reason = next((words for known, words in REASONS if any(re.search(known, line) for line in text)), "")
    return NcclLog(library, version, network, devices, interfaces, ways, nvls, reason)


def summary(log: NcclLog) -> str:
    """In words: `NCCL 2.21.5 by IB (mlx5_0, mlx5_1) with GPUDirect; in a host P2P/CUMEM; NVLS`."""
    by = f" by {log.network}" if log.network else ""
    used = sorted({log.device_of(pair) for pair in log.between} - {""}) or list(log.interfaces if log.sockets else ())
    words = [f"{log.library or 'NCCL'} {log.version}".strip() + by + (f" ({', '.join(used)})" if used else "")]
    if log.direct is not None:
        words[0] += f" {'with' if log.direct else 'without'} GPUDirect"
    inside = sorted({way.partition("/")[0] for way in log.ways.values() if not way.startswith(NET)})
    words += [f"in a host {' and '.join(inside)}"] if inside else []
    words += ["NVLS"] if log.nvls else []
    return "; ".join(words)
