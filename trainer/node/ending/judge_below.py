"""How the processes that trained below a rank, or a thread of it, ended, if the rank's own code does not show that.

A process trains if it made a step, or joined a group of two or more ranks (node/rank/world_notes.py). It leaves a note
of its end (node/rank/end_note.py). A failure is made good if another process began after it and ended well: a shell
tries again, a launcher restarts, a search continues. If nothing trained, the last Python program counts.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from muster.errors import DONE, FAILED
from muster.files import is_number, object_of
from muster.stop import UNASKED

from .. import processes
from . import own_world, training_alone
from .peer_errors import line_reports_lost_peer
from .rank_lives import LIFE, Crash, Memory, code_in_words
from .watch_below import Unseen, has_torch

Notes = Sequence[Mapping[str, Any]]
_NEVER = float("inf")
_MOST_BYTES = 1 << 16
# Python's exit code if no one read the rest of its output, as in `train.py | grep -m1 loss`: its work was done.
_READER_LEFT = 120
# Helper processes of a library end later than their parent: a DataLoader's worker checks every 5 s whether it lives.
_HELPERS_END_S = 8.0
_WAIT_HINT = "let the script wait for it; in a shell, use `wait`"
# Words before the program by which a shell line checks how it ends; those after it are in _ASKS_LATER.
_ASKS_BEFORE = re.compile(r"(?:^|[;&|(]|\bdo\b|\bthen\b)\s*(?:if|elif|while|until|!)\s")
# A shell line that kills other processes.
_KILLS = re.compile(r"(?:^|[;&|({'\"]|\b(?:do|then|else|sudo))\s*p?kill(?:all)?\s")
_ASKS_LATER, _LATER_LINES = re.compile(r"\$\{?(?:\?|PIPESTATUS)"), 2


@dataclass(frozen=True)
class Trained:
    """A process that trained: from `began` to `ended` (unix seconds), and its `error` in words; empty if it ended well.

    `lives`: it still runs. `shell`: the folder and the words of the shell above it. `timed`: `timeout` may have killed
    it. `outside`: only its exit code is known (watch_below.py). `cause`: of the end, if it was killed.
    """

    script: str
    pid: int
    began: float
    ended: float
    stepped: bool = False
    error: str = ""
    lives: bool = False
    shell: tuple[str, ...] = ()
    timed: bool = False
    outside: bool = False
    cause: str = ""


def failure_that_counts(trained: Sequence[Trained]) -> Trained | None:
    """The process whose failure counts for the run: the first that was not made good; None if there is none.

    A process that only lost its peers comes after one whose error has another cause.
    """
    well = [each for each in trained if not each.error]
    failed = [each for each in trained if each.error and not _is_made_good(each, well) and not _is_expected(each, well)]
    return min(failed, key=lambda each: (line_reports_lost_peer(each.error), each.lives, each.ended), default=None)


def _is_made_good(failed: Trained, well: Iterable[Trained]) -> bool:
    """Whether a later process did what this one failed to do: the same program, or another one that trained."""
    return any(
        each.began > failed.ended and (each.stepped or not failed.stepped or each.script == failed.script)
        for each in well
    )


def _is_expected(failed: Trained, well: Iterable[Trained]) -> bool:
    """Whether this is one of several trials that may fail: an earlier one went well, and the shell checks its end.

    If a Python program starts the trials, its checks cannot be seen: then the same program run again counts as a trial.
    A process that `timeout` ended, and whose end the shell checks, may also be the first trial.
    """
    before = [each for each in well if each.ended < failed.began and (each.stepped or not failed.stepped)]
    asked = _is_asked(failed.shell, failed.script)
    if asked is None:
        return any(each.script == failed.script for each in before)
    return asked and bool(before or failed.timed)


def _is_asked(shell: Sequence[str], script: str) -> bool | None:
    """Whether a shell's text checks how this program ends (`if PROGRAM`, `PROGRAM || ...`, `PROGRAM; code=$?`).

    None if the text does not contain the program's name. `shell`: its folder and its words.
    """
    lines = _lines(shell)
    name = re.compile(rf"(?<![\w.-]){re.escape(script)}(?![\w.-])")
    places = [(at, place) for at, line in enumerate(lines) for place in name.finditer(line)]
    for at, place in places:
        before, behind = lines[at][: place.start()], lines[at][place.end() :]
        later = "\n".join([behind, *lines[at + 1 : at + 1 + _LATER_LINES]])
        if _ASKS_BEFORE.search(before) or "||" in behind or _ASKS_LATER.search(later):
            return True
    return False if places else None


def _lines(shell: Sequence[str]) -> list[str]:
    return [line for _, line in own_world.shell_script(shell, ())[1]]


def nobody_trained(outcome: Path) -> bool:
    """Whether no process of this node was seen to make a step or to have peers."""
    return not any("script" in note for note in training_alone.notes(outcome))


def name_of_unknown_end(outcome: Path) -> str:
    """The name of a script that had torch loaded, and whose end is unknown; empty if there is none."""
    notes = training_alone.notes(outcome)
    unknown = {note.get("process") for note in notes if "code" in note and note["code"] is None}
    scripts = (note["script"] for note in notes if note.get("process") in unknown and "script" in note)
    return next((Path(str(script)).name for script in scripts), "")


class StillRuns(Exception):
    """A process that a rank has started still runs, and may end in time."""


def judge(outcome: Path, life: str, pid: int, oom: bool, program: bool, until: float = 0.0) -> Crash | None:
    """What failed below a rank that itself ended with 0, and why; None if nothing did. Raises StillRuns.

    `life` and `pid`: the rank's. `oom`: the kernel has killed a process here because memory ran out. `program`: the
    rank is not a Python script, but a program that starts some. `until`: the time (monotonic) until which its helper
    processes may still run.
    """
    if trained := _trained(outcome, life, pid, oom):
        failed = failure_that_counts(trained)
        if failed is None:
            return None
        if failed.lives and time.monotonic() < until:
            raise StillRuns
        if failed.outside and not failed.lives:  # its error can be found in its output
            return Crash(f"{failed.script} below it {failed.error}", cause=failed.cause)
        who = "its thread that trained" if failed.pid == pid else f"{failed.script}, which trained below it,"
        return Crash(f"{who} has not ended" if failed.lives else f"{who} failed", failed.error, failed.cause)
    # A Python script reports its own end; a process that it leaves running, such as a submitted job, does not count.
    last = _end(outcome / f"end-{life}") if program else None
    notes = training_alone.notes(outcome) if program else []
    killed = _killed(notes)
    lost = next((note for note in reversed(notes) if _is_lost(note, killed, life, last)), None)
    if lost:
        how = f"{Path(str(lost['lost'])).name} {code_in_words(lost['code'])}"
        return Crash(f"nothing trained below it, and {how}", cause="killed")
    if last and (fault := _fault(last)) and not _is_asked(last["shell"], last["script"]):
        return Crash(f"nothing trained below it, and {last['script']} failed", fault)
    left = {} if last else _below(life, pid)
    if left and time.monotonic() < until:
        raise StillRuns
    for each, script in left.items():  # a server without torch that a Python script leaves behind is no failure
        if program or has_torch(each):
            return Crash(f"{script}, which it started, has not ended", _WAIT_HINT)
    return None


def _is_lost(note: Mapping[str, Any], killed: Set[int], life: str, last: Mapping[str, Any] | None) -> bool:
    """Whether this note says that a Python was killed before it trained, and its end is neither checked nor followed.

    That is: no shell checks that end, no process killed it on purpose, and no other program ended after it.
    """
    t, pid = note.get("t"), note.get("pid")
    if note.get("life") != life or "lost" not in note or not (is_number(t) and is_number(note.get("code")) and pid):
        return False
    shell = _strings(note.get("shell"))
    asked = _is_asked(shell, Path(str(note["lost"])).name) or _is_ended_on_purpose(pid, pid, shell, killed)
    return not asked and (last is None or float(last["t"]) < t)


def _killed(notes: Notes) -> set[int]:
    """The processes that a Python has killed on purpose; a negative number is a process group."""
    return {note["kills"] for note in notes if "kills" in note}


def _is_ended_on_purpose(pid: int, group: int, shell: Sequence[str], killed: Set[int]) -> bool:
    """Whether a Python has killed this process or its group; or it is gone, and a line of its shell kills processes."""
    if pid in killed or -group in killed:
        return True
    return any(map(_KILLS.search, _lines(shell))) and not processes.is_alive(pid)


def _trained(outcome: Path, life: str, pid: int, oom: bool) -> list[Trained]:
    """The processes that trained in this life of a rank, in the order in which they began."""
    every, notes = training_alone.notes(outcome), dict[str, list[Mapping[str, Any]]]()
    for note in every:
        process = note.get("process")
        if note.get("life") == life and isinstance(process, str) and re.fullmatch(r"\d{1,9}-\d{1,19}", process):
            notes.setdefault(process, []).append(note)
    begun = {process: next((each for each in own if "script" in each), None) for process, own in notes.items()}
    ends = partial(_end_of, outcome, pid, oom, _killed(every))
    trained = [ends(process, notes[process], first) for process, first in begun.items() if first]
    trained.sort(key=lambda each: each.began)
    last = {each.pid: each for each in trained}  # a process that executes another program keeps its number
    return [each for each in trained if last[each.pid] is each]


def _end_of(
    outcome: Path, pid: int, oom: bool, killed: Set[int], process: str, notes: Notes, first: Mapping[str, Any]
) -> Trained:
    """How a process that trained ended, from the note that it left, or from other traces."""
    own, _, began = process.partition("-")
    end, times = _end(outcome / f"end-{process}"), [each["t"] for each in notes if is_number(each.get("t"))]
    shell = _strings(first.get("shell"))
    stepped, last = any(each.get("stepped") for each in notes), max(times, default=0.0)
    script, outside = Path(str(first["script"])).name, bool(first.get("outside"))
    known = Trained(script, int(own), int(began) / 1e9, last, stepped, shell=shell, outside=outside)
    timed = any(Path(str(word)).name == "timeout" for word in first.get("command", ())[:1])
    if end:
        return replace(known, ended=end["t"], error=end["thread"] or _fault(end))
    on_purpose = _is_ended_on_purpose(known.pid, first.get("group", known.pid), shell, killed)
    if codes := [each["code"] for each in notes if "code" in each]:
        return _with_code(known, codes[0], timed, on_purpose)
    after = _end(outcome / f"end-{first['life']}")
    if after and after["process"].partition("-")[0] == own:  # the process has become another program (exec)
        return replace(known, ended=after["t"], error=_fault(after))
    # It is the rank itself, whose code is known, or another process has ended it on purpose.
    if known.pid == pid or first.get("managed") or on_purpose:
        return known
    if processes.is_alive(known.pid):
        return replace(known, ended=_NEVER, error=_WAIT_HINT, lives=True)
    if os.statvfs(outcome).f_bavail == 0:  # the disk is full: it could not leave a note
        return known
    out_of_memory = " (out of memory: the kernel killed a process here)" if oom else ""
    cause = "container-out-of-memory" if oom else "killed"
    return replace(known, error=f"it was killed by a signal{out_of_memory}", timed=timed, cause=cause)


def _with_code(known: Trained, code: object, timed: bool, on_purpose: bool) -> Trained:
    """How a process ended of which at most the exit code is known."""
    if not is_number(code) or code in (DONE, _READER_LEFT) or (code < 0 and on_purpose):
        return known
    return replace(known, error=code_in_words(int(code)), timed=timed and code < 0, cause="killed" if code < 0 else "")


def _fault(end: Mapping[str, Any]) -> str:
    """The error in the note that a process left; empty if it ended well."""
    if end["code"] is None:
        return end["error"] or "it crashed while it ended"
    return "" if end["code"] in (DONE, _READER_LEFT) else end["error"] or f"it ended with code {end['code']}"


def _end(path: Path) -> dict[str, Any] | None:
    """The note that a process left; its `code` is None if that byte is missing. None if there is no note."""
    with suppress(OSError):
        with path.open("rb") as file:
            line, _, code = file.read(_MOST_BYTES).partition(b"\n")
        row = object_of(line)
        if is_number(row.get("t")):
            words = {
                name: " ".join(str(row.get(name) or "").split()) for name in ("process", "script", "error", "thread")
            }
            words["script"] = Path(words["script"]).name
            shell = _strings(row.get("shell"))
            return {"t": float(row["t"]), **words, "shell": shell, "code": code[0] if code else None}
    return None


def _strings(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _below(life: str, pid: int) -> dict[int, str]:
    """The scripts and modules that living Pythons of this life run, by process; without a library's `-c` helpers."""
    mine, left = f"{LIFE}={life}", dict[int, str]()
    for each in processes.all_stats().keys() - {pid}:
        with suppress(OSError):
            if mine in processes.texts(each, "environ"):
                words = processes.texts(each, "cmdline")
                script = next((word for before, word in pairwise(words) if word.endswith(".py") or before == "-m"), "")
                if script and "python" in Path(words[0]).name and processes.is_alive(each):
                    left[each] = Path(script).name
    return left


