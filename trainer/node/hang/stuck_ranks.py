"""Which ranks of this node hang, poll, are stopped or frozen, and where; findings.py decides whether that is a fault.

A rank is stuck if it has made no step for three times the usual time plus 5 s, and if in three looks its main thread
was at the same place while neither it nor its children computed, read or wrote. A slow evaluation or checkpoint does
one of these three, so it is not reported. In addition, a rank is reported
- if a signal has stopped it, or a debugger holds it (`traced`), at the second look;
- if it computes in a loop of the script, in which no library's code is seen, for ten looks;
- if it polls with pauses in one function, of the script or of a library, for ten looks;
- if its native code holds the interpreter at one line for half a minute;
- if its cgroup is frozen (`frozen`);
- if it or a process of its session waits for a disk in a system call that no signal ends (`disk`), for two looks;
- if its watcher takes no more looks (`unseen`), or its process now runs another program (`replaced`).
This needs /proc; on other systems nothing is reported. Standard library only.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import processes
from ..ending.rank_lives import Life
from . import disks, stacks

LOOK_SECONDS = 2.0
# The limit without a step is _UNUSUAL_SECONDS until the usual time of a step is known, and then a multiple of that.
_UNUSUAL_SECONDS, _USUAL_TIMES, _MORE_SECONDS = 25.0, 3.0, 5.0
# A rank that waits still wakes up now and then: to poll, for a keep-alive, or because the watcher takes a look.
_IDLE_SHARE, _IDLE_BYTES, _IDLE_WAKES = 0.08, 1 << 16, 4
_TICKS = os.sysconf("SC_CLK_TCK")
_WITHOUT_A_LOOK_SECONDS = 12.0
# How many looks in a row must find a rank in the same loop before it is reported.
_LOOPS = 10
_KERNEL_SHARE, _RUNS_SHARE = 0.2, 0.5
# How many processes there may be between a rank and a descendant that works for it.
_MOST_ANCESTORS = 40


@dataclass(frozen=True)
class Busy:
    """What a rank and its children have used so far: seconds of CPU, bytes read and written; `stopped` by a signal.

    `kernel_s`: the seconds of CPU that were spent in the kernel.
    `wakes`: how often the rank's own main thread has gone to sleep, and so has woken up.
    `held`: a debugger holds it, or it waits for a disk: a signal would end nothing, or would end a debugging session.
    `tracer`: the debugger that holds it, in words; empty if none does.
    `sleeps`: its main thread sleeps for a set time, and waits for nothing else.
    `runs_s`: the seconds in which its main thread computed, or waited for a core; None if that is unknown.
    """

    cpu_s: float
    bytes: int
    stopped: bool
    wakes: int = 0
    kernel_s: float = 0.0
    held: bool = False
    tracer: str = ""
    runs_s: float | None = None
    sleeps: bool = False


@dataclass(frozen=True)
class Stuck:
    """A rank that is stuck. `asleep`: it does nothing at all; otherwise it computes. `steps`: made in this start.

    `wakes`: how often its main thread has woken up so far.
    """

    life: Life
    about: Mapping[str, Any]
    asleep: bool
    steps: int
    wakes: int


@dataclass
class _Rank:
    pid: int
    began: float
    samples: deque[tuple[float, Busy]] = field(default_factory=lambda: deque(maxlen=stacks.LOOKS))
    paces: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    before: int = 0
    step: int = 0
    step_at: float = 0.0
    seen_pid: int = 0
    about: dict[str, Any] | None = None
    loops: int = 0
    loop: stacks.Frame | None = None
    loop_is_own: bool = False
    program: str = ""
    disks: dict[tuple[int, int], str] = field(default_factory=dict)


class StuckRanks:
    """Checks the ranks of a node every 2 s. `work`: the folder to which the script's paths are reported as relative."""

    def __init__(self, outcome: Path, work: Path | None) -> None:
        self._outcome, self._work = outcome, work
        self._next = 0.0
        self._ranks: dict[int, _Rank] = {}

    def look(self, lives: Sequence[Life]) -> list[tuple[int, dict[str, Any] | None]]:
        """Ranks that have become stuck, each with what is known about it; None for ranks that move again."""
        if time.monotonic() < self._next:  # not time.time(), as that clock may be set back
            return []
        self._next, now = time.monotonic() + LOOK_SECONDS, time.time()
        news, busy = [], _busy([life.pid for life in lives if life.code is None])
        for life in lives:
            if life.code is not None or life.pid not in busy:
                self._ranks.pop(life.rank, None)
                continue
            seen = self._ranks.get(life.rank)
            if seen is None or seen.pid != life.pid:
                seen = self._ranks[life.rank] = _Rank(life.pid, life.began)
            about = self._about(seen, life, busy[life.pid], now)
            # If a rank that waits is stopped later, that is reported as well.
            if bool(about) != bool(seen.about) or _stop(about) != _stop(seen.about):
                news.append((life.rank, about))
            seen.about = about
        return news

    def stuck_ranks(self, lives: Sequence[Life]) -> list[Stuck]:
        """The ranks that were stuck at the last look."""
        ranks = []
        for life in lives:
            seen = self._ranks.get(life.rank)
            if seen and seen.pid == life.pid and seen.about:
                last = seen.samples[-1][1]
                held = last.held or seen.about["doing"] in ("disk", "frozen")
                asleep = not held and (last.stopped or _idle(seen.samples))
                ranks.append(Stuck(life, seen.about, asleep, seen.step, last.wakes))
        return ranks

    def _about(self, seen: _Rank, life: Life, busy: Busy, now: float) -> dict[str, Any] | None:
        """What a rank that is stuck is doing; None if it moves, or if this is unknown."""
        seen.samples.append((now, busy))
        looks = stacks.read(stacks.newest(self._outcome, life.local_rank))
        _take_process(seen, looks, now)
        _take_pace(seen, looks, now)
        seen.began, seen.step_at = min(seen.began, now), min(seen.step_at, now)
        since = now - (seen.step_at or seen.began)
        about = {"step": seen.before + seen.step, "since_s": round(since, 1)}
        if busy.stopped:
            before = seen.samples[-2][1] if len(seen.samples) > 1 else Busy(0.0, 0, False)
            if busy.tracer:  # a rank whose tracer lets it continue, call by call, has woken up since
                held = before.tracer and before.wakes == busy.wakes
                return {**about, "doing": "traced", "tracer": busy.tracer} if held else None
            return {**about, "doing": "stopped"} if before.stopped else None
        _count_loops(seen, looks, self._work)
        program = _program(life.pid)
        if not seen.program and seen.step:
            seen.program = program
        if since < _limit(seen) or len(seen.samples) < stacks.LOOKS:
            return None
        if program and seen.program and program != seen.program:
            return {**about, "doing": "replaced", "program": Path(program).name[:100]}
        if _does_nothing(seen.samples):
            if disks.is_frozen(life.pid):
                return {**about, "doing": "frozen"}
            disk = _disk(seen, life.pid)
            if disk:
                return {**about, **(describe(looks[-1], self._work) if looks else {}), "doing": "disk", "disk": disk}
            if seen.disks:  # the next look shows whether the wait was only short
                return seen.about
        if not _idle(seen.samples):
            if looks and all(look.locked for look in looks) and stacks.are_same(looks):
                return {**about, **describe(looks[-1], self._work)}
            what = _in_a_loop(seen.samples, seen.loop_is_own) if seen.loops >= _LOOPS else ""
            return {**about, **describe(looks[-1], self._work), "doing": what} if what else None
        fresh = bool(looks) and (looks[-1].locked or now - looks[-1].t < _WITHOUT_A_LOOK_SECONDS)
        if looks and not fresh and seen.step and processes.is_alive(seen.seen_pid):
            return {**about, "doing": "unseen"}  # the watcher has ended: the exit hangs, or another program runs
        if 0 < len(looks) < stacks.LOOKS and seen.about:
            return seen.about  # its file of looks was started anew, so wait for the next looks
        if not fresh or not stacks.are_same(looks):
            return None
        return {**about, **describe(looks[-1], self._work)}


