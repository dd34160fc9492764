"""What a drill makes of what it sees: who spoke first, and whether training went on."""

from dataclasses import replace

import pytest

from deploy.run import drill
from deploy.run.drill import AGENT, FAULTS, PAUSE, RANK, Trial
from deploy.run.progress import State
from deploy.run.story import Happening

KILLED = Happening(0.0, "b (rank 1) was killed by SIGKILL at step 40", grave=True)


def event(kind, rank=1, node="b", step=0):
    return {"kind": kind, "t": 0.0, "rank": rank, "node": node, "step": step}


def trial(fault=RANK):
    return Trial(fault, "host-b", "b", 1)


def test_a_killed_rank_is_back_with_its_first_step_after_its_start():
    on = drill.heard(trial(), 0.4, [KILLED], [event("step", step=41)])
    assert (on.report_s, on.expected, on.back) == (0.4, True, False)
    on = drill.heard(on, 1.2, [KILLED], [event("started"), event("step", step=31)])
    assert on.back_s == 1.2


def test_steps_of_another_rank_say_nothing():
    on = drill.heard(trial(), 1.0, [], [event("started"), event("step", 0, "a", 90), event("step", 1, "a", 90)])
    assert not on.back


def test_a_paused_rank_is_back_with_a_step_beyond_the_last_one_before():
    state = State(("a", "b"))
    for rank, node in enumerate("ab"):
        state.apply({**event("started", rank, node), "pid": 7})
        state.apply(event("step", rank, node, 40))
    paused = drill.heard(trial(PAUSE), 3.0, [], [event("started"), event("step", step=41)])
    assert not paused.back
    on = drill.undone(paused, state)
    assert not drill.heard(on, 10.2, [], [event("step", step=40)]).back
    assert drill.heard(on, 10.4, [], [event("step", step=50)]).back_s == 10.4


def test_the_first_words_are_new_and_about_the_fault():
    old, evaluated, other = (
        KILLED,
        Happening(0.0, "step 40: held-out accuracy 97.0 %"),
        Happening(0.0, "a is slow", grave=True),
    )
    on = drill.heard(replace(trial(), lines_before=1), 2.0, [old, evaluated], [])
    assert on.report == ""
    on = drill.heard(on, 3.0, [old, evaluated, other, KILLED], [])
    assert (on.report, on.report_s, on.expected) == ("a is slow", 3.0, False)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (RANK, "b (rank 1) was killed by SIGKILL at step 4"),
        (PAUSE, "b (rank 1) is paused: its container stands still until somebody runs docker unpause there"),
        (AGENT, "b (rank 1) was killed by SIGKILL at step 4: restarting it"),
        (AGENT, "b restarts at step 4"),
    ],
)
def test_the_words_that_the_story_has_for_a_fault_are_expected(fault, words):
    assert drill.heard(trial(fault), 1.0, [Happening(0.0, words, grave=True)], []).expected


def test_a_fault_is_over_when_its_run_is_back_and_quiet_or_has_ended_or_takes_too_long():
    back = replace(trial(), back_s=2.0)
    assert not back.over(2.0 + drill.SETTLE_S - 0.1)
    assert back.over(2.0 + drill.SETTLE_S)
    assert not trial().over(drill.LIMIT_S - 1)
    assert trial().over(drill.LIMIT_S)
    assert replace(trial(), end="the run failed").over(0.1)


def test_each_fault_meets_another_host_while_there_are_some():
    assert [host for _, host in drill.assign(["a", "b", "c"])] == ["c", "b", "a"]
    assert [host for _, host in drill.assign(["a"])] == ["a", "a", "a"]


def test_a_drill_passes_only_if_every_fault_was_tried_and_all_came_back():
    back = [replace(trial(fault), back_s=1.0) for fault in FAULTS]
    assert drill.passed(back)
    assert not drill.passed(back[:2])
    assert not drill.passed([*back[:2], trial(AGENT)])


def test_the_table_tells_what_did_not_come_back_and_what_was_not_tried():
    lost = replace(trial(), end="host-b is lost")
    rows = drill.rows([lost], drill.assign(["a", "host-b"]))
    assert rows[0][1:] == ["host-b", "NOT BACK host-b is lost", "", "nothing was said"]
    assert [row[2] for row in rows[1:]] == ["not tried", "not tried"]


def test_no_fault_begins_before_a_rank_of_each_node_trains_and_has_a_checkpoint():
    state = State(("a", "b"))
    state.checkpoint = event("checkpoint", 0, "a", 10)
    for rank, node in enumerate("ab"):
        state.apply(event("started", rank, node))
        state.apply(event("step", rank, node, 11))
    assert drill.ready(state)
    state.apply(event("started"))
    assert not drill.ready(state)
    assert not drill.ready(State(("a",)))


def test_a_host_ends_a_pause_later_than_the_drill_does():
    assert drill.PAUSE_S < drill.GUARD_S < drill.LIMIT_S
