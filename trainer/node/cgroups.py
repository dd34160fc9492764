"""The control groups of a process, in both cgroup versions, where its limits are found. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def cgroup_folders(process: int | str, kind: str, root: Path = Path("/")) -> Iterator[Path]:
    """The folder of a process's cgroup for `kind` (cpu, memory), and those above it.

    `root` contains /proc and /sys. In a container its own cgroup is at the top, and the path may be the host's.
    """
    with suppress(OSError, ValueError):
        for line in (root / f"proc/{process}/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds and kind not in kinds.split(","):
                continue
            top = root / "sys/fs/cgroup" / (kind if kinds else "")
            folder = top / path.lstrip("/")
            while folder != top and top in folder.parents:
                yield folder
                folder = folder.parent
            yield top