def _disk(seen: _Rank, pid: int) -> str:
    """The disk that a thread of the rank's processes waits for, both at this look and at the one before."""
    before, seen.disks = seen.disks, disks.waiting(pid)
    return next((words for thread, words in seen.disks.items() if before.get(thread) == words), "")[:300]


def is_moving(looks: Sequence[stacks.Look], began: float, now: float) -> bool:
    """Whether the last step of a rank is not unusually long ago. `began`: when it began. `looks`: all known looks."""
    seen = _Rank(0, began)
    for look in looks:
        _take_pace(seen, [look], now)
    return now - (seen.step_at or began) < _limit(seen)


def describe(look: stacks.Look, work: Path | None) -> dict[str, Any]:
    """What a look shows, in a form for people: what the main thread is doing, and the script's own line."""
    doing = stacks.doing(look, work if work and work.is_dir() else None)
    about: dict[str, Any] = {"doing": "locked" if look.locked else doing.what}
    about |= {name: text for name in ("error", "thread_error") if (text := getattr(look, name))}
    if doing.own:
        file = _in_work(doing.own.file, work)
        about |= {"file": file, "line": doing.own.line, "function": doing.own.function[:100]}
    if doing.op:
        about["op"] = doing.op[:40]
    if rows := collectives(look.collectives, work):
        about["collectives"] = rows
    if doing.inner and doing.inner != doing.own:
        about["inner"] = doing.inner.function[:100]
    return about


