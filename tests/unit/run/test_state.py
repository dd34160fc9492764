"""The reducers of a run's events, where they could disagree or grow; the inquest's tests cover the rest."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from deploy.core.errors import BadAnswer
from deploy.run import events as run_events
from deploy.run.outcome import judge
from deploy.run.progress import State
from tests.hostile.fuzz import samples

NAMES = ("a", "b")


def event(kind: str, t: float, node: str = "a", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "t": t, "node": node, **fields}


def test_a_host_that_invents_node_names_cannot_fill_the_memory() -> None:
    state = State(NAMES, script=True)
    for number in range(5000):
        state.apply(event("telemetry", 1.0, f"n{number}", cpu_percent=1.0, halted="x"), 2.0)
    assert max(map(len, (state.nodes.lags, state.nodes.cpus, state.nodes.halted))) <= 1024
    state.apply(event("telemetry", 1.0, "b", cpu_percent=1.0), 2.0)
    assert "b" in state.nodes.cpus, "a planned node always has its place"
    assert set(state.nodes.telemetry) == {"b"}


def test_ends_are_ordered_by_this_machines_clock_in_the_verdict_too() -> None:
    """The clock of b is an hour behind: once, its rank was blamed for the end of the run although it ended last."""
    state = State(NAMES, script=True)
    for second in range(0, 20, 2):
        for node, behind in (("a", 0.0), ("b", 3600.0)):
            state.apply(event("telemetry", 5000.0 + second - behind, node, cpu_percent=1.0), 5000.0 + second)
    for rank, (node, behind) in enumerate((("a", 0.0), ("b", 3600.0))):
        state.apply(event("began", 5020.0 - behind, node, rank=rank), 5020.0)
    state.apply(event("ended", 5030.0, rank=0, code=1, error="ValueError: first", how="failed"), 5030.0)
    state.apply(event("ended", 5031.0 - 3600.0, "b", rank=1, code=1, error="ValueError: second", how="failed"), 5031.0)
    blamed = state.blame()
    assert blamed is not None
    assert (blamed.node, blamed.rank) == ("a", 0)


def test_reports_that_arrive_in_a_burst_say_nothing_about_a_clock() -> None:
    """A late follower reads old reports in a burst: their delay says nothing about the node's clock."""
    state = State(NAMES, script=True)
    for number in range(10):
        state.apply(event("telemetry", 1000.0 + 2 * number, cpu_percent=1.0), 5000.0 + number / 100)
    assert state.nodes.align(event("step", 5000.0), 5000.1) == 5000.0


def test_an_end_keeps_its_first_time_and_a_restarted_node_has_a_new_end() -> None:
    state = State(NAMES, script=True)
    for t, restarts in ((10.0, 0), (20.0, 0), (30.0, 1), (40.0, 1)):
        state.apply(event("node", t, state="exited", code=1, restarts=restarts))
        assert state.nodes.exited_at["a"] == (10.0 if restarts == 0 else 30.0)
    state.apply(event("node", 50.0, state="lost", restarts=1))
    assert state.nodes.exited_at["a"] == 50.0


def test_a_trouble_counts_from_its_beginning_until_a_look_without_it() -> None:
    state, seen = State(NAMES, script=True), []
    for t, trouble in ((10.0, "no answer"), (20.0, "no answer"), (30.0, ""), (40.0, "no answer"), (50.0, "refused")):
        state.apply(event("node", t, state="running", trouble=trouble))
        seen.append(state.nodes.troubles.get("a"))
    assert seen == [("no answer", 10.0), ("no answer", 10.0), None, ("no answer", 40.0), ("refused", 50.0)]


def test_a_node_came_back_when_its_container_has_started_again_and_not_at_each_look() -> None:
    state, seen = State(NAMES, script=True), []
    for t, restarts in ((10.0, 0), (20.0, 0), (30.0, 1), (40.0, 1)):
        state.apply(event("node", t, state="running", restarts=restarts))
        seen.append(state.nodes.came_back.get("a"))
    assert seen == [None, None, 30.0, 30.0]


def test_an_address_from_which_a_rank_calls_is_that_of_its_node_unless_it_calls_itself() -> None:
    state = State(NAMES, script=True)
    no_answer = {"unanswered": [["10.0.0.1", "10.0.0.9"]], "crowded": [["10.1.0.1", "10.0.0.9"]]}
    state.apply(event("links", 1.0, rank=0, **no_answer))
    state.apply(event("links", 2.0, "b", rank=1, unanswered=[["127.0.0.1", "127.0.0.1"]], crowded=[]))
    asked = ("10.0.0.1", "10.1.0.1", "127.0.0.1", "10.0.0.9")
    assert [state.nodes.node_at(each) for each in asked] == ["a", "a", "127.0.0.1", "10.0.0.9"]


def test_a_stopped_process_counts_until_a_report_without_it_also_on_a_host_that_joined() -> None:
    state, seen = State(NAMES, script=True), []
    for t, more in ((1.0, {}), (2.0, {"halted": "pid 7 (T)"}), (3.0, {"halted": "pid 7 (T)"}), (4.0, {})):
        state.apply(event("telemetry", t, "joined", cpu_percent=5.0, **more))
        seen.append(state.nodes.halted.get("joined"))
    assert seen == [None, ("pid 7 (T)", 2.0), ("pid 7 (T)", 2.0), None]
    assert state.nodes.cpus == {"joined": 5.0}


