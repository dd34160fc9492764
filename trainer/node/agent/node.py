"""The agent's main loop: starts torchrun and its ranks on one node, watches them, asks them to stop, finds their code.

It also masks secrets in what they print, and decides which processes get SIGTERM. The agent (agent.py) prepares all
this and reports how it ended. Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.errors import DONE, FAILED, REFUSED, SIGNALLED, STOPPED, TrainError
from muster.stop import UNASKED, began

from ... import with_muster
from ...verdict import Verdict, failed, publish, verdict_of
from .. import processes, variables
from ..ending import training_alone
from ..ending.rank_lives import Life
from ..files import earlier
from ..hang.end_stuck_rank import StuckRankEnder
from ..hang.links import Links
from ..hang.stuck_ranks import StuckRanks
from ..hang.throttle import Throttle
from ..launch import rank_pipe
from ..membership.all_nodes import AllNodesMember
from ..membership.min_nodes import Group
from ..notes import Journal
from ..parent_death import die_with_parent, input_is_closed
from ..roles.role_node import RoleNode
from .diary import Diary
from .limit import Limit, grace
from .output import Output

_POLL_SECONDS = 0.1
# How long torchrun may still run after a verdict. Usually it ends soon, and the other nodes reach the same verdict. If
# this node's ranks trained alone, torchrun waits for nodes that will not come, and the other nodes need only a second
# to find that theirs trained alone too.
_FINISH_SECONDS, _ALONE_FINISH_SECONDS = 10.0, 1.0
# The variable with the user's --grace: how long ranks may take to end once they are asked to stop.
GRACE = "MUSTER_GRACE"
# Signals that are passed on to the script: Slurm and Lightning ask for a checkpoint with them.
_PASSED_ON, _MOST_HEARD = (signal.SIGUSR1, signal.SIGUSR2), 16


class Node:
    """torchrun and its ranks on this node.

    `relay`: their output passes through the agent, so that `diary` can use it; each of the `hidden` values in it
    becomes `***`.
    """

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        outcome: Path,
        diary: Diary,
        limit: Limit,
        relay: bool = False,
        hidden: Sequence[str] = (),
        group: Group | None = None,
        member: AllNodesMember | None = None,
    ) -> None:
        self.limit, self._group = limit, group
        self._command, self.outcome, self.diary, self._relay = command, outcome, diary, relay
        self._hidden = hidden
        environment = (
            training_alone.with_watcher(environment) if relay else {**with_muster(environment), "PYTHONSAFEPATH": "1"}
        )
        self._environment = {**environment, "MUSTER_OUTCOME_DIR": str(outcome)}
        self._restarted_by_host = environment.get("MUSTER_RESTARTED_BY_HOST") == "1"
        self._last_attempt = variables.number(environment, "PET_MAX_RESTARTS", 0)
        # If the user's launcher has started the ranks, only that launcher may end them.
        restarts = 0 if environment.get("MUSTER_LAUNCHER_RANKS") else self._last_attempt
        self._stuck_rank_ender = StuckRankEnder(restarts, group or member, group is not None)
        self._given_up = self._killed = self._interrupted = False
        self._signalled, self._heard = set[int](), list[int]()
        # Each rank's newest note about stopping (muster/stop.py), and each verdict by the process that left it.
        self._journal, self._stops, self._verdicts_by = Journal(outcome), dict[str, Any](), dict[str, Verdict]()
        # When the node was asked to stop, in unix seconds, and how many seconds its ranks may then still run.
        self.asked_at = float("inf")
        self.grace = grace(environment.get(GRACE, ""), environment.get("PET_SHUTDOWN_TIMEOUT", ""))
        # If the backend signals every process of a node, torchrun ignores SIGTERM.
        self._all_signalled = environment.get("MUSTER_ALL_SIGNALLED") == "1"
        self._ending = signal.SIGQUIT if self._all_signalled else signal.SIGTERM
        self.leaves = self.judged = False
        # In a run of several roles: this node's part in it, and whether it was stopped because the run is over.
        self.role_node: RoleNode | None = None
        self.is_released, self._release_ends = False, float("inf")

    def run(self) -> int:
        """Start torchrun and watch it until it ends; returns this node's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        for number in _PASSED_ON:
            signal.signal(number, self._hear)
        # While Slurm still starts the step, a signal reaches no process. So stop_job.sh first writes the file `.stop`.
        if self.diary.run_folder and (self.diary.run_folder / ".stop").exists():
            self._ask(signal.SIGINT)
        with suppress(OSError):
            (self.outcome / UNASKED).touch()
        # If there are no secrets, the ranks of Muster's own trainer write their logs themselves.
        relays = self._relay or bool(self._hidden)
        output = Output(self.outcome, self.diary.run_folder, self._environment, self._hidden) if relays else None
        pipes = output.pipes if output else []
        torchrun = subprocess.Popen(
            self._command,
            env={**self._environment, **rank_pipe.pipe_variables(pipes)},
            pass_fds=pipes,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if relays else None,
            stderr=subprocess.PIPE if relays else None,
            start_new_session=True,  # so that the agent alone gets a Ctrl-C of the terminal, and passes it on once
            # SIGKILL, not SIGTERM: the other nodes must not take a lost node for a request to stop the run.
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),
        )
        if output:
            output.follow(torchrun)
        # The ranks of Muster's own trainer report in their verdicts why they failed.
        words = output.words if output and self._relay else lambda _: ""
        self._watch(torchrun, words)
        self.diary.record_news(words)
        if torchrun.returncode < 0:
            self._end_left_behind()
        if torchrun.returncode and not (self._asked or self._killed or self.verdicts()):
            self.diary.report_torchrun_end(torchrun.returncode, words)
        if output:
            output.finish()
        return self._code(torchrun.returncode)

    def _ask(self, number: int, *_: Any) -> None:
        if number == signal.SIGTERM and self._restarted_by_host:
            self.leaves = True
        else:
            self.asked_at = min(self.asked_at, time.time())
            if self._group:
                self._group.note_stop_request()
            if self.role_node:
                self.role_node.ask()

    @property
    def _asked(self) -> bool:
        return self.asked_at < float("inf")

    def _failed_before(self) -> bool:
        """Whether a rank had failed for good before this node was asked to stop."""
        lives = self.diary.lives
        return self.diary.first_failure < self.asked_at and all(life.attempt >= self._last_attempt for life in lives)

    def _watch(self, torchrun: subprocess.Popen[bytes], words: Callable[[int], str]) -> None:
        kill_at, asked = float("inf"), False
        stuck, links = StuckRanks(self.outcome, self.diary.work_folder), Links()
        # Muster's own trainer always joins its ranks, so this need not be checked.
        may_be_alone = not self._relay or self._environment.get("MUSTER_SEPARATE") == "1"
        throttle, alone = Throttle(), training_alone.AloneWatch(self.outcome, may_be_alone, self._command)
        before = earlier.Earlier(
            self.outcome, self.diary.run_folder if self._relay else None, self.diary.report_earlier_files
        )
        while torchrun.poll() is None:
            if input_is_closed():
                self._ask(signal.SIGINT)
            self._report_members()
            self.diary.record_news(words)
            self._pass_on()
            for rank, about in stuck.look(self.diary.lives):
                self.diary.event("stuck", rank, **about) if about else self.diary.event("moves", rank)
            self._end_stuck_ranks(stuck)
            before.look(self.diary.lives)
            for rank, ends in links.look(self.diary.lives, torchrun.pid):
                self.diary.event("links", rank, **ends)
            for rank, held in throttle.look(self.diary.lives):
                self.diary.event("throttled", rank, **held)
            for rank, why in alone.look(self.diary.lives):
                self.diary.event("alone", rank, **why)
            if alone.final and not self._asked and not self.verdicts():
                self._give_up(alone.final)
            now = time.monotonic()
            if self.limit.look():
                self._ask(signal.SIGINT)
            if self.role_node:
                kill_at = min(kill_at, self._follow_role(self.role_node, torchrun, now))
            if self._asked and (self.role_node is None or self.role_node.may_stop()):
                if not asked:
                    kill_at, asked = now + self.grace, True
                    self.diary.report_stop_request(self.grace)
                self._ask_ranks(torchrun)
            self._judge_leavers()
            # If the nodes have agreed that the run has failed, this node's ranks may wait for ranks that are gone.
            has_failed = self._group and self._group.epoch.over == FAILED
            if kill_at == float("inf") and (self.verdicts() or has_failed):
                kill_at = now + (_ALONE_FINISH_SECONDS if alone.final else _FINISH_SECONDS)
            if now > kill_at or self.leaves or self._is_out():
                if asked and now > kill_at:
                    self.diary.killed_by_stop = [
                        life.rank for life in self.diary.lives if life.code is None and processes.is_alive(life.pid)
                    ]
                self._killed = True
                torchrun.kill()
            _wait(torchrun, _POLL_SECONDS)
        before.finish()

    def _give_up(self, of: training_alone.AloneReason) -> None:
        """End the run: this node's ranks wait where no other node can join them, or have trained without the others."""
        fault = TrainError(f"its ranks {'wait' if of.waits else 'trained'} alone: {of.why}", of.hint)
        self._end_run(fault, "trained-alone")

    def _end_run(self, fault: TrainError, cause: str, life: Life | None = None) -> None:
        """Publish the verdict that this fault, which this node found, ends the run. `life`: of the rank at fault."""
        rank, who = (life.rank, str(life.local_rank)) if life else (self.diary.first_rank, "agent")
        verdict = failed(rank, self.diary.node, 0, fault, cause)
        publish(verdict, self.diary.run_folder, f"{self.diary.node}-{who}", self.outcome)

    def _follow_role(self, role_node: RoleNode, torchrun: subprocess.Popen[bytes], now: float) -> float:
        """Follow the run's other roles: stop this node's ranks once the run is over. Returns when to kill torchrun."""
        if (why := role_node.look(self.diary.lives, self.diary.last_failure)) and not self.verdicts():
            self._end_run(TrainError(why, f"logs/{self.diary.node}.log has what it printed"), "not-ready")
            return 0.0
        if not (self.is_released or self._asked or self.verdicts()) and role_node.over and role_node.may_stop():
            self.is_released = self.diary.is_released = True
            self._release_ends = now + role_node.role.grace
        if self.is_released:
            self._release_ranks(torchrun)
        return self._release_ends

    def _release_ranks(self, torchrun: subprocess.Popen[bytes]) -> None:
        """Ask every rank to end. Once none lives, kill torchrun, which would start them again."""
        self._ask_ranks(torchrun)
        if not self._living():
            self._killed = True
            torchrun.kill()

    def _end_stuck_ranks(self, stuck: StuckRanks) -> None:
        """End the ranks that are stuck for good: torchrun then starts all ranks again."""
        if self._asked or self.verdicts():
            return
        for rank in self._stuck_rank_ender.look(self.diary.lives, stuck.stuck_ranks(self.diary.lives)):
            self.diary.expect_end(rank.life, rank.about)
            _send(rank.life.pid, signal.SIGKILL)

    def _report_members(self) -> None:
        """Report each epoch that this node is first in, before its ranks begin, and living nodes that are left out."""
        if self._group and (epoch := self._group.news()):
            self.diary.report_members(epoch, self._group.planned, self._group.spares, self._group.leavers(epoch.before))
        for name, others in self._group.cut_off_nodes() if self._group else ():
            self.diary.event("apart", 0, left_out=name, others=others)

    def _is_out(self) -> bool:
        """Whether the other nodes continue without this node, or have ended without it."""
        if self._group is None:
            return False
        if (self._group.epoch.over is not None and self._group.is_waiting()) or self._group.has_left:
            return True
        if why := self._group.reason_to_end():
            print(f"muster: {why}", file=sys.stderr, flush=True)
        return bool(why)

    def _judge_leavers(self) -> None:
        """End the run if a rank of Muster's own trainer ended with code 0 but no verdict: the others wait for it."""
        self._read_journal()
        for life in () if self._relay else self.diary.lives:
            if life.code == DONE and not any(by.endswith(f"-{life.local_rank}") for by in self._verdicts_by):
                why = TrainError(
                    f"rank {life.rank} left with code 0 before the end of the run, and the others wait for it",
                    f"does the recipe call sys.exit? logs/rank-{life.rank}.log shows its last words",
                )
                self._end_run(why, "left-early", life)

    def _ask_ranks(self, torchrun: subprocess.Popen[bytes]) -> None:
        """Ask the ranks to stop, each by itself; torchrun only if no rank lives.

        torchrun would leave the other nodes' torchruns waiting for it, and signal all processes that the ranks have
        started, such as the workers of a DataLoader that a rank still needs.

        The loop calls this again and again, so a rank that starts later is asked as well. If no rank lives (none has
        begun yet, or they died and wait for a peer to begin again), there is nothing to save, and torchrun would wait
        in vain.
        """
        living = self._living()
        if self.verdicts() or self._given_up:
            return
        self._interrupted |= bool(living)
        # While this file exists, a rank takes a signal for one of torchrun's.
        (self.outcome / UNASKED).unlink(missing_ok=True)
        for process in set(self._signal_targets(living)) - self._signalled:
            self._signalled.add(process)
            _send(process, signal.SIGTERM)
        if not living:
            self._given_up = True
            torchrun.send_signal(self._ending)

    def _read_journal(self) -> None:
        for row in self._journal.read():
            if verdict := verdict_of(row.get("verdict")):
                self._verdicts_by[str(row.get("by"))] = verdict
            if "stops" in row:
                self._stops[str(row["stops"])] = row

    def _listening(self) -> set[int]:
        """The processes of ranks that have noted that they handle a stop request (muster/stop.py)."""
        self._read_journal()
        pids = ((row.get("listens"), row.get("began")) for row in self._stops.values())
        return {pid for pid, since in pids if isinstance(pid, int) and began(pid) == since}

    def _living(self) -> list[int]:
        """The processes of ranks that may have something to save.

        A rank that has just ended counts until torchrun has seen that: a torchrun that is asked to end before would not
        note how the rank ended.
        """
        started = {life.pid for life in self.diary.lives if life.code is None} if self._relay else set[int]()
        return sorted(filter(processes.exists, self._listening() | started))

    def _end_left_behind(self) -> None:
        """Kill the ranks of a torchrun that was killed, and what they started. Only Linux kills the ranks by itself.

        If this node's role has been released, ranks that have ended are left alone: a rank that ended as asked may have
        left a process that still saves.
        """
        running = () if self.is_released else (life.pid for life in self.diary.lives if life.code is None)
        for rank in {*self._living(), *running}:
            _send(-rank, signal.SIGKILL)

    def _signal_targets(self, living: Sequence[int]) -> list[int]:
        """The processes to which a signal for the script is sent; a negative number is a whole process group.

        A launcher would pass the signal on to everything that it has started, or to nothing. So the processes that
        train get it directly. If none trains any more, the launcher's whole process group gets it.
        """
        if self._all_signalled:  # the backend has signalled all: a script's own handler would be called twice
            return [rank for rank in living if rank in self._listening()]
        if not self._environment.get("MUSTER_LAUNCHER_RANKS"):
            return list(living)
        trains = [process for process in training_alone.trained_processes(self.outcome) if processes.is_alive(process)]
        return trains or [-life.pid for life in self.diary.lives if life.pid in living]

    def _hear(self, number: int, *_: Any) -> None:
        self._heard = [*self._heard, number][-_MOST_HEARD:]

    def _pass_on(self) -> None:
        """Pass the signals for the script on, as soon as ranks live."""
        if self._heard and (living := self._living()):
            heard, self._heard = self._heard, []
            for process in [] if self._all_signalled else self._signal_targets(living):
                for number in heard:
                    _send(process, number)

    def verdicts(self) -> Collection[Verdict]:
        """The verdicts that this node and its ranks have left."""
        self._read_journal()
        return self._verdicts_by.values()

    def _code(self, torchrun_code: int) -> int:
        if self.is_released or (self._group and self._group.has_left):
            return DONE
        codes = [verdict.code for verdict in self.verdicts()]
        self.judged = bool(codes)
        if self.leaves and not codes:
            return SIGNALLED + signal.SIGTERM
        if codes:
            return max(codes, key=lambda code: (code == REFUSED, code == FAILED, code == STOPPED))
        if self._group and self._group.epoch.over is not None and not self._asked:
            return self._group.epoch.over
        # Ranks that stopped as asked have not failed, so torchrun may end with code 0.
        stopped = any(row.get("stopped") for row in self._stops.values())
        obeyed = self._asked and (torchrun_code or self._interrupted or stopped)
        if obeyed and not self._failed_before():
            return STOPPED
        return FAILED if torchrun_code else DONE


def _send(process: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _wait(torchrun: subprocess.Popen[bytes], seconds: float) -> None:
    # Popen.wait polls every few milliseconds, on a core that a rank computes on; a pidfd needs no polling.
    try:
        handle = os.pidfd_open(torchrun.pid)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):  # the system, the kernel (before 5.3) or the container does not offer it
        with suppress(subprocess.TimeoutExpired):
            torchrun.wait(seconds)
        return
    try:
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
