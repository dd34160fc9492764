"""How long nodes may take to end before they are killed, depending on why the run is over. Time is an argument."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from deploy.core.facts import NodeState
from deploy.run import follow
from deploy.run.backend import Backend
from deploy.run.follow import _Watch, stop_patience_s
from deploy.run.follower import Follower
from deploy.run.outcome import AT_ONCE
from deploy.run.progress import State
from tests.unit.run.test_follow import exited, run_of, training, verdict

NOW = 1000.0


class Going(Backend):
    """A backend whose nodes never end; it records what it is asked to do."""

    look_s = 0.0

    def __init__(self) -> None:
        self.asked = list[str]()

    def stop(self) -> None:
        self.asked.append("stop")

    def kill(self) -> None:
        self.asked.append("kill")

    def pass_on(self, number: int) -> None:
        self.asked.append(f"signal {number}")

    def states(self, state: State) -> list[NodeState]:
        return []

    def start(self) -> None:
        raise AssertionError("its nodes run")

    clean = start


def killed_after(watch: _Watch, most_s: int = 200) -> int:
    """The number of seconds after the first look at which the nodes are killed."""
    return next(second for second in range(most_s) if watch.step(NOW + second))


def watched(*events: dict[str, Any], requests: int = 0) -> tuple[_Watch, Going]:
    backend = Going()
    watch = _Watch(backend, run_of(*training(t=NOW), *events), lambda: requests)
    watch._started_at = watch._looked_at = NOW
    return watch, backend


@pytest.mark.parametrize(
    ("events", "seconds", "asked"),
    [
        ([verdict("failed")], follow.AFTER_VERDICT_S, []),
        ([verdict("done")], follow.AFTER_DONE_S, []),
        ([exited("worker-1", -9, t=NOW - 5)], follow.AFTER_JUDGEMENT_S, ["stop"]),
    ],
    ids=["ranks failed", "ranks are done", "a node was killed"],
)
def test_nodes_get_time_to_end_and_are_asked_to_stop_only_if_their_ranks_do_not_know(events, seconds, asked) -> None:
    watch, backend = watched(*events)
    assert killed_after(watch) == seconds
    assert backend.asked == [*asked, "kill"]


def test_the_second_stop_request_kills_immediately() -> None:
    requests = iter([0, 1, 1, 2])
    watch, backend = watched()
    watch._stop_requests = lambda: next(requests)
    assert killed_after(watch) == 3
    assert backend.asked == ["stop", "kill"]
    watch, backend = watched(requests=2)
    assert watch.step(NOW).message.startswith(AT_ONCE)


def test_a_stop_waits_for_the_grace_that_the_nodes_report() -> None:
    said = {"kind": "asked", "t": NOW, "node": "master", "rank": 0, "grace_s": 100.0}
    watch, backend = watched(said, requests=1)
    assert watch._state.nodes.grace_s == 100.0
    assert killed_after(watch) == 110
    assert backend.asked == ["stop", "kill"]


@pytest.mark.parametrize(
    ("event", "seconds"),
    [
        (exited("worker-1", -9, t=NOW - 5), follow.AFTER_JUDGEMENT_S),
        (verdict("failed"), follow.AFTER_VERDICT_S),
        (verdict("done"), stop_patience_s(0.0)),
    ],
    ids=["a node was killed", "ranks failed", "ranks are done"],
)
def test_a_stop_only_shortens_the_end_of_a_run_that_is_over(event, seconds) -> None:
    """Ctrl-C in the 3 s in which nodes may end after a fault once made the user wait for 30 s more."""
    watch, backend = watched(event)
    assert watch.step(NOW) is None
    watch._stop_requests = lambda: 1
    assert killed_after(watch) == seconds
    assert backend.asked[-2:] == ["stop", "kill"]


def test_a_node_that_ends_without_a_verdict_during_a_stop_is_no_fault() -> None:
    watch, backend = watched(requests=1)
    assert watch.step(NOW) is None
    watch._state.apply(exited("worker-1", -15, t=NOW + 1))
    assert [watch.step(NOW + second) for second in range(2, 20)] == [None] * 18
    for node in watch._state.names:
        watch._state.apply(exited(node, -15, t=NOW + 20))
    result = watch.step(NOW + 20)
    assert result is not None
    assert (result.verdict, result.message) == ("stopped", "stopped at step 240; there is no checkpoint")
    assert backend.asked == ["stop"]


def test_what_the_ranks_say_during_a_stop_is_the_end_of_the_run() -> None:
    watch, _ = watched(requests=1)
    assert watch.step(NOW) is None
    watch._state.apply({"t": NOW, **verdict("stopped")})
    assert killed_after(watch) == follow.AFTER_VERDICT_S
    result = watch.step(NOW + follow.AFTER_VERDICT_S)
    assert result is not None
    assert (result.verdict, result.message, result.step) == ("stopped", "m", 5)


def test_a_known_fault_stays_the_verdict_when_the_other_nodes_stop_for_it() -> None:
    watch, _ = watched(exited("worker-1", -9, t=NOW - 5))
    assert watch.step(NOW) is None
    watch._state.apply({"t": NOW, **verdict("stopped", "master", 0)})
    result = next(filter(None, (watch.step(NOW + second) for second in range(1, 30))))
    assert (result.verdict, result.node) == ("failed", "worker-1")


def test_a_ranks_own_reason_replaces_what_was_concluded_from_its_nodes_end() -> None:
    watch, _ = watched(exited("worker-1", 1, t=NOW - 5))
    assert watch.step(NOW) is None
    watch._state.apply({"t": NOW, **verdict("failed", "worker-2", 2)})
    assert killed_after(watch) == follow.AFTER_JUDGEMENT_S
    result = watch.step(NOW + follow.AFTER_JUDGEMENT_S)
    assert result is not None
    assert (result.node, result.message) == ("worker-2", "m")


def test_each_look_forwards_signals_and_reports_new_events(tmp_path) -> None:
    (tmp_path / "ranks").mkdir()
    began = {"t": 1.0, "kind": "began", "rank": 0, "node": "a", "attempt": 0, "world": 1, "pid": 7}
    (tmp_path / "ranks/rank-0.jsonl").write_text(f"{json.dumps(began)}\n")
    backend, told, looks, state = Going(), [], itertools.count(), State(("a",))
    end = follow.follow(
        backend, Follower(tmp_path, from_start=True), state, told.append, lambda: 2 * (next(looks) > 0), lambda: [10]
    )
    assert end.message.startswith(AT_ONCE)
    assert backend.asked == ["signal 10", "signal 10", "stop", "kill"]
    assert [[event["kind"] for event in of_look] for of_look in told] == [["began"], []]
    assert state.ranks.began == {0: "a"}