class JudgedRank:
    """A rank as torchrun sees it: wraps a Popen or a similar object, and returns the code that counts.

    Without an agent, that is the rank's own code. `noted`: the code for the agent. The two differ in a graceful stop:
    there torchrun gets 0, because otherwise it would end the other ranks, which may still save, or start them again.
    `stops`: whether this rank may stop in that way. `crash`: why it has failed although it ended with 0.
    """

    returncode: int | None = None
    noted: int = DONE
    crash: Crash | None = None

    def __init__(self, process: Any, environment: Mapping[str, str], stops: bool = True) -> None:
        self._process, self._environment, self._stops, self.pid = process, environment, stops, process.pid
        outcome = environment.get("MUSTER_OUTCOME_DIR")
        self._outcome = Path(outcome) if outcome else None
        self._memory, self._program = Memory(), bool(environment.get("MUSTER_LAUNCHER_RANKS"))
        self._until = 0.0
        self._unseen = Unseen(self._outcome, environment, self.pid) if self._outcome and self._program else None

    def poll(self) -> int | None:
        """The exit code as in Popen; FAILED instead of 0 if a process that trained below it has failed."""
        if self.returncode is None:
            self.returncode = self._process.poll()
            if self.returncode is None and self._unseen:
                self._unseen.look()
            unasked = self._outcome is None or (self._outcome / UNASKED).exists()
            if self.returncode == DONE and unasked and self._outcome:
                with suppress(OSError, ValueError):
                    self._judge(self._outcome)
            self.noted = self.returncode or DONE
            if self.returncode and self._stops and not unasked:
                self.returncode = DONE
        return self.returncode

    def _judge(self, outcome: Path) -> None:
        given, oom = self._environment, bool(self._memory.killed())
        if self._unseen:
            self._unseen.settle()
        self._until = self._until or time.monotonic() + _HELPERS_END_S
        try:
            crash = judge(outcome, given[LIFE], self.pid, oom, self._program, self._until)
        except StillRuns:  # ask again later; meanwhile the caller looks at the other ranks
            self.returncode = None
            return
        if crash:
            self.crash, self.returncode = crash, FAILED
