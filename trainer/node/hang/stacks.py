"""What a rank is doing (a collective, and which; data; a lock), from the stacks that looks.py and faulthandler write.

`read` returns the last looks of a file. `doing` finds in a look what the script's main thread is doing, and at which
line of the script. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.files import MOST_NUMBER, is_number, object_of

from .. import processes
from ..rank import own_code

# How many looks show whether a rank is stuck.
LOOKS = 3
_READ_BYTES = 1 << 20
_MOST_LOOKS = 1000
_MOST_COLLECTIVES = 64
_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]{1,16}).{0,300}\(most recent call first\):")
_FRAME = re.compile(r'  File "(.{0,4096}?)", line (\d{1,9}|\?\?\?) in (.{0,300})')
_MOST_PID, _MOST_WORDS = 1 << 22, 300
_WATCHER = "/trainer/node/rank/"
# What a thread is doing, by the file of a frame in its stack; the frame nearest to the script decides.
_DOING_BY_FILE = (
    ("collective", ("torch/distributed/distributed_c10d.py", "torch/distributed/_functional_collectives.py")),
    ("data", ("torch/utils/data/dataloader.py", "torch/utils/data/_utils/")),
    ("backward", ("torch/autograd/",)),
    ("lock", ("/threading.py", "/queue.py", "multiprocessing/")),
)


@dataclass(frozen=True)
class Frame:
    """One call of a stack; `line` is 0 if it is unknown."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Thread:
    """A thread's calls, the most recent first."""

    number: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Look:
    """All threads at one moment. If the interpreter is `locked`, time and step are unknown, and both are 0.

    `step`: steps in this start of the run; earlier starts made `before` steps. `error`: the exception that ended the
    main thread's work. `thread_error`: the last exception that ended another thread. `rank`: the number in the run of a
    process that trains, else None.
    """

    threads: tuple[Thread, ...]
    main: Thread | None = None
    t: float = 0.0
    pid: int = 0
    step: int = 0
    since_s: float = 0.0
    seen: str = ""
    locked: bool = False
    collectives: tuple[Any, ...] = ()
    before: int = 0
    error: str = ""
    thread_error: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class Doing:
    """What the main thread is doing (`collective`, `data`, `backward`, `lock` or `script`), and the script's own line.

    `op`: the name of the collective that the script called.
    """

    what: str
    own: Frame | None
    inner: Frame | None
    op: str = ""


def read(path: Path, most: int = LOOKS) -> list[Look]:
    """The last looks of a file, the oldest first; none if there is no file."""
    with suppress(OSError):
        return parse(_text(path))[-most:]
    return []


