"""A host's GPUs except those that fail, and who holds each (process, claim, container); or nvidia-smi's fault. Pure.

hosts/look/status.py asks for them (`commands.gpus`; `commands.status` for the GPUs alone). An unknown state is a fault,
and never counts as "no GPU" or "free".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ..core import fields
from ..core.errors import TIMED_OUT, BadAnswer
from ..core.fields import array, default, digits, document, flag, record, text, tree, words
from ..core.names import container_id, container_name, run_id

# A cgroup v1 path ends in /docker/<id>, v2 in docker-<id>.scope; other engines based on containerd also use the id.
_CONTAINER = re.compile(r"[0-9a-f]{64}")
# What nvidia-smi prints instead of a number if a GPU cannot compute. If only the number is missing, it prints [N/A].
_BROKEN = re.compile(r"GPU is lost|GPU requires re(?:set|start)")
# A GPU works without its infoROM: this is no fault, although nvidia-smi then ends with code 14.
_INFOROM = "WARNING: infoROM is corrupted"
_MOST_TEXT, _DIGITS, UUID = 500, re.compile(r"[0-9]{1,9}"), re.compile(r"GPU-[0-9A-Za-z-]{1,96}")
# On an idle GPU, the driver itself uses much less memory than this.
UNSEEN_MIB = 1024
_MOST_GPUS, _MOST_LINE, _MOST_LINES = 1024, 1 << 16, 20_000
_UUIDS = array(text(100, r"[!-~]*"), _MOST_GPUS)
_LABEL = default(words(1000), "")
_GIVEN = fields.row(
    text(1000), text(20), _LABEL, _LABEL, default(text(1 << 17), ""),
    default(array(tree(4), 100), []), default(text(64), ""),
)  # fmt: skip
# What a claim's owner is doing: a command deploys; a node rests, waits, holds the GPUs that it waited for, or runs.
DEPLOYS, RESTS, WAITS, HOLDS, RUNS = "deploys", "rests", "waits", "holds", "runs"
_OWNER = text(100, r"[!-~]+")
_CLAIM = record(
    {
        "token": text(64, "[0-9a-f]+"),
        "run": text(200),
        "user": text(100),
        "control": text(300),
        "gpus": _UUIDS,
        "waits": flag,
        "whole": flag,
    },
    {"state": text(20, "deploys|rests|waits|holds|runs"), "why": words(300)},
)


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
    """The current use of one GPU: memory in MiB, `busy` in percent; None if the driver does not report it.

    `given`: the runs and deploys that have it, in words, whether or not they compute on it yet.
    """

    index: int
    uuid: str
    name: str
    used_mib: int | None
    total_mib: int | None
    busy: int | None
    holders: tuple[Holder, ...] = ()
    given: tuple[str, ...] = ()

    @property
    def unseen(self) -> bool:
        """Whether a process that the host does not show holds memory: for example, one in a virtual machine."""
        return not self.holders and (self.used_mib or 0) > UNSEEN_MIB


@dataclass(frozen=True)
class Claim:
    """A deploy or a node that has GPUs of this machine, or waits for some (`waits`), as its process there reports.

    `number` grows in the order of the claims: it is the time at which the run's wait began, in nanoseconds. `whole`: it
    wants a machine without GPUs, and no other run there. `state`: one of the words above. `why`: for whom or what it
    waits.
    """

    number: int
    token: str
    run: str
    user: str
    control: str
    gpus: tuple[str, ...]
    waits: bool
    whole: bool
    state: str = DEPLOYS
    why: str = ""

    @property
    def shown(self) -> str:
        """For people: `the deploy of train.py (alice@laptop)`, `run r1 (alice)`."""
        if self.state != DEPLOYS:
            return f"run {self.run} ({self.user})"
        return f"the deploy of {self.run} ({self.user}@{self.control})"


@dataclass(frozen=True)
class Gpus:
    """A host's GPUs. `fault`: why the list may be incomplete; with neither GPUs nor a fault, the host has no GPU.

    `runs`: the runs with a living container there, in words. `claims`: sorted by their numbers.
    """

    gpus: tuple[GpuUse, ...] = ()
    fault: str = ""
    runs: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()


def parse(lines: Iterable[str]) -> Gpus:
    """Read the answer to `commands.gpus`; lines that begin with other words are skipped.

    Raises BadAnswer for an invalid container name or run id, and for lines longer or more numerous than ours can be.
    """
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        if len(line) > _MOST_LINE or number == _MOST_LINES:
            expected = f"at most {_MOST_LINES} lines of {_MOST_LINE} characters"
            raise BadAnswer("an answer about GPUs", expected, line[:_MOST_TEXT])
        word, _, value = line.partition(" ")
        if value.startswith(_INFOROM):
            continue
        rows.setdefault(word, []).append(value.strip())
    read = [(row, parse_gpu(row)) for row in rows.get("gpu", ())]
    unreadable = [row for row, gpu in read if gpu is None and row]
    containers = dict(_container_row(row) for row in rows.get("container", ()) if row)
    users, cgroups = (dict(row.partition(" ")[::2] for row in rows.get(word, ())) for word in ("user", "cgroup"))
    holders: dict[str, list[Holder]] = {}
    for row in rows.get("app", ()):
        uuid, holder = parse_app(row)
        if holder is None:
            unreadable += [row] if row else []
            continue
        container, run = _container(cgroups.get(str(holder.pid), ""), containers)
        holders.setdefault(uuid, []).append(
            replace(holder, user=_user(users.get(str(holder.pid), ""))[:100], container=container, run=run)
        )
    claims = parse_claims(rows.get("claim", ()))
    # The claim of a node that waits, or has waited, tells what it has; its container may have been given every GPU.
    known = {claim.token for claim in claims}
    given = [row for row in map(_given, rows.get("given", ())) if not row[3] or row[3] not in known]
    having = [claim for claim in claims if claim.state in (DEPLOYS, HOLDS, RUNS)]
    have = [*(row[:2] for row in given), *((claim.shown, claim.gpus) for claim in having)]
    gpus = tuple(
        replace(
            gpu,
            holders=tuple(holders.get(gpu.uuid, ())),
            given=tuple(dict.fromkeys(who for who, own in have if {gpu.uuid, str(gpu.index), "all"} & {*own})),
        )
        for _, gpu in read
        if gpu
    )
    runs = [name for name, _, is_run, _ in given if is_run]
    runs += [claim.shown for claim in claims if claim.state == RUNS]
    return Gpus(gpus, _fault(rows, unreadable), tuple(dict.fromkeys(runs)), claims)


def parse_gpu(row: str) -> GpuUse | None:
    """Read `0, GPU-5d5b..., 412, 81559, 97, NVIDIA H100 80GB HBM3`; None for another line, or for a GPU that fails."""
    cells = [cell.strip() for cell in row.split(",", 5)]
    if len(cells) != 6 or not _DIGITS.fullmatch(cells[0]) or not UUID.fullmatch(cells[1]):
        return None
    if _BROKEN.search(row) or "Unknown Error" in cells[2]:
        return None
    used, total, busy = (_number(cell) for cell in cells[2:5])
    return GpuUse(int(cells[0]), cells[1], cells[5][:100], used, total, busy)


def parse_app(row: str) -> tuple[str, Holder | None]:
    """Read `GPU-5d5b..., 4711, 61230, python`: the GPU and its holder; None for any other line.

    The process name may contain commas.
    """
    cells = [cell.strip() for cell in row.split(",", 3)]
    if len(cells) != 4 or not _DIGITS.fullmatch(cells[1]):
        return "", None
    return cells[0][:100], Holder(int(cells[1]), _number(cells[2]), cells[3][:_MOST_TEXT])


def parse_claims(rows: Iterable[str]) -> tuple[Claim, ...]:
    """Read the values of `claim` lines: number, token, owner and a JSON object. Skips lines that no Muster writes.

    Any user of the machine may write claims; the owner of the file tells whose claim it is.
    """
    claims = []
    for line in rows:
        number, token, owner, entry = (line.split(" ", 3) + [""] * 3)[:4]
        with suppress(BadAnswer):
            about = _CLAIM(document(entry, "a claim"), "a claim")
            user = _OWNER(owner, "the owner of a claim").replace("uid:", "uid ")
            about |= {"gpus": tuple(about["gpus"]), "user": user}
            if about["token"] == token:
                claims.append(Claim(digits()(number[:19], "a claim's number"), **about))
    return tuple(sorted(claims, key=lambda claim: (claim.number, claim.token)))


def _given(line: str) -> tuple[str, tuple[str, ...], bool, str]:
    """Read a living container: its words, its GPUs, whether it is a node of a run, and its claim's token.

    The token is empty unless the node began with a wait. "all" stands for all GPUs. A container that is not Muster's
    counts only if it lists its GPUs: monitoring tools get all GPUs and compute on none.
    """
    name, state, run, user, label, requests, waits = _GIVEN(document(line, "a container"), "a container")
    asked = [request for request in requests if isinstance(request, dict)]
    named = [ids for request in asked if isinstance(ids := request.get("DeviceIDs"), list)]
    # An engine that uses CDI writes them as `nvidia.com/gpu=0`.
    gpus = tuple(uuid.removeprefix("nvidia.com/gpu=") for ids in named for uuid in ids if isinstance(uuid, str))
    if not run:
        own = gpus if state != "created" and "all" not in gpus else ()
        return f"container {name.removeprefix('/')}", own, False, ""
    everything = ("all",) if any(request.get("Count") for request in asked) else ()
    name = f"run {run}" + (f" ({user})" if user else "")
    return name, tuple(label.split(",")) if label else gpus or everything, True, waits


def _fault(rows: dict[str, list[str]], unreadable: list[str]) -> str:
    """Why the answer may be incomplete: an exit code, an unknown line, a question without an answer."""
    code = fields.first(rows, "gpu-code")[:10]
    message = next((rows[word][0] for word in ("gpu-error", "app-error") if word in rows), "")
    words = (" ".join(unreadable) or message)[:_MOST_TEXT]
    if code == str(TIMED_OUT):
        return "nvidia-smi does not answer: the driver hangs, or its persistence mode is off"
    if code not in ("", "0", "14"):
        return f"nvidia-smi ended with code {code}: {words or 'no output'}"
    if "given-error" in rows:
        return f"the engine does not say who holds these GPUs: {rows['given-error'][0][:_MOST_TEXT]}"
    if "app-error" in rows:
        return f"nvidia-smi does not say which processes compute: {words or 'no output'}"
    return f"nvidia-smi printed: {words}" if unreadable else words


def _container(cgroup: str, names: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    ids = _CONTAINER.findall(cgroup)
    if not ids:
        return "", ""
    # If the engine runs inside a container, the path also has the outer container's id.
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
    """Read `alice 1001`. A container's user often does not exist on the host, and then has only a number."""
    name, _, number = text.partition(" ")
    return f"uid {number}" if name == "UNKNOWN" else name


def _number(cell: str) -> int | None:
    """Read a number; None for [N/A], [Not Supported], [Insufficient Permissions]."""
    return int(cell) if _DIGITS.fullmatch(cell) else None
