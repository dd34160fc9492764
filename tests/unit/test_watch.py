"""Following a run: what its events mean, when it is over, who is named. Files are real; time is an argument."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.ending import FIRST_NODE_S, START_SPREAD_S, all_ended, from_verdicts, judge, may_restart
from deploy.facts import NodeState
from deploy.progress import State
from deploy.watch import Follower

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


def test_a_run_that_trains_goes_on() -> None:
    assert judge(run_of(*training()), started_at=0.0, now=12.0) is None


def test_the_first_failed_rank_outranks_those_that_stopped_with_it() -> None:
    result = from_verdicts([verdict("stopped", "master", 0), verdict("failed"), verdict("failed", "worker-2", 2)])
    assert (result.verdict, result.node, result.rank, result.from_ranks) == ("failed", "worker-1", 1, True)


def test_a_rank_that_starts_again_under_the_same_pid_is_a_restart() -> None:
    state = run_of(*training(240), {"kind": "started", "rank": 0, "node": "master", "pid": 100})
    assert (state.restarts, state.step) == (1, 240)


def test_the_first_to_fail_speaks_and_the_others_are_only_named() -> None:
    first = {**verdict("failed", "b", 1), "message": "train.py ended with code 3\n    last words"}
    result = from_verdicts([first, *(verdict("failed", node, 2) for node in "acdefg"), verdict("stopped", "h", 9)])
    head, last = result.message.splitlines()
    assert head == "train.py ended with code 3 (a, c, d, e and 2 more failed as well)"
    assert last == "    last words"


def test_a_host_that_is_lost_is_named_before_those_that_missed_it() -> None:
    lost = {"kind": "node", "t": 12.0, "node": "worker-2", "state": "lost", "code": None, "restarts": 0}
    result = judge(run_of(*training(), exited("worker-1", -9), lost), 0.0, 15.0)
    assert result is not None
    assert (result.verdict, result.node) == ("failed", "worker-2")
    assert "out of sight" in result.message


@pytest.mark.parametrize(("kind", "code"), [("done", 0), ("failed", 1), ("refused", 2), ("stopped", 75)])
def test_a_verdict_decides_the_exit_code(kind: str, code: int) -> None:
    result = judge(run_of(*training(), verdict(kind)), 0.0, 12.0)
    assert result is not None
    assert (result.verdict, result.code) == (kind, code)


def test_a_node_that_never_starts_ends_the_run_by_name() -> None:
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


def test_a_killed_node_is_named_with_rank_signal_and_step_before_those_that_missed_it() -> None:
    state = run_of(*training(), exited("master", 1), exited("worker-2", -9, t=11.5))
    assert judge(state, 0.0, 11.6) is None, "a ground may be about to start it again"
    result = judge(state, 0.0, 14.0)
    assert result is not None
    assert (result.verdict, result.node, result.rank, result.step) == ("failed", "worker-2", 2, 240)
    assert "worker-2 (rank 2) was killed by SIGKILL at step 240" in result.message


def test_a_node_that_refused_points_to_its_log() -> None:
    result = judge(run_of(*all_up(), *(exited(name, 2) for name in NAMES)), 0.0, 20.0)
    assert result is not None
    assert (result.verdict, result.code) == ("refused", 2)
    assert "logs/master.log" in result.hint


def test_silence_ends_a_run_only_beyond_anything_it_has_shown() -> None:
    state = run_of(*training(1, t=10.0), *training(2, t=40.0)[-3:])  # 30 s from step to step: slow, not dead
    assert judge(state, 0.0, 40.0 + 500.0) is None
    result = judge(state, 0.0, 40.0 + 601.0)
    assert result is not None
    assert "no sign of life from any rank for 601 s" in result.message


def test_restarts_without_a_step_between_them_end_the_run() -> None:
    again = [{"kind": "started", "rank": 0, "node": "master", "pid": 200 + n, "attempt": n} for n in range(1, 9)]
    assert judge(run_of(*training(), *again[:-1]), 0.0, 11.0) is None
    result = judge(run_of(*training(), *again), 0.0, 11.0)
    assert result is not None
    assert "8 restarts in a row" in result.message
    with_step = [*training(), *again[:4], *training(250)[-3:], *again[4:]]
    assert judge(run_of(*with_step), 0.0, 11.0) is None


def test_a_killed_rank_is_told_by_name_and_its_victims_are_not() -> None:
    deaths = [
        {"kind": "died", "node": "worker-2", "code": -9, "pid": 102},
        {"kind": "died", "node": "worker-1", "code": 1, "pid": 101},
    ]
    state = run_of(*training(), *deaths, {"kind": "started", "rank": 0, "node": "master", "pid": 300, "attempt": 1})
    graves = [line.text for line in state.story if line.grave]
    assert graves == ["worker-2 (rank 2) was killed by SIGKILL at step 240"]
    assert state.story[-1].text == "all ranks start again (restart 1)"
    assert state.restarts == 1


def test_a_crash_without_a_signal_says_where_to_read() -> None:
    again = {"kind": "started", "rank": 0, "node": "master", "pid": 300, "attempt": 1}
    state = run_of(*training(), {"kind": "died", "node": "worker-1", "code": 1, "pid": 101}, again)
    assert "logs/rank-1.log" in state.story[-1].text


@pytest.mark.parametrize("code", [-9, 1])
def test_only_a_node_that_died_without_a_verdict_is_started_again(code: int) -> None:
    node = NodeState("worker-1", "exited", code)
    assert may_restart(node, [], stopping=False)
    assert not may_restart(node, [verdict("failed")], stopping=False)
    assert not may_restart(node, [], stopping=True)


@pytest.mark.parametrize("code", [0, 2, 75])
def test_a_node_with_a_last_word_is_not_started_again(code: int) -> None:
    assert not may_restart(NodeState("worker-1", "exited", code), [], stopping=False)


def test_all_ended_wants_every_planned_node() -> None:
    ends = [exited(name, 0) for name in NAMES]
    assert not all_ended(run_of(*all_up(), *ends[:2]))
    assert all_ended(run_of(*all_up(), *ends))
    assert not all_ended(run_of(*ends, {"kind": "node", "node": "master", "state": "running", "restarts": 4}))


def test_an_unknown_event_changes_nothing() -> None:
    state, before = State(NAMES), State(NAMES)
    state.apply({"kind": "from_the_future", "t": 1.0})
    assert state == before


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for folder in ("ranks", "nodes", "outcome", "logs"):
        (tmp_path / folder).mkdir()
    return tmp_path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_line_still_being_written_is_read_once_it_is_whole(run_dir: Path) -> None:
    follower, log = Follower(run_dir), run_dir / "ranks/rank-0.jsonl"
    append(log, '{"t": 1, "kind": "step", "rank": 0, "st')
    assert follower.read() == []
    append(log, 'ep": 5}\n{"t": 2')
    assert [event["step"] for event in follower.read()] == [5]
    append(log, ', "kind": "x"}\n')
    assert [event["t"] for event in follower.read()] == [2]
    assert follower.read() == []


def test_what_an_earlier_start_wrote_is_not_news(run_dir: Path) -> None:
    append(run_dir / "ranks/rank-0.jsonl", '{"t": 1, "kind": "outcome", "rank": 0}\n')
    append(run_dir / "metrics.jsonl", '{"t": 1, "step": 1, "loss": 2.0}\n')
    follower = Follower(run_dir)
    assert follower.read() == []
    append(run_dir / "metrics.jsonl", '{"t": 3, "step": 2, "loss": 1.0}\n')
    assert follower.read() == [{"kind": "metrics", "t": 3, "step": 2, "loss": 1.0}]


def test_a_torn_line_is_passed_over(run_dir: Path) -> None:
    follower = Follower(run_dir)
    append(run_dir / "ranks/rank-0.jsonl", '{"t": 1, "kin{"t": 2, "kind": "step"}\n[1]\n{"t": 3, "kind": "step"}\n')
    assert [event["t"] for event in follower.read()] == [3]


def test_events_of_all_files_come_in_the_order_of_time(run_dir: Path) -> None:
    follower = Follower(run_dir)
    for rank, t in ((0, 3), (1, 1), (2, 2)):
        append(run_dir / f"ranks/rank-{rank}.jsonl", json.dumps({"t": t, "kind": "step", "rank": rank}) + "\n")
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


def test_torchruns_words_about_a_dead_rank_become_an_event(run_dir: Path) -> None:
    follower = Follower(run_dir)
    append(
        run_dir / "logs/worker-2.log",
        "E1121 api.py:1002] failed (exitcode: -9) local_rank: 0 (pid: 102) of binary: p\n",
    )
    append(run_dir / "logs/rank-2.log", "failed (exitcode: -9) local_rank: 0 (pid: 5)\n")
    (event,) = follower.read()
    assert (event["kind"], event["node"], event["code"], event["pid"]) == ("died", "worker-2", -9, 102)
