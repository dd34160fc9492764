"""A host's GPUs and who holds them, as frozen values, and the reader of what nvidia-smi and the host say. Pure.

hosts/status.py asks (`look_commands.holders`; status asks the same of the GPUs alone). What cannot be told is said as a
fault and never taken for "no GPU" or "free".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..core.names import container_id, container_name, run_id

# cgroup v1 ends in /docker/<id>, v2 in docker-<id>.scope; other engines on containerd have the id as well.
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_MOST_SAID, _DIGITS = 500, re.compile(r"[0-9]{1,9}")
# What a driver keeps for itself on an idle GPU stays well below this.
UNSEEN_MIB = 1024


@dataclass(frozen=True)
class Holder:
    """A process that computes on a GPU. Empty: not known; `container` is its name, or its short id where that is all.

    `run` is Muster's, when the container is of one.
    """

    pid: int
    memory_mib: int | None
    process: str
    user: str = ""
    container: str = ""
    run: str = ""


@dataclass(frozen=True)
class GpuUse:
    """One GPU now: memory in MiB, `busy` percent of the last moment; None where the driver does not tell."""

    index: int
    uuid: str
    name: str
    used_mib: int | None
    total_mib: int | None
    busy: int | None
    holders: tuple[Holder, ...] = ()

    @property
    def unseen(self) -> bool:
        """Whether somebody whom the host does not show to us holds memory: a process of a virtual machine, say."""
        return not self.holders and (self.used_mib or 0) > UNSEEN_MIB


@dataclass(frozen=True)
class Gpus:
    """What a host said of its GPUs; `fault` says why that is not all, or nothing. No GPU and no fault: it has none."""

    gpus: tuple[GpuUse, ...] = ()
    fault: str = ""


def parse(lines: Iterable[str]) -> Gpus:
    """Read the lines of `look_commands.holders`; lines with other words are passed over.

    Raises BadAnswer for a container whose names nothing may be called by.
    """
    rows: dict[str, list[str]] = {}
    for line in lines:
        word, _, value = line.partition(" ")
        rows.setdefault(word, []).append(value.strip())
    read = [(row, parse_gpu(row)) for row in rows.get("gpu", ())]
    strange = [row for row, gpu in read if gpu is None and row]
    names = dict(_named(row) for row in rows.get("container", ()) if row)
    users = {pid: _user(rest)[:100] for pid, rest in _pairs(rows.get("user", ()))}
    inside = dict(_pairs(rows.get("cgroup", ())))
    found: dict[str, list[Holder]] = {}
    for row in rows.get("app", ()):
        uuid, holder = parse_app(row)
        if holder is None:
            strange += [row] if row else []
            continue
        container, run = _container(inside.get(str(holder.pid), ""), names)
        found.setdefault(uuid, []).append(
            replace(holder, user=users.get(str(holder.pid), ""), container=container, run=run)
        )
    gpus = tuple(replace(gpu, holders=tuple(found.get(gpu.uuid, ()))) for _, gpu in read if gpu)
    return Gpus(gpus, _fault(rows, strange))


def parse_gpu(row: str) -> GpuUse | None:
    """`0, GPU-5d5b..., 412, 81559, 97, NVIDIA H100 80GB HBM3`; None for anything else."""
    cells = [cell.strip() for cell in row.split(",", 5)]
    if len(cells) != 6 or not _DIGITS.fullmatch(cells[0]) or not cells[1].startswith("GPU-"):
        return None
    used, total, busy = (_number(cell) for cell in cells[2:5])
    return GpuUse(int(cells[0]), cells[1][:100], cells[5][:100], used, total, busy)


def parse_app(row: str) -> tuple[str, Holder | None]:
    """`GPU-5d5b..., 4711, 61230, python`: the GPU and who holds it; None for anything else. A name may hold commas."""
    cells = [cell.strip() for cell in row.split(",", 3)]
    if len(cells) != 4 or not _DIGITS.fullmatch(cells[1]):
        return "", None
    return cells[0][:100], Holder(int(cells[1]), _number(cells[2]), cells[3][:_MOST_SAID])


def _fault(rows: dict[str, list[str]], strange: list[str]) -> str:
    """Why the answer is not whole: a code, a line that is none of ours, a question that was not answered."""
    code = rows.get("gpu-code", [""])[0][:10]
    told = next((rows[word][0] for word in ("gpu-said", "app-said") if word in rows), "")
    said = (" ".join(strange) or told)[:_MOST_SAID]
    if code == "124":
        return "nvidia-smi does not answer: the driver hangs"
    if code and code != "0":
        return f"nvidia-smi ended with code {code}: {said or 'it said nothing'}"
    if "app-said" in rows:
        return f"nvidia-smi does not tell who computes: {said}" if said else "nvidia-smi does not tell who computes"
    return f"nvidia-smi said: {said}" if strange else said


def _container(cgroup: str, names: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    ids = _CONTAINER.findall(cgroup)
    if not ids:
        return "", ""
    # Where engines run inside containers, the outer one's id stands there as well.
    known = next((one for one in ids if one in names), ids[-1])
    return names.get(known, (known[:12], ""))


def _named(row: str) -> tuple[str, tuple[str, str]]:
    """`id name run` of a container, the run only where it is one of Muster's."""
    number, _, rest = row.partition(" ")
    name, _, run = rest.partition(" ")
    # Old links between containers give one more names, behind commas.
    named = container_name(name.partition(",")[0])
    return container_id(number), (named, run_id(run, "the label muster.run") if run else "")


def _user(text: str) -> str:
    """`alice 1001`; a user of a container is often none of the host's, and has a number alone."""
    name, _, number = text.partition(" ")
    return f"uid {number}" if name == "UNKNOWN" else name


def _pairs(rows: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, value) for row in rows for key, _, value in (row.partition(" "),)]


def _number(cell: str) -> int | None:
    """None for [N/A], [Not Supported], [Insufficient Permissions]."""
    return int(cell) if _DIGITS.fullmatch(cell) else None
