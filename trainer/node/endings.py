"""How those who trained below a rank have ended, where the rank's own code says nothing of it: a pipe ends with 0.

A process trains if it made a step, or joined a group of two and more (trainer/watch/together.py); it leaves its end
behind (trainer/watch/ended.py). What one of them failed at is made good by another that began after it and ended well:
a shell tries again, a launcher restarts, a search goes on. Where nothing trained, the last program of Python's counts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muster.errors import DONE, FAILED
from muster.files import is_number, parse, read, read_object
from muster.files import replace as write
from muster.stop import UNASKED

from . import rank_pipe, training_alone
from .ends import Memory
from .peer_errors import lost_a_peer

_NEVER = float("inf")
_MOST_BYTES = 1 << 16
# What makes a shell's line one that expects a failure: the words before the program, and those behind it.
_ASKS_BEFORE, _ASKS_BEHIND = (
    re.compile(r"(?:^|[;&|(]|\bdo\b|\bthen\b)\s*(?:if|elif|while|until|!)\s"),
    re.compile(r"\|\|"),
)
_ASKS_LATER, _LATER_LINES = re.compile(r"\$\{?(?:\?|PIPESTATUS)"), 2


@dataclass(frozen=True)
class Trained:
    """A process that trained: from `began` to `ended` (unix seconds), and its `fault` in words; empty if it ended well.

    `error`: the exception that ended it. `lives`: it still runs. `shell`: the folder and the words of the shell above.
    """

    script: str
    began: float
    ended: float
    stepped: bool = False
    fault: str = ""
    error: str = ""
    lives: bool = False
    shell: tuple[str, ...] = ()


def not_made_good(trained: Sequence[Trained]) -> Trained | None:
    """The process whose failure is the run's: the first of those that nobody made good; None if there is none.

    One that only lost its peers stands behind one that knows why.
    """
    well = [each for each in trained if not each.fault]
    failed = [each for each in trained if each.fault and not _is_made_good(each, well) and not _is_expected(each, well)]
    return min(failed, key=lambda each: (lost_a_peer(each.error), each.lives, each.ended), default=None)


def _is_made_good(failed: Trained, well: Iterable[Trained]) -> bool:
    """Whether a later process did what this one failed at: the same program, or a training of another."""
    return any(
        each.began > failed.ended and (each.stepped or not failed.stepped or each.script == failed.script)
        for each in well
    )


def _is_expected(failed: Trained, well: Iterable[Trained]) -> bool:
    """Whether this is one of several trials that may fail: one before it went well, and its shell asks how it ended.

    What a program of Python's asks cannot be seen: there a trial is the same program once more.
    """
    before = [each for each in well if each.ended < failed.began and (each.stepped or not failed.stepped)]
    if failed.shell and failed.shell[0]:
        return bool(before) and asks(_text(failed.shell), failed.script)
    return any(each.script == failed.script for each in before)


def asks(shell: str, script: str) -> bool:
    """Whether a shell's text asks how this program ends: `if PROGRAM`, `PROGRAM || ...`, `PROGRAM; code=$?`."""
    lines = [line for line in shell.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    name = re.compile(rf"(?<![\w.-]){re.escape(Path(script).name)}(?![\w.-])")
    for at, line in enumerate(lines):
        for place in name.finditer(line):
            behind = line[place.end() :]
            later = "\n".join([behind, *lines[at + 1 : at + 1 + _LATER_LINES]])
            if _ASKS_BEFORE.search(line[: place.start()]) or _ASKS_BEHIND.search(behind) or _ASKS_LATER.search(later):
                return True
    return False


def _text(shell: Sequence[str]) -> str:
    """What a shell reads: the words behind -c, or its file."""
    folder, *words = shell
    at = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
    if at == len(words):
        return ""
    if any(re.fullmatch(r"-\w*c", word) for word in words[:at]):
        return words[at]
    with suppress(OSError, ValueError):
        return read(Path(folder, words[at]), _MOST_BYTES)
    return ""


def nobody_trained(outcome: Path) -> bool:
    """Whether no process of this node has made a step, or had peers, as far as that is seen."""
    return not any("script" in note for note in training_alone.notes(outcome))


def judge(outcome: Path, life: str, pid: int, oom: bool) -> tuple[str, str]:
    """Why a rank that ended with 0 has failed all the same, and the error that it failed with; both empty if not.

    `life` and `pid` are the rank's, whose own code is known. `oom`: the kernel killed somebody in the meantime.
    """
    trained = _trained(outcome, life, pid, oom)
    if trained:
        failed = not_made_good(trained)
        return (f"{failed.script}, which trained below it, {failed.fault}", failed.error) if failed else ("", "")
    last = _end(outcome / f"last-{life}")
    if last and (fault := _fault(last)):
        return f"nothing trained below it: {last['script']} {fault}", last["error"]
    if last is None and (left := _left_behind(life, pid)):
        return f"{left}, which it started, still runs", ""
    return "", ""


def _trained(outcome: Path, life: str, pid: int, oom: bool) -> list[Trained]:
    """Those who trained in this life of a rank, in the order in which they began."""
    notes: dict[str, list[Mapping[str, Any]]] = {}
    for note in training_alone.notes(outcome):
        process = note.get("process")
        if note.get("life") == life and isinstance(process, str) and re.fullmatch(r"\d{1,9}-\d{1,19}", process):
            notes.setdefault(process, []).append(note)
    begun = {process: next((each for each in own if "script" in each), None) for process, own in notes.items()}
    trained = [_one(outcome, process, notes[process], first, pid, oom) for process, first in begun.items() if first]
    return sorted(trained, key=lambda each: each.began)


def _one(
    outcome: Path, process: str, notes: Sequence[Mapping[str, Any]], first: Mapping[str, Any], pid: int, oom: bool
) -> Trained:
    own, _, began = process.partition("-")
    end, times = _end(outcome / f"end-{process}"), [each["t"] for each in notes if is_number(each.get("t"))]
    shell = tuple(map(str, first["shell"])) if isinstance(first.get("shell"), list) else ()
    stepped, last = any(each.get("stepped") for each in notes), max(times, default=0.0)
    one = Trained(Path(str(first["script"])).name, int(began) / 1e9, last, stepped, shell=shell)
    if end:
        thread = end["thread"] and f"failed in the thread that trained, and ended with code {end['code']}"
        return replace(one, ended=end["t"], fault=thread or _fault(end), error=end["thread"] or end["error"])
    if int(own) == pid or first.get("daemon"):  # its code is known; its parent has ended it
        return one
    if _lives(int(own)):
        return replace(one, ended=_NEVER, fault="still trains", lives=True)
    if os.statvfs(outcome).f_bavail == 0:  # it could not leave word
        return one
    out_of_memory = " (the kernel killed a process here: out of memory)" if oom else ""
    return replace(one, fault=f"was killed by a signal{out_of_memory}")


def _fault(end: Mapping[str, Any]) -> str:
    code = end["code"]
    if code is None:
        return "crashed as it ended"
    return "" if code == DONE else f"ended with code {code}"


def _end(path: Path) -> dict[str, Any] | None:
    """What a process left: `t`, `script`, `error`, `thread`, and its `code`; None without the byte for it."""
    with suppress(OSError, ValueError):
        with path.open("rb") as file:
            line, _, code = file.read(_MOST_BYTES).partition(b"\n")
        row = parse(line)
        if isinstance(row, dict) and is_number(row.get("t")):
            words = {name: " ".join(str(row.get(name) or "").split()) for name in ("script", "error", "thread")}
            words["script"] = Path(words["script"]).name
            return {"t": float(row["t"]), **words, "code": code[0] if code else None}
    return None


def _lives(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _left_behind(life: str, pid: int) -> str:
    """A script of Python's that this life of a rank has started, and that still runs; empty if there is none."""
    mine = f"{rank_pipe.LIFE}={life}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            if mine not in (folder / "environ").read_bytes().split(b"\0") or folder.name == str(pid):
                continue
            program, *words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            script = next((word for word in words if word.endswith(".py")), "")
            if script and "python" in Path(program).name and _lives(int(folder.name)):
                return Path(script).name
    return ""


class Judged:
    """A rank as torchrun sees it, a Popen or what stands for one, with the code that counts."""

    returncode: int | None = None

    def __init__(self, process: Any, outcome: Path, life: str, local_rank: str) -> None:
        self._process, self._outcome, self._life, self._local_rank = process, outcome, life, local_rank
        self._memory = Memory()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def poll(self) -> int | None:
        """The exit code as Popen has it; FAILED instead of 0 where somebody who trained below it has failed."""
        if self.returncode is None:
            self.returncode = self._process.poll()
            if self.returncode == DONE and (self._outcome / UNASKED).exists():
                with suppress(OSError, ValueError):
                    self._judge()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the exit code. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        self._process.wait(timeout)
        return self.poll()

    def _judge(self) -> None:
        why, error = judge(self._outcome, self._life, self._process.pid, bool(self._memory.killed()))
        if why:
            crash = {"pid": self._process.pid, "why": why, "error": error}
            write(self._outcome / f"{self._local_rank}.crash", json.dumps(crash))
            self.returncode = FAILED


def judged(process: Any, environment: Mapping[str, str]) -> Any:
    """The rank that started with `environment`, with the code that counts; as it is where no agent reads of it."""
    outcome, local_rank = environment.get("MUSTER_OUTCOME_DIR"), environment.get("LOCAL_RANK", "")
    return Judged(process, Path(outcome), environment[rank_pipe.LIFE], local_rank) if outcome else process


def crash_of(outcome: Path, local_rank: int, pid: int) -> tuple[str, str]:
    """What `Judged` found of a rank: why it failed though it ended with 0, and the error; empty if it did not."""
    row = read_object(outcome / f"{local_rank}.crash")
    return (str(row.get("why", "")), str(row.get("error", ""))) if row.get("pid") == pid else ("", "")