def test_a_change_of_nodes_to_the_same_nodes_clears_nothing() -> None:
    state = State(NAMES, least=1, script=True)
    state.apply(event("began", 1.0, rank=0))
    state.apply(event("ended", 2.0, rank=0, code=1, how="failed"))
    state.apply(event("members", 3.0, rank=0, members=["b", "a"], before=["a", "b"], planned=2))
    assert state.ranks.ends
    assert not state.nodes.members
    assert state.ranks.regroups == 0


def of_three(*events: dict[str, Any], **more: Any) -> State:
    """A script's run on three nodes, a, b and c, with the ranks 0, 1 and 2, which have begun."""
    state = State(("a", "b", "c"), script=True, **more)
    for one in (*(event("began", 1.0, node, rank=rank) for rank, node in enumerate("abc")), *events):
        state.apply(one)
    return state


def test_what_ranks_did_before_a_restart_of_all_explains_nothing() -> None:
    ends = [event("ended", 5.0, node, rank=rank, code=1, how="failed") for rank, node in enumerate("abc")]
    state = of_three(*ends, event("began", 9.0, "b", rank=1))
    assert not state.ranks.ends
    assert state.blame() is None


def test_ranks_that_begin_after_the_nodes_changed_count_as_a_new_start() -> None:
    again = [event("began", 2.0 + times, "b", rank=1) for times in range(4)]
    fewer = event("members", 20.0, rank=0, members=["a", "b"], before=["a", "b", "c"], planned=3)
    anew = [event("began", 21.0, node, rank=rank) for rank, node in enumerate("ab")]
    ends = [event("ended", 30.0, node, rank=rank, code=1, how="failed") for rank, node in enumerate("ab")]
    state = of_three(*again, fewer, *anew, *ends, event("began", 40.0, rank=0))
    assert not state.ranks.ends


def test_a_role_that_starts_again_is_no_restart_of_all() -> None:
    state = of_three(event("began", 9.0, rank=0))
    assert state.ranks.restarts == 1
    roles = {"a": "reward", "b": "trainer", "c": "trainer"}
    assert of_three(event("began", 9.0, rank=0), roles=roles).ranks.restarts == 0


def test_a_stuck_rank_on_a_node_without_a_name_is_recorded_like_any_other() -> None:
    state = State(NAMES, script=True)
    line = {"t": 1.0, "kind": "stuck", "rank": 0, "doing": "data"}
    assert state.apply(run_events.of_rank(line, 0.0)) == []
    assert state.ranks.stuck[0].doing.doing == "data"


def test_an_event_that_cannot_be_read_is_reported_and_the_next_one_is_applied() -> None:
    state = State(NAMES, script=True)
    (skipped,) = state.apply(event("stuck", 5.0, rank=0, doing=7), 6.0)
    assert (skipped["kind"], skipped["count"]) == ("unread", 1)
    assert [line.text for line in state.story] == ["an event `stuck`: skipped lines that Muster cannot read: a line"]
    state.apply(event("step", 7.0, rank=0, step=3), 7.0)
    assert state.step == 3


ODD_VALUES = (None, True, -1, 1.5, "x", "", [], {}, [["a", 1]], 10**15, float("nan"), "a", 0, {"a": "b"})


def odd_events(chance: random.Random, number: int) -> list[dict[str, Any]]:
    """Events with the fields of real ones, but one to three fields have an odd value or are missing."""
    of_rank = [json.loads(line) for line in samples.RANK_LINES.split("\n")]
    stuck = {"t": 1.0, "kind": "stuck", "rank": 1, "node": "b", "doing": "script", "since_s": 40.0}
    others = [{**stuck, "launcher": True, "kind": kind} for kind in ("began", "started", "stuck", "metrics")]
    others += [event("telemetry", 2.0, cpu_percent=3.0, gpus=[]), event("node_up", 1.0, address="10.0.0.4")]
    others += [event("node", 3.0, state="exited", code=1), event("verdict", 4.0, verdict="failed", rank=0)]
    made = []
    for _ in range(number):
        odd = dict(chance.choice([*of_rank, stuck, *others]))
        for name in chance.sample(sorted(odd), min(len(odd), chance.randint(1, 3))):
            odd[name] = chance.choice(ODD_VALUES)
            if chance.random() < 0.2:
                del odd[name]
        made.append(odd)
    return made


@pytest.mark.parametrize("seed", range(4))
def test_no_line_of_a_script_can_stop_a_reader(seed: int) -> None:
    """One line of a script once crashed the page, the board, the comparison and every follower."""
    unchecked, checked = State(NAMES, script=bool(seed % 2)), State(NAMES, script=bool(seed % 2))
    for number, odd in enumerate(odd_events(random.Random(seed), 2000)):
        unchecked.apply(odd, float(number))
        for reader in (run_events.of_rank, run_events.of_metrics, run_events.node_up, run_events.verdict):
            try:
                read = reader(odd, float(number))
            except BadAnswer:
                continue
            assert checked.apply(read, float(number)) == [], read
        checked.inquire(float(number))
        judge(checked, 0.0, float(number))
    assert unchecked.story.unread
