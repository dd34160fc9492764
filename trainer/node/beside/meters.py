"""What a node uses of its machine, from /proc and /sys: CPU, memory, disk, network. Standard library only.

If a container has a memory limit, it has its own cgroup, and the numbers are the cgroup's; otherwise they are the
machine's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import cgroups

MOST_INTERFACES = 16
# The files of the two cgroup versions: the current use, and the limit.
_MEMORY_FILES = (("memory.current", "memory.max"), ("memory.usage_in_bytes", "memory.limit_in_bytes"))


class Meters:
    """Measures the change since the last call. `root` contains /proc and /sys; training uses `interface`."""

    def __init__(self, run_folder: Path, interface: str = "", root: Path = Path("/")) -> None:
        self._folder, self._interface, self._root = run_folder, interface, root
        self._memory_total = self._meminfo().get("MemTotal", 0)
        self._memory = self._own_memory()
        self._cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._before: tuple[float, float, dict[str, tuple[int, int]]] | None = None

    def read(self, now: float) -> dict[str, Any]:
        """The fields of a line (contract.md) at `now`, in seconds of any clock; rates only from the second call on."""
        busy, traffic = self._busy(), self._traffic()
        fields: dict[str, Any] = {"cores": self._cores, **self._memory_use()}
        with suppress(OSError):
            disk = os.statvfs(self._folder)
            if disk.f_blocks:  # a file system in memory may have no size
                fields["disk_free_bytes"] = disk.f_bavail * disk.f_frsize
        if self._before and now > (then := self._before[0]):
            spent = now - then
            if busy:  # macOS does not report it
                fields["cpu_percent"] = round(
                    min(100.0, max(0.0, (busy - self._before[1]) / spent / self._cores * 100)), 1
                )
            fields["network"] = {
                name: [round(max(0, new - old) / spent) for new, old in zip(counts, self._before[2][name], strict=True)]
                for name, counts in traffic.items()
                if name in self._before[2]
            }
        self._before = (now, busy, traffic)
        return fields

    def _own_memory(self) -> tuple[Path, Path] | None:
        """The files with the bytes that this node's own cgroup uses and may use; None if there is no limit."""
        for folder in cgroups.cgroup_folders("self", "memory", self._root):
            for use, limit in _MEMORY_FILES:
                with suppress(OSError, ValueError):
                    if 0 < int((folder / limit).read_text()) < self._memory_total:
                        return folder / use, folder / limit
        return None

    def _memory_use(self) -> dict[str, int]:
        if self._memory is None:
            now = self._meminfo()
            total = now.get("MemTotal", 0)
            return {"memory_bytes": total - now.get("MemAvailable", 0), "memory_limit_bytes": total} if total else {}
        use, limit = self._memory
        # Cached file pages do not count: the kernel frees them before it kills anything.
        stat = dict(line.split() for line in _text(use.with_name("memory.stat")).splitlines())
        cached = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        return {"memory_bytes": max(0, _number(use) - cached), "memory_limit_bytes": _number(limit)}

    def _meminfo(self) -> dict[str, int]:
        rows = (line.split() for line in _text(self._root / "proc/meminfo").splitlines())
        return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) > 1}

    def _busy(self) -> float:
        """Seconds of processor time so far: the cgroup's, or else the machine's, scaled to this node's cores."""
        if self._memory is not None:
            folder = self._memory[0].parent
            for line in _text(folder / "cpu.stat").splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / 1e6
            inside = folder.relative_to(self._root / "sys/fs/cgroup").parts[1:]
            if used := _number(self._root.joinpath("sys/fs/cgroup/cpuacct", *inside, "cpuacct.usage")):
                return used / 1e9
        fields = [int(word) for word in _text(self._root / "proc/stat").partition("\n")[0].split()[1:9]]
        # The columns: user, nice, system, idle, waiting for I/O, irq, softirq, steal; idle and waiting are not busy.
        ticks = sum(fields) - sum(fields[3:5])
        return ticks / os.sysconf("SC_CLK_TCK") * self._cores / (os.cpu_count() or 1)

    def _traffic(self) -> dict[str, tuple[int, int]]:
        """Bytes received and sent so far, by interface: the training interface, and the machine's physical devices."""
        counters: dict[str, tuple[int, int]] = {}
        devices = self._root / "sys/class/net"
        for line in _text(self._root / "proc/net/dev").splitlines()[2:]:
            name, _, counts = line.strip().partition(":")
            numbers = counts.split()
            if len(numbers) > 8 and (name == self._interface or (devices / name / "device").exists()):
                counters[name] = (int(numbers[0]), int(numbers[8]))
        for port in sorted(self._root.glob("sys/class/infiniband/*/ports/*/counters")):
            with suppress(OSError, ValueError):  # these counters are in units of four bytes
                received, sent = (4 * int((port / f"port_{way}_data").read_text()) for way in ("rcv", "xmit"))
                counters[port.parents[2].name] = (received, sent)
        return dict(sorted(counters.items(), key=lambda item: (item[0] != self._interface, item[0]))[:MOST_INTERFACES])


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
