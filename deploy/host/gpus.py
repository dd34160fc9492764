"""A host's GPUs and the processes that hold them, as frozen values, and the reader of nvidia-smi's answers. Pure.

hosts/status.py asks (`commands.gpus`, and `commands.status` for the GPUs alone). An unknown state is a fault, and never
counts as "no GPU" or "free".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..core.names import container_id, container_name, run_id

# A cgroup v1 ends in /docker/<id>, v2 in docker-<id>.scope; other engines on containerd also have the id.
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_MOST_TEXT, _DIGITS = 500, re.compile(r"[0-9]{1,9}")
# A driver's own memory on an idle GPU is well below this.
UNSEEN_MIB = 1024


@dataclass(frozen=True)
class Holder:
    """A process that computes on a GPU. `container`: its name, or only its short id. `run`: the id of Muster's run.

    An empty field is unknown.
    """

    pid: int
    memory_mib: int | None
    process: str
    user: str = ""
    container: str = ""
    run: str = ""


@dataclass(frozen=True)
class GpuUse:
    """The present use of one GPU: memory in MiB, `busy` in percent; None if the driver does not say."""

    index: int
    uuid: str
    name: str
    used_mib: int | None
    total_mib: int | None
    busy: int | None
    holders: tuple[Holder, ...] = ()

    @property
    def unseen(self) -> bool:
        """Whether a process that the host does not show us holds memory: one in a virtual machine, say."""
        return not self.holders and (self.used_mib or 0) > UNSEEN_MIB


@dataclass(frozen=True)
class Gpus:
    """A host's GPUs. `fault` says why the list may be incomplete; without GPU and fault, the host has none."""

    gpus: tuple[GpuUse, ...] = ()
    fault: str = ""


def parse(lines: Iterable[str]) -> Gpus:
    """Read the answer to `commands.gpus`; lines with other words are skipped.

    Raises BadAnswer for an invalid container name or run id.
    """
    rows: dict[str, list[str]] = {}
    for line in lines:
        word, _, value = line.partition(" ")
        rows.setdefault(word, []).append(value.strip())
    read = [(row, parse_gpu(row)) for row in rows.get("gpu", ())]
    unreadable = [row for row, gpu in read if gpu is None and row]
    containers = dict(_container_row(row) for row in rows.get("container", ()) if row)
    users = {pid: _user(rest)[:100] for pid, rest in _pairs(rows.get("user", ()))}
    cgroups = dict(_pairs(rows.get("cgroup", ())))
    holders: dict[str, list[Holder]] = {}
    for row in rows.get("app", ()):
        uuid, holder = parse_app(row)
        if holder is None:
            unreadable += [row] if row else []
            continue
        container, run = _container(cgroups.get(str(holder.pid), ""), containers)
        holders.setdefault(uuid, []).append(
            replace(holder, user=users.get(str(holder.pid), ""), container=container, run=run)
        )
    gpus = tuple(replace(gpu, holders=tuple(holders.get(gpu.uuid, ()))) for _, gpu in read if gpu)
    return Gpus(gpus, _fault(rows, unreadable))


def parse_gpu(row: str) -> GpuUse | None:
    """Read `0, GPU-5d5b..., 412, 81559, 97, NVIDIA H100 80GB HBM3`; None for any other line."""
    cells = [cell.strip() for cell in row.split(",", 5)]
    if len(cells) != 6 or not _DIGITS.fullmatch(cells[0]) or not cells[1].startswith("GPU-"):
        return None
    used, total, busy = (_number(cell) for cell in cells[2:5])
    return GpuUse(int(cells[0]), cells[1][:100], cells[5][:100], used, total, busy)


def parse_app(row: str) -> tuple[str, Holder | None]:
    """Read `GPU-5d5b..., 4711, 61230, python`: the GPU and its holder; None for any other line.

    The process name may hold commas.
    """
    cells = [cell.strip() for cell in row.split(",", 3)]
    if len(cells) != 4 or not _DIGITS.fullmatch(cells[1]):
        return "", None
    return cells[0][:100], Holder(int(cells[1]), _number(cells[2]), cells[3][:_MOST_TEXT])


def _fault(rows: dict[str, list[str]], unreadable: list[str]) -> str:
    """Why the answer may be incomplete: an exit code, an unknown line, a question without an answer."""
    code = rows.get("gpu-code", [""])[0][:10]
    message = next((rows[word][0] for word in ("gpu-error", "app-error") if word in rows), "")
    words = (" ".join(unreadable) or message)[:_MOST_TEXT]
    if code == "124":
        return "nvidia-smi does not answer: the driver hangs"
    if code and code != "0":
        return f"nvidia-smi ended with code {code}: {words or 'no output'}"
    if "app-error" in rows:
        return f"nvidia-smi does not say who computes: {words}" if words else "nvidia-smi does not say who computes"
    return f"nvidia-smi said: {words}" if unreadable else words


def _container(cgroup: str, names: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    ids = _CONTAINER.findall(cgroup)
    if not ids:
        return "", ""
    # If an engine runs inside a container, the outer container's id is in the path as well.
    innermost = next((container for container in ids if container in names), ids[-1])
    return names.get(innermost, (innermost[:12], ""))


def _container_row(row: str) -> tuple[str, tuple[str, str]]:
    """Read `id name run` of a container; only Muster's containers have a run."""
    id_text, _, rest = row.partition(" ")
    name, _, run = rest.partition(" ")
    # Old links between containers add more names after commas.
    container = container_name(name.partition(",")[0])
    return container_id(id_text), (container, run_id(run, "the label muster.run") if run else "")


def _user(text: str) -> str:
    """Read `alice 1001`. A container's user often does not exist on the host, and has only a number."""
    name, _, number = text.partition(" ")
    return f"uid {number}" if name == "UNKNOWN" else name


def _pairs(rows: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, value) for row in rows for key, _, value in (row.partition(" "),)]


def _number(cell: str) -> int | None:
    """None for [N/A], [Not Supported], [Insufficient Permissions]."""
    return int(cell) if _DIGITS.fullmatch(cell) else None
