"""What a node's agent tells of its ranks' begins and ends, as events in the run folder, and who failed first."""

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
from ..ending import outside, script_verdict, training_alone
from ..ending.culprit import Failure, first_to_fail
from ..ending.rank_lives import Ends, Life, Memory, ended_how, ended_why
from ..files import work
from ..hang import stacks, stuck_ranks
from ..membership.members import Epoch
from ..rank.mask import Mask

# The story of the run shows so many paths, and counts the others.
_PATHS_MOST, _PATH_MOST = 5, 200
# How a rank ends that a stop has ended, at once or because it still ran later.
_BY_STOP = {-number: number.name for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)}
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


class Diary:
    """Reads `outcome`, where torchrun and its ranks leave word, and tells the run folder, if there is one.

    `file_of`: the number of the file for the events of a rank (variables.py). `hidden`: the secrets; ranks write names
    of files and functions, and a crash writes them past every mask of the rank's own.
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
        # How the last life ended that failed, its successor's meanwhile included.
        self.died = ""
        self._expected: dict[int, tuple[str, dict[str, str]]] = {}
        self._folders: dict[int, RankFolder] = {}
        # The ranks end because another role has ended the run: their ends are no failures.
        self.released = False
        # Once the node is asked to stop: the ranks that it kills because they still run later.
        self.cut: list[int] | None = None

    @property
    def lives(self) -> Sequence[Life]:
        """The present life of each rank of the node."""
        return list(self._ends.lives.values())

    @property
    def work_folder(self) -> Path | None:
        """Where the script works, in a run folder."""
        return self.run_folder and self.run_folder / work.WORK

    @property
    def first_rank(self) -> int:
        """The first of the node's ranks, as they are numbered now."""
        return min((life.rank for life in self.lives), default=0)

    @property
    def first_failure(self) -> float:
        """When the first of the present lives failed, in unix seconds; infinite if none has."""
        return min((life.ended for life in self.lives if life.failed), default=float("inf"))

    @property
    def failures(self) -> Sequence[Failure]:
        """The present lives that have failed."""
        return list(self._failures.values())

    @property
    def culprit(self) -> Failure | None:
        """The rank that failed first and is not a victim."""
        return first_to_fail(self._failures.values())

    def keep(self, words: Callable[[int], str]) -> None:
        """Tell of what is new. `words` gives the last that a local rank printed, if the agent reads that."""
        for life in self._ends.read():
            if life.code is None:
                self._failures.pop(life.local_rank, None)
                self.event("began", life.rank, attempt=life.attempt, world=life.world, pid=life.pid)
                continue
            if self.released and life.failed:
                self._tell_end(life, DONE, "was stopped: the run is over", script_verdict.LastWords())
                continue
            oom = self._memory.killed() if life.code == -signal.SIGKILL else None
            expected = self._expected.pop(life.pid, None) if life.code == -signal.SIGKILL else None
            how, about = expected or self._how(life, oom)
            # Who is killed from outside has not said why, and its last lines would hide what the kernel says.
            mute = oom is False and not expected and not self._launcher
            last_words = self._last_words(words, life) if life.failed and not mute else script_verdict.LastWords()
            if self.cut is None and script_verdict.is_handed_on(life, last_words):
                about = {**about, "cause": ""}
            if life.failed:
                self._failures[life.local_rank] = Failure(life, last_words, how, about.get("cause", ""))
                self.died = f"{how}: {last_words.error}" if last_words.error else how
            self._tell_end(life, life.code, how, last_words, about)

    def _how(self, life: Life, oom: bool | None) -> tuple[str, dict[str, str]]:
        """How a rank ended, in words; and what of it is known besides: the `cause`, and the `place` in the script."""
        if life.crash:
            return self.shown(f"ended with code 0, but {life.crash.why}"), {"cause": life.crash.cause}
        by = _BY_STOP.get(life.code or 0)
        if by and self.cut is not None and (by != "SIGKILL" or life.rank in self.cut):
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
        """Tell of something that a rank of this node does, or that happens to it."""
        if folder := self._folder(rank):
            folder.event(kind, **about)

    def expect_end(self, life: Life, about: Mapping[str, Any]) -> None:
        """The agent is about to end this rank, which is stuck; `about` says where."""
        place = self.shown(f"{about['file']}:{about['line']}") if about.get("file") else ""
        what, cause = "was stuck", "locked-up"
        if about["doing"] == "stopped":
            what, cause = "was stopped by a signal (SIGSTOP)", "stopped"
        in_it = f" in {place}" if place else ""
        how = f"{what}{in_it} for {about['since_s']:.0f} s, and its node ended it"
        self._expected[life.pid] = how, {"cause": cause}

    def tell_asked(self, grace_s: float) -> None:
        """Tell that the ranks were asked to stop, and how long they may take."""
        self.cut = []
        self.event("asked", self.first_rank, grace_s=grace_s)

    def tell_put_aside(self, about: Mapping[str, Any]) -> None:
        """Tell what earlier starts wrote, and where it is kept, or why it is not."""
        self.event("put_aside", self.first_rank, **about)

    def tell_conflicts(self, first: int, paths: Sequence[str]) -> None:
        """Tell which sent files are not used, because the script has its own; `first`: the node's first rank."""
        self.event("conflicts", first, paths=[path[-_PATH_MOST:] for path in paths[:_PATHS_MOST]], count=len(paths))

    def tell_members(
        self, epoch: Epoch, planned: Sequence[str], spares: Sequence[str], left: Sequence[str] = ()
    ) -> None:
        """Report the new members; only the node that has rank 0 does. `left`: nodes that left on request."""
        who = {"members": epoch.members, "before": epoch.before, "planned": len(planned)}
        left = [name for name in left if name not in epoch.members]
        more = {"spares": spares} if spares else {}
        self.event("members", 0, epoch=epoch.number, **who, **more, **({"left": left} if left else {}))

    def tell_torchrun(self, code: int, words: Callable[[int], str]) -> None:
        """Report that torchrun failed before its ranks had ended. They end with it, and nothing else reports them."""
        if code > 0:  # it lost its own peers: a rank that was about to end for the same reason says where it was
            for life in self.lives:
                if life.code is None and (lost := self._last_words(words, replace(life, code=FAILED))).victim:
                    self._tell_end(life, FAILED, "ended with its torchrun", lost)
            return
        oom = self._memory.killed() if code == -signal.SIGKILL else None
        of_host = self._memory.of_host()
        how, cause = f"lost its torchrun, which {ended_how(code, oom, of_host)}", ended_why(code, oom, of_host)
        if not self.lives:  # nobody else has any words
            print(f"{self.node} {how}, before any rank started", file=sys.stderr, flush=True)
        for life in self.lives:
            if life.code is None:
                self._tell_end(life, code, how, script_verdict.LastWords(), {"cause": cause})

    def tell_kept(self, first: int, left: work.FileTotals, elsewhere: Iterable[outside.Outside]) -> None:
        """Tell how much the node's script has left in its folder and its home, and what lies where nothing is kept.

        `first`: the node's first rank. A run that is stopped early has files of ranks that nobody has noted yet.
        """
        self.event("kept", first, **asdict(left))
        for place in elsewhere:
            self.event("outside", first, **asdict(place))

    def _crash_place(self, life: Life) -> str:
        """Where in the script a rank was that crashed."""
        if -(life.code or 0) not in _CRASHES or not (look := stacks.at_crash(self._outcome, life.local_rank)):
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
        heard = script_verdict.listen(words(life.local_rank), life, self._launcher)
        if life.crash and life.crash.error:
            error = self.shown(life.crash.error)[: script_verdict.LINE_MOST]
            return script_verdict.or_noted(replace(heard, error="", victim=False), error)
        return heard if self._launcher else script_verdict.or_noted(heard, noted.error)

    def _noted(self, life: Life) -> script_verdict.LastWords:
        """The exception that ended a rank, as it noted itself (rank/steps/watcher.py); ours know a lost peer."""
        note = training_alone.error_of(self._outcome, life.pid)
        error = self.shown(" ".join(str(note.get("error", "")).split()))[: script_verdict.LINE_MOST]
        return script_verdict.LastWords((), error, victim=note.get("victim") is True)

    def _folder(self, rank: int) -> RankFolder | None:
        """Where a rank's events are; None without a run folder, or where its disk takes no more."""
        if self.run_folder and rank not in self._folders:
            with suppress(OSError):
                about = (self.node, self._file_of(rank), self.shown, self._launcher)
                self._folders[rank] = RankFolder(self.run_folder, rank, *about)
        return self._folders.get(rank)
