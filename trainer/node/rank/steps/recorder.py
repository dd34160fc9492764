"""The last collectives of a process that makes no step, from torch's flight recorder; they let ranks be compared.

torch has the recorder for gloo from 2.13 on, and for NCCL if TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE) is
set. It returns its entries as a pickle, which this process makes and reads itself; no other process ever reads one.
"""

from __future__ import annotations

import json
import pickle
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from .. import own_code

# A dump blocks the interpreter for 30 ms. So it is made only once, when a step takes this many seconds longer than
# usual. The number of the last collective is asked for at each look, which takes 0.1 ms.
UNUSUAL_SECONDS, _STEPS = 2.0, 20
_GROUPS, _ROWS_PER_GROUP = 8, 8
Row = tuple[str, int, str, str, str, int, str]
# A call: its file, line and function.
Frame = tuple[str, int, str]


class Recorder:
    """The last collectives of one process. Each look of the watcher asks for them."""

    def __init__(self) -> None:
        self._usual = deque([0.0], maxlen=_STEPS)
        self._step, self._since, self._last = -1, 0.0, ""
        self._rows: list[Row] = []

    def look(self, step: int, since_s: float) -> list[Row]:
        """The last collectives of each group, if none was added and no step was made for unusually long; else empty.

        A row: the group, the collective's number in it, its name, its size, and the script's file, line and function.
        """
        if step != self._step:
            if self._step > 0:  # before the first step, all was start-up
                self._usual.append(self._since)
            self._step = step
        self._since, before, self._last = since_s, self._last, _last()
        if since_s < max(self._usual) + UNUSUAL_SECONDS or self._last != before:
            self._rows = []
        elif self._last and not self._rows:
            self._rows = self.now()
        return self._rows

    def now(self) -> list[Row]:
        """The last collectives now, however long the step takes; called once by a process that fails."""
        with suppress(Exception):
            calls = rows([entry for dump in _dumps() for entry in pickle.loads(dump)["entries"]])
            return calls if not calls or calls[-1][4] else [*calls[:-1], (*calls[-1][:4], *(_raised() or _here()))]
        return []


def rows(entries: list[Mapping[str, Any]]) -> list[Row]:
    """The last entries of the groups used last, the latest group last; without messages between two ranks."""
    groups: dict[str, list[Row]] = {}
    for entry in entries:
        number = int(entry["collective_seq_id"])
        if entry.get("is_p2p"):
            continue
        name = str(entry["process_group"][0])
        known = groups.pop(name, [])
        if known and known[-1][1] >= number:  # a new group of the same name was formed
            known = []
        size = _size(entry)
        what = str(entry["profiling_name"]).rpartition(":")[2]
        frames = ((str(of["filename"]), int(of["line"]), str(of["name"])) for of in entry.get("frames") or ())
        row = (name[:40], number, what[:40], size[:40], *_place(frames))
        groups[name] = [*known[-_ROWS_PER_GROUP + 1 :], row]
    return [row for group in list(groups.values())[-_GROUPS:] for row in group]


def _size(entry: Mapping[str, Any]) -> str:
    """The sizes of a rank's inputs, with the types other than torch's default one: `5x3+1`, `3 Double`."""
    sizes, types = entry.get("input_sizes") or (), [str(kind) for kind in entry.get("input_dtypes") or ()]
    types += ["Float"] * (len(sizes) - len(types))
    parts = zip(sizes, types, strict=False)
    return "+".join(("x".join(map(str, of)) or "1") + f" {kind}" * (kind != "Float") for of, kind in parts)


def _place(frames: Iterable[Frame]) -> Frame:
    """The innermost call in the script's own code. On a GPU, `backward` calls from a thread that has no such call."""
    own = ((file[-300:], line, name[:100]) for file, line, name in frames if own_code.is_own(file))
    return next(own, ("", 0, ""))


def _last() -> str:
    """The number of each group's last collective; empty if nothing is recorded."""
    with suppress(Exception):
        dumps = [pickle.loads(dump(False, False, False)).get("pg_status", {}) for dump in _of_torch()]
        groups = {name: status.get("last_enqueued_collective") for entry in dumps for name, status in entry.items()}
        return json.dumps(groups) if groups else ""
    return ""


def _dumps() -> list[bytes]:
    """The recorders' pickles, with Python lines only if torch._inductor has already been imported.

    torch imports that package to find the lines. The main thread may import it too, with its first optimizer. If two
    threads import the same packages, each may see a partly imported one, and one fails with an ImportError.
    """
    lines = "_inductor" in vars(sys.modules["torch"])
    return [dump(True, lines, False) for dump in _of_torch()]


def _raised() -> Frame | None:
    """The script's line whose collective raised the error that ends this process; None if no collective did."""
    raised, place, in_torch = getattr(sys, "last_traceback", None), None, False
    while raised:
        code = raised.tb_frame.f_code
        own = _place([(code.co_filename, raised.tb_lineno, code.co_name)])
        place, in_torch = own if own[0] else place, "torch/distributed/" in code.co_filename
        raised = raised.tb_next
    return place if in_torch else None


def _here() -> Frame:
    """The script's line that the main thread is in, if that thread waits in a library."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    frames = list[Frame]()
    while frame:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    waits = bool(frames) and own_code.is_of_library(frames[0][0])
    return _place(frames) if waits else ("", 0, "")


def _of_torch() -> list[Any]:
    distributed = sys.modules.get("torch.distributed")
    if not (distributed and distributed.is_available() and distributed.is_initialized()):
        return []
    native = sys.modules["torch"]._C._distributed_c10d
    functions = (getattr(native, name, None) for name in ("_dump_fr_trace", "_dump_nccl_trace"))
    return [dump for dump in functions if dump]