def _text(path: Path) -> str:
    """The end of a file. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _READ_BYTES))
        return file.read(_READ_BYTES).decode(errors="replace")


def read_crash(outcome: Path, local_rank: int) -> Look | None:
    """The threads of a rank when a signal killed it, if they were written; else None."""
    path = outcome / f"{local_rank}.stacks"
    with suppress(OSError):
        text = _text(path)
        if "\nFatal Python error: " in text:
            looks = parse(text)
            return looks[-1] if looks and looks[-1].locked else None
    return None


def last_collectives(outcome: Path, local_rank: int, pid: int) -> tuple[Any, ...]:
    """The last collectives of the process `pid`, which it noted when it ended; none if it did not."""
    looks = read(outcome / f"{local_rank}.stacks", 1)
    return looks[-1].collectives if looks and looks[-1].pid == pid else ()


def newest(outcome: Path, local_rank: int) -> Path:
    """The file of the living process that trains as this rank: a child of the rank's process, or else that process.

    A launcher or a shell script below the agent waits for its children, and is not stuck as long as one of them trains.
    """
    children = {path: path.name.split(".")[1] for path in outcome.glob(f"{local_rank}.*.stacks")}
    living = [path for path, pid in children.items() if pid.isdecimal() and processes.is_alive(int(pid))]
    with suppress(OSError):
        return max(living, key=lambda path: path.stat().st_mtime, default=outcome / f"{local_rank}.stacks")
    return outcome / f"{local_rank}.stacks"


def of_life(path: Path, began: float) -> list[Look]:
    """The looks of a living process since the rank `began` (unix seconds), the oldest first.

    A file that an earlier start of the rank, or a process from before a fork, has left does not count.
    """
    try:
        looks = read(path, _MOST_LOOKS) if path.stat().st_mtime >= began else []
        looks = [look for look in looks if look.pid == looks[-1].pid and (look.locked or look.t >= began)]
    except OSError:
        return []
    return [] if looks and looks[-1].pid and not processes.is_alive(looks[-1].pid) else looks


def parse(text: str) -> list[Look]:
    """The last looks of a text. A look without its beginning is left out; one that is being written may lack calls."""
    blocks = deque[tuple[dict[str, Any] | None, list[str]]](maxlen=_MOST_LOOKS)
    for line in text.splitlines():
        if line.startswith("Look {"):
            blocks.append((object_of(line.removeprefix("Look ")), []))
        elif line.startswith(("Timeout (", "Fatal Python error: ")):
            blocks.append((None, []))
        elif blocks:
            blocks[-1][1].append(line)
    looks, main, pid = list[Look](), "", 0
    for about, lines in blocks:
        if about:
            main, pid = _words(about, "main"), int(_number(about, "pid", _MOST_PID))
        looks.append(_look(about, _threads(lines), main, pid))
    return looks


def doing(look: Look, home: Path | None = None) -> Doing:
    """What the main thread is doing.

    `home`: the script's folder. Without it, code counts as the script's if it is neither a library's nor Muster's.
    """
    frames = look.main.frames if look.main else ()
    at = next((at for at, frame in enumerate(frames) if _is_own(frame, home)), None)
    above = frames[:at] if at is not None else frames
    what = next((name for frame in reversed(above) for name, files in _DOING_BY_FILE if _in(frame, files)), "")
    own = frames[at] if at is not None else next((frame for frame in frames if not _is_plumbing(frame)), None)
    op = next((frame.function for frame in reversed(above) if _in(frame, _DOING_BY_FILE[0][1])), "")
    return Doing(what or look.seen or "script", own, frames[0] if frames else None, op if what == "collective" else "")


def are_same(looks: Sequence[Look], most: int = LOOKS) -> bool:
    """Whether the last looks are the same: no step between them, and the main thread always at the same call.

    Below the script's own line, calls may differ: a thread that waits in a library's loop is not always at one line.
    """
    last = looks[-most:]
    if len(last) < most:
        return False
    steps = {(look.pid, look.step) for look in last if not look.locked}
    return len(steps) <= 1 and len({_from_own(look) for look in last}) == 1


def _from_own(look: Look) -> tuple[Frame, ...]:
    frames = look.main.frames if look.main else ()
    at = next((at for at, frame in enumerate(frames) if _is_own(frame, None)), 0)
    return frames[at:]


def _number(about: dict[str, Any], name: str, most: int = MOST_NUMBER) -> float:
    """A number of a look; checked, since the script may write anything into the file."""
    value = about.get(name)
    return value if is_number(value, most) and value >= 0 else 0.0


def _words(about: dict[str, Any], name: str) -> str:
    value = about.get(name)
    return value[:_MOST_WORDS] if isinstance(value, str) else ""


def _is_call(row: Any) -> bool:
    """Whether this is a row of trainer/node/rank/steps/recorder.py."""
    kinds = [type(part) for part in row] if isinstance(row, list) else []
    return kinds == [str, int, str, str, str, int, str] and all(0 <= row[at] <= MOST_NUMBER for at in (1, 5))


def _threads(lines: Sequence[str]) -> tuple[Thread, ...]:
    stacks_by_thread: list[tuple[str, list[Frame]]] = []
    for line in lines:
        if head := _THREAD.match(line):
            stacks_by_thread.append((head[1], []))
        elif stacks_by_thread and (call := _FRAME.match(line)):
            stacks_by_thread[-1][1].append(Frame(call[1], int(call[2]) if call[2].isdecimal() else 0, call[3]))
    threads = [Thread(number, tuple(frames)) for number, frames in stacks_by_thread]
    return tuple(thread for thread in threads if thread.frames and _WATCHER not in thread.frames[0].file)


def _look(about: dict[str, Any] | None, threads: tuple[Thread, ...], main: str, pid: int) -> Look:
    # faulthandler writes the main thread last.
    of_main = next(
        (thread for thread in threads if thread.number == main), threads[-1] if threads and not main else None
    )
    if about is None:
        return Look(threads, of_main, pid=pid, locked=True)
    step, seen, rows = int(_number(about, "step")), _words(about, "doing"), about.get("collectives")
    last = tuple(row for row in rows[:_MOST_COLLECTIVES] if _is_call(row)) if isinstance(rows, list) else ()
    t, since_s, before = (_number(about, name) for name in ("t", "since_s", "before"))
    error, thread_error = (_words(about, name) for name in ("error", "thread_error"))
    rank = int(_number(about, "rank")) if "rank" in about else None
    return Look(threads, of_main, t, pid, step, since_s, seen, False, last, int(before), error, thread_error, rank)


def _is_own(frame: Frame, home: Path | None) -> bool:
    if home and not own_code.is_of_library(frame.file):
        return Path(frame.file).is_relative_to(home)
    return own_code.is_own(frame.file)


def _is_plumbing(frame: Frame) -> bool:
    """Whether a frame is in a file of Python itself, of torch or of Muster."""
    if own_code.is_of_library(frame.file):
        return "-packages/torch/" in frame.file
    return not own_code.is_own(frame.file)


def _in(frame: Frame, files: Sequence[str]) -> bool:
    return any(name in frame.file for name in files)
