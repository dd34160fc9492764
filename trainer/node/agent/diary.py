"""The events that a node's agent writes into the run folder: how its ranks begin and end, and which failed first."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from muster.errors import DONE, FAILED

from ...run_dir import RankFolder
from ..ending import outside_files, script_verdict, training_alone
from ..ending.culprit import Failure, first_to_fail
from ..ending.rank_lives import Ends, Life, Memory, ended_how, ended_why
from ..files import work
from ..hang import stacks, stuck_ranks
from ..membership.members import Epoch
from ..rank.mask import Mask

# How many paths the run's story shows (it counts the other paths), and how many characters of each.
_PATHS_MOST, _PATH_MOST = 5, 200
# The signals by which a stop ends a rank: the request itself, or the later kill of a rank that still runs.
_STOP_SIGNALS = {-number: number.name for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)}
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


class Diary:
    """Reads the notes of torchrun and its ranks in `outcome`, and writes events into the run folder, if there is one.

    `file_of`: the number of the file for a rank's events (variables.py). `hidden`: the secrets, which are masked here:
    ranks write names of files and functions, and a crash writes them without the rank's own mask.
    """

    def __init__(
        self,
        run_folder: Path | None,
        node: str,
        outcome: Path,
        file_of: Callable[[int], int] = lambda rank: rank,
        hidden: Sequence[str] = (),
    ) -> None:
        self._file_of, self.shown = file_of, Mask(hidden).text if hidden else str
        self._launcher = bool(os.environ.get("MUSTER_LAUNCHER_RANKS"))
        self.run_folder, self.node, self._outcome = run_folder, node, outcome
        self._ends, self._memory = Ends(outcome), Memory()
        self._failures: dict[int, Failure] = {}
        # How the latest failed life ended; it stays when the rank has been started again since.
        self.last_failure = ""
        self._expected: dict[int, tuple[str, dict[str, str]]] = {}
        self._folders: dict[int, RankFolder] = {}
        # Whether the ranks end because another role has ended the run: then their ends are no failures.
        self.is_released = False
        # None until the node is asked to stop; then the ranks that it kills because they still run after the grace.
        self.killed_by_stop: list[int] | None = None

    @property
    def lives(self) -> Sequence[Life]:
        """The current life of each of the node's ranks."""
        return list(self._ends.lives.values())

    @property
    def work_folder(self) -> Path | None:
        """The run's work folder, in which the script runs; None without a run folder."""
        return self.run_folder and self.run_folder / work.WORK

    @property
    def first_rank(self) -> int:
        """The node's lowest rank number at this moment."""
        return min((life.rank for life in self.lives), default=0)

    @property
    def first_failure(self) -> float:
        """When the first of the current lives failed, in unix seconds; infinite if none has."""
        return min((life.ended for life in self.lives if life.failed), default=float("inf"))

    @property
    def failures(self) -> Sequence[Failure]:
        """The current lives that have failed."""
        return list(self._failures.values())

    @property
    def culprit(self) -> Failure | None:
        """The rank that failed first and is not a victim."""
        return first_to_fail(self._failures.values())

    def record_news(self, words: Callable[[int], str]) -> None:
        """Write events for all that is new. `words` returns a local rank's last output, if the agent reads it."""
        for life in self._ends.read():
            if life.code is None:
                self._failures.pop(life.local_rank, None)
                self.event("began", life.rank, attempt=life.attempt, world=life.world, pid=life.pid)
                continue
            if self.is_released and life.failed:
                self._tell_end(life, DONE, "was stopped: the run is over", script_verdict.LastWords())
                continue
            oom = self._memory.killed() if life.code == -signal.SIGKILL else None
            expected = self._expected.pop(life.pid, None) if life.code == -signal.SIGKILL else None
            how, about = expected or self._how(life, oom)
            # A rank that was killed from outside has not printed why; its last lines would hide the kernel's report.
            mute = oom is False and not expected and not self._launcher
            last_words = self._last_words(words, life) if life.failed and not mute else script_verdict.LastWords()
            if self.killed_by_stop is None and script_verdict.is_handed_on(life, last_words):
                about = {**about, "cause": ""}
            if life.failed:
                self._failures[life.local_rank] = Failure(life, last_words, how, about.get("cause", ""))
                self.last_failure = f"{how}: {last_words.error}" if last_words.error else how
            self._tell_end(life, life.code, how, last_words, about)

    def _how(self, life: Life, oom: bool | None) -> tuple[str, dict[str, str]]:
        """How a rank ended, in words; with the `cause` and the `place` in the script, if they are known."""
        if life.crash:
            return self.shown(f"ended with code 0, but {life.crash.why}"), {"cause": life.crash.cause}
        by = _STOP_SIGNALS.get(life.code or 0)
        if by and self.killed_by_stop is not None and (by != "SIGKILL" or life.rank in self.killed_by_stop):
            return f"was ended by the request to stop ({by})", {"cause": "ended-from-outside"}
        end = life.code or 0, oom, self._memory.of_host()
        place = self._crash_place(life)
        in_it = f" in {place}" if place else ""
        return ended_how(*end) + in_it, {"cause": ended_why(*end), "place": place}

    def _tell_end(
        self,
        life: Life,
        code: int,
        how: str,
        last_words: script_verdict.LastWords,
        more: Mapping[str, str] | None = None,
    ) -> None:
        about: dict[str, Any] = {"attempt": life.attempt, "world": life.world, "pid": life.pid, "code": code}
        about |= {"how": how, "victim": last_words.victim, "error": last_words.error[: script_verdict.LINE_MOST]}
        about |= {name: text for name, text in (more or {}).items() if text}
        if code and (rows := self._collectives(life)):
            about["collectives"] = rows
        self.event("ended", life.rank, **about)

    def event(self, kind: str, rank: int, **about: Any) -> None:
        """Write an event about a rank of this node."""
        if folder := self._folder(rank):
            folder.event(kind, **about)

    def expect_end(self, life: Life, about: Mapping[str, Any]) -> None:
        """Note that the agent is about to kill this rank because it is stuck; `about` describes where."""
        place = self.shown(f"{about['file']}:{about['line']}") if about.get("file") else ""
        what, cause = "was stuck", "locked-up"
        if about["doing"] == "stopped":
            what, cause = "was stopped by a signal (SIGSTOP)", "stopped"
        in_it = f" in {place}" if place else ""
        how = f"{what}{in_it} for {about['since_s']:.0f} s, and its node ended it"
        self._expected[life.pid] = how, {"cause": cause}

    def report_stop_request(self, grace_s: float) -> None:
        """Report that the ranks were asked to stop, and how many seconds they may take."""
        self.killed_by_stop = []
        self.event("asked", self.first_rank, grace_s=grace_s)

    def report_earlier_files(self, about: Mapping[str, Any]) -> None:
        """Report what earlier starts wrote, and where it is kept, or why it is not kept."""
        self.event("put_aside", self.first_rank, **about)

    def report_conflicts(self, first: int, paths: Sequence[str]) -> None:
        """Report which sent files are not used because the script's own are kept. `first`: the node's first rank."""
        self.event("conflicts", first, paths=[path[-_PATH_MOST:] for path in paths[:_PATHS_MOST]], count=len(paths))

    def report_members(
        self, epoch: Epoch, planned: Sequence[str], spares: Sequence[str], left: Sequence[str] = ()
    ) -> None:
        """Report the new members; only the node with rank 0 calls this. `left`: nodes that left on request."""
        who = {"members": epoch.members, "before": epoch.before, "planned": len(planned)}
        left = [name for name in left if name not in epoch.members]
        more = {"spares": spares} if spares else {}
        self.event("members", 0, epoch=epoch.number, **who, **more, **({"left": left} if left else {}))

    def report_torchrun_end(self, code: int, words: Callable[[int], str]) -> None:
        """Report that torchrun failed before its ranks had ended. They end with it, and nothing else reports that."""
        if code > 0:  # torchrun lost its peers; a rank that was about to fail for the same reason has printed where
            for life in self.lives:
                if life.code is None and (lost := self._last_words(words, replace(life, code=FAILED))).victim:
                    self._tell_end(life, FAILED, "ended with its torchrun", lost)
            return
        oom = self._memory.killed() if code == -signal.SIGKILL else None
        of_host = self._memory.of_host()
        how, cause = f"lost its torchrun, which {ended_how(code, oom, of_host)}", ended_why(code, oom, of_host)
        if not self.lives:  # no rank exists whose event could tell it
            print(f"{self.node} {how}, before any rank started", file=sys.stderr, flush=True)
        for life in self.lives:
            if life.code is None:
                self._tell_end(life, code, how, script_verdict.LastWords(), {"cause": cause})

    def report_written_files(
        self, first: int, left: work.FileTotals, elsewhere: Iterable[outside_files.OutsideFiles]
    ) -> None:
        """Report how much the script has left in its folder and its home, and what it left where nothing is kept.

        `first`: the node's first rank. The caller passes it, since in a run that is stopped early, ranks may have
        written files before they were noted here.
        """
        self.event("kept", first, **asdict(left))
        for place in elsewhere:
            self.event("outside", first, **asdict(place))

    def _crash_place(self, life: Life) -> str:
        """Where in the script a rank crashed, as `file:line`; empty if it did not crash or the place is unknown."""
        if -(life.code or 0) not in _CRASHES or not (look := stacks.read_crash(self._outcome, life.local_rank)):
            return ""
        about = stuck_ranks.describe(look, self.work_folder)
        return self.shown(f"{about['file']}:{about['line']}") if about.get("file") else ""

    def _collectives(self, life: Life) -> list[list[Any]]:
        rows = stacks.last_collectives(self._outcome, life.local_rank, life.pid)
        return stuck_ranks.collectives(rows, self.work_folder)

    def _last_words(self, words: Callable[[int], str], life: Life) -> script_verdict.LastWords:
        noted = self._noted(life)
        if noted.victim:
            return noted
        heard = script_verdict.read_last_words(words(life.local_rank), life, self._launcher)
        if life.crash and life.crash.error:
            error = self.shown(life.crash.error)[: script_verdict.LINE_MOST]
            return script_verdict.with_noted_error(replace(heard, error="", victim=False), error)
        return heard if self._launcher else script_verdict.with_noted_error(heard, noted.error)

    def _noted(self, life: Life) -> script_verdict.LastWords:
        """The exception that ended a rank, from its own note (rank/steps/watcher.py).

        A rank of Muster's own trainer also notes whether it only lost a peer (`victim`).
        """
        note = training_alone.error_of(self._outcome, life.pid)
        error = self.shown(" ".join(str(note.get("error", "")).split()))[: script_verdict.LINE_MOST]
        return script_verdict.LastWords((), error, victim=note.get("victim") is True)

    def _folder(self, rank: int) -> RankFolder | None:
        """The folder of a rank's events; None without a run folder, or if its disk is full."""
        if self.run_folder and rank not in self._folders:
            with suppress(OSError):
                about = (self.node, self._file_of(rank), self.shown, self._launcher)
                self._folders[rank] = RankFolder(self.run_folder, rank, *about)
        return self._folders.get(rank)