def collectives(rows: Sequence[Any], work: Path | None) -> list[list[Any]]:
    """The collectives of a look, with the script's files relative to its folder."""
    with suppress(ValueError, TypeError, IndexError):
        return [[*row[:4], _in_work(str(row[4]), work), *row[5:7]] for row in rows]
    return []


def _in_work(file: str, work: Path | None) -> str:
    """A script's file, relative to the script's folder."""
    with suppress(ValueError):
        return (Path(file).relative_to(work).as_posix() if work else file)[-200:]
    return file[-200:]


def _stop(about: Mapping[str, Any] | None) -> str:
    """What stops the rank: a signal, a debugger, a freezer or a disk; empty if nothing does."""
    return about["doing"] if about and about["doing"] in ("stopped", "traced", "frozen", "disk") else ""


def _take_process(seen: _Rank, looks: Sequence[stacks.Look], now: float) -> None:
    """Start counting anew if another process now works as the rank, such as the next program of a shell script."""
    pid = looks[-1].pid if looks else 0
    if pid and seen.seen_pid and pid != seen.seen_pid:
        seen.began, seen.step, seen.step_at = now, 0, 0.0
        seen.paces.clear()
    seen.seen_pid = pid or seen.seen_pid


def _take_pace(seen: _Rank, looks: Sequence[stacks.Look], now: float) -> None:
    last = next((look for look in reversed(looks) if not look.locked), None)
    if last is None or last.step <= seen.step:
        return
    seen.before = last.before
    at = min(now, last.t - last.since_s if last.since_s else last.t)
    if seen.step_at and at > seen.step_at:
        seen.paces.append((at - seen.step_at) / (last.step - seen.step))
    seen.step, seen.step_at = last.step, at


def _count_loops(seen: _Rank, looks: Sequence[stacks.Look], work: Path | None) -> None:
    """Count the looks in a row that find the main thread in the same function, and in no other function below it.

    An evaluation or a checkpoint is sooner or later seen in torch, in file access, or elsewhere.
    """
    last = looks[-1] if looks else None
    doing = stacks.doing(last, work if work and work.is_dir() else None) if last and not last.locked else None
    top = doing.inner if doing else None
    idle_io = len(seen.samples) < 2 or seen.samples[-1][1].bytes - seen.samples[-2][1].bytes < _IDLE_BYTES
    same = top and seen.loop and (top.file, top.function) == (seen.loop.file, seen.loop.function)
    seen.loops = seen.loops + 1 if same and idle_io else 0
    seen.loop, seen.loop_is_own = top, bool(doing and top == doing.own)


def _limit(seen: _Rank) -> float:
    """How many seconds without a step are usual, from the longest of the last steps; one may include an evaluation."""
    return _USUAL_TIMES * max(seen.paces) + _MORE_SECONDS if seen.paces else _UNUSUAL_SECONDS


def _idle(samples: Sequence[tuple[float, Busy]]) -> bool:
    # Data from a socket is not in the byte counts, so wakes count too.
    return samples[-1][1].wakes - samples[0][1].wakes <= _IDLE_WAKES and _does_nothing(samples)


def _does_nothing(samples: Sequence[tuple[float, Busy]]) -> bool:
    (began, first), (ended, last) = samples[0], samples[-1]
    return last.cpu_s - first.cpu_s < _IDLE_SHARE * (ended - began) and last.bytes - first.bytes < _IDLE_BYTES


def _in_a_loop(samples: Sequence[tuple[float, Busy]], is_own: bool) -> str:
    """What a rank in a loop does: `polls` or `computes`; empty if it may make progress, as code of libraries does."""
    if _does_nothing(samples):
        return "polls" if all(busy.sleeps for _, busy in samples) else ""
    return "computes" if is_own and _runs(samples) and not _calls_the_kernel(samples) else ""


def _runs(samples: Sequence[tuple[float, Busy]]) -> bool:
    """Whether a rank's main thread computes; a thread that waits for a byte now and then looks like a loop as well."""
    (began, first), (ended, last) = samples[0], samples[-1]
    if first.runs_s is None or last.runs_s is None:
        return True
    return last.runs_s - first.runs_s > _RUNS_SHARE * (ended - began)


def _calls_the_kernel(samples: Sequence[tuple[float, Busy]]) -> bool:
    """Whether a rank's loop makes many system calls: it may write small files, or talk to other processes."""
    first, last = samples[0][1], samples[-1][1]
    return last.kernel_s - first.kernel_s > _KERNEL_SHARE * (last.cpu_s - first.cpu_s)


def _busy(pids: Sequence[int]) -> dict[int, Busy]:
    """By the rank's pid: what the processes of its session have used, and those that they started in other sessions."""
    stats = processes.all_stats() if pids else {}
    own: dict[int, dict[int, list[str]]] = {pid: {} for pid in pids}
    for pid, fields in stats.items():
        if rank := _rank_of(pid, stats, own):
            own[rank][pid] = fields
    return {rank: _used(rank, of) for rank, of in own.items() if rank in of}


def _used(rank: int, stats: Mapping[int, Sequence[str]]) -> Busy:
    """What the processes of a rank have used; the state is that of the rank's own main thread."""
    path, state = processes.PROC / str(rank), stats[rank][processes.STATE]
    # Ended children are included: otherwise the end of a child would make a rank look idle.
    user_s, kernel_s = (sum(int(of[at]) + int(of[at + 2]) for of in stats.values()) / _TICKS for at in (11, 12))
    return Busy(
        user_s + kernel_s,
        sum(map(_bytes, stats)),
        state in "Tt",
        int(_status(path, "voluntary_ctxt_switches")),
        kernel_s,
        state in "tD",
        _tracer(path) if state == "t" else "",
        _runs_s(path),
        # The thread sleeps for a set time; a wait for a socket or a lock has another name in the kernel.
        state == "S" and "nanosleep" in disks.wait_of(rank, rank),
    )


def _rank_of(pid: int, stats: Mapping[int, Sequence[str]], ranks: Mapping[int, Any]) -> int:
    """The pid of the rank that a process works for; 0 if none.

    The session alone does not show it: a torchrun below a launcher gives each worker a session of its own.
    """
    for _ in range(_MOST_ANCESTORS):
        if not (fields := stats.get(pid)):
            return 0
        if (session := int(fields[processes.SESSION])) in ranks:
            return session
        pid = int(fields[processes.PARENT])
    return 0


def _program(pid: int) -> str:
    """The program file of a process; it changes if the script calls exec. Empty if this process may not read it."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")
    return ""


def _tracer(process: Path) -> str:
    """The process that traces this one. Inside a container, a tracer outside of it has the number 0."""
    pid = _status(process, "TracerPid")
    if pid == "0":
        return "a process that is not visible from here"
    name = ""
    with suppress(OSError):
        name = process.with_name(pid).joinpath("comm").read_text().strip()[:50]
    return f"{name or 'a process'}, pid {pid}"


def _runs_s(process: Path) -> float | None:
    with suppress(OSError, ValueError):
        ran_ns, waited_ns, _ = (process / "schedstat").read_text().split()
        return (int(ran_ns) + int(waited_ns)) / 1e9
    return None


def _status(process: Path, field: str) -> str:
    """A field of /proc/PID/status; "0" if it has no such field."""
    with suppress(OSError, StopIteration):
        lines = (process / "status").read_text().splitlines()
        return next(line for line in lines if line.startswith(f"{field}:")).split()[1]
    return "0"


def _bytes(pid: int) -> int:
    with suppress(OSError, ValueError):
        counts = dict(line.split(": ") for line in (processes.PROC / str(pid) / "io").read_text().splitlines())
        return int(counts["rchar"]) + int(counts["wchar"])
    return 0
