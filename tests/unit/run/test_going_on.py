"""`--min-nodes` on the control side: what is refused, when the run is over, and what the story says."""

import json
from contextlib import suppress

import pytest

from deploy.core.errors import UsageError
from deploy.core.facts import NodeState
from deploy.run.environment import GROUP, asked_least
from deploy.run.files import timeline
from deploy.run.outcome import all_ended, final, judge
from deploy.run.progress import State
from tests.unit.run.test_environment import spec

NAMES = ("master", "worker-1", "worker-2")


def test_a_majority_of_three_or_more_nodes_continues():
    assert asked_least("", 3, [], False) == 0
    assert asked_least("2", 3, ["--mesh", "an option of the script"], True) == 2
    assert (asked_least("2", 3, [], False), asked_least("3", 5, ["--steps", "3"], False)) == (2, 3)


def test_with_a_spare_all_hosts_may_be_needed():
    assert asked_least("3", 3, [], False, spares=True) == 3


def test_half_of_an_even_number_of_hosts_continues_with_an_arbiter():
    assert (asked_least("1", 2, [], False, arbiter=True), asked_least("2", 4, [], False, arbiter=True)) == (1, 2)
    for text, nodes in (("2", 3), ("1", 4), ("2", 2)):
        with pytest.raises(UsageError):
            asked_least(text, nodes, [], False, arbiter=True)


@pytest.mark.parametrize(
    ("text", "nodes", "arguments", "script", "why"),
    [
        ("two", 3, [], False, "not a number"),
        ("4", 3, [], False, "not a number"),
        ("3", 3, [], False, "none of 3 nodes could be lost"),
        ("1", 2, [], False, "cannot tell whether the other is lost"),
        ("2", 5, [], False, "fewer than a majority"),
        ("2", 3, ["--mesh", "dp_shard=-1"], False, "a lost node's part of the model"),
        ("2", 3, ["--mesh=dp_shard=-1"], False, "a lost node's part of the model"),
    ],
)
def test_a_run_that_could_not_continue_is_refused_with_the_reason(text, nodes, arguments, script, why):
    with pytest.raises(UsageError, match=why):
        asked_least(text, nodes, arguments, script)


@pytest.mark.parametrize("arbiter", [False, True])
@pytest.mark.parametrize("nodes", range(1, 8))
@pytest.mark.parametrize("text", ["two", "0", "9"])
def test_the_hint_of_a_number_that_cannot_be_is_the_least_that_can_be_if_there_is_one(text, nodes, arbiter):
    if arbiter and nodes % 2:
        return  # these need no arbiter

    def is_accepted(number):
        with suppress(UsageError):
            return bool(asked_least(str(number), nodes, [], True, arbiter=arbiter))

    with pytest.raises(UsageError) as refused:
        asked_least(text, nodes, [], True, arbiter=arbiter)
    least = next(filter(is_accepted, range(1, nodes + 1)), None)
    assert refused.value.hint == (f"--min-nodes {least}" if least else "leave out --min-nodes: then all are needed")


def test_each_node_is_told_about_the_others_and_only_with_min_nodes():
    run = spec(workers=2)
    assert GROUP not in run.nodes[0].environment
    where = [("127.0.0.1", 1, 2), ("127.0.0.1", 3, 4), ("127.0.0.1", 5, 6)]
    plan = json.loads(run.grouped(2, where, "key").nodes[1].environment[GROUP])
    assert (plan["least"], list(plan["nodes"]), plan["nodes"]["worker-2"]) == (2, list(NAMES), ["127.0.0.1", 5, 6])


def lost(state, name, t=10.0):
    """Make this node end for good."""
    state.apply({"kind": "node", "t": t, "node": name, "state": "exited", "code": -9, "restarts": 3})


def grouped():
    """Three nodes that train, of which two are enough."""
    state = State(NAMES, least=2)
    for rank, name in enumerate(NAMES):
        state.apply({"kind": "node_up", "t": 1.0, "node": name})
        state.apply({"kind": "started", "t": 2.0, "rank": rank, "node": name, "world": 3})
        state.apply({"kind": "step", "t": 9.0, "rank": rank, "node": name, "step": 25})
    return state


def test_a_lost_node_ends_the_run_only_if_too_few_are_left():
    state = grouped()
    lost(state, "master")
    assert judge(state, 0.0, 15.0) is None
    lost(state, "worker-2")
    result = judge(state, 0.0, 15.0)
    assert (result.verdict, result.node) == ("failed", "master")


def test_the_story_says_which_nodes_continue_and_from_which_step():
    state = grouped()
    about = {"rank": 0, "node": "worker-1", "epoch": 2, "planned": 3}
    state.apply({"kind": "members", "t": 11.0, **about, "members": ["worker-1", "worker-2"], "before": list(NAMES)})
    for rank, name in enumerate(NAMES[1:]):
        state.apply({"kind": "started", "t": 12.0, "rank": rank, "node": name, "world": 2})
    state.apply({"kind": "resumed", "t": 12.5, "rank": 0, "node": "worker-1", "step": 20, "changes": []})
    assert state.story[-1].text == "master is lost: worker-1 and worker-2 continue from step 20 (2 of 3 nodes)"
    assert state.ranks.restarts == 0
    lost(state, "master")
    for name in NAMES[1:]:
        verdict = {"verdict": "done", "node": name, "rank": 0, "message": "", "hint": "", "step": 30}
        state.apply({"kind": "verdict", "t": 20.0, **verdict})
        state.nodes.states[name] = NodeState(name, "exited", 0)
    assert final(state).verdict == "done"


def test_the_story_names_a_spare_that_takes_a_place():
    state = grouped()
    about = {"rank": 0, "node": "master", "epoch": 2, "planned": 3, "spares": ["worker-3"]}
    now = ["master", "worker-2", "worker-3"]
    state.apply({"kind": "members", "t": 11.0, **about, "members": now, "before": list(NAMES)})
    state.apply({"kind": "plan", "t": 12.0, "rank": 0, "node": "master", "start_step": 20})
    (told,) = [line.text for line in state.story if "free place" in line.text]
    assert told.startswith("worker-1 is lost; worker-3 takes a free place: master, worker-2 and worker-3 continue")
    assert "3 of 3" in told


def test_the_run_is_over_when_all_others_have_finished_without_the_lost_host():
    state = grouped()
    state.apply(
        {"kind": "members", "t": 11.0, "rank": 0, "node": "worker-1", "epoch": 2, "planned": 3}
        | {"members": ["worker-1", "worker-2"], "before": list(NAMES)}
    )
    away = {"kind": "node", "t": 12.0, "node": "master", "state": "running", "code": None, "restarts": 0}
    state.apply({**away, "trouble": "unseen"})
    for name in NAMES[1:]:
        state.apply({"kind": "node", "t": 20.0, "node": name, "state": "exited", "code": 0, "restarts": 0})
    assert all_ended(state)
    state.apply({**away, "trouble": ""})
    assert not all_ended(state), "it is back, and may still write"


def test_a_rank_that_began_before_its_new_epoch_was_reported_is_known_when_it_is_killed():
    state = grouped()
    for rank, name in enumerate(NAMES):
        state.apply({"kind": "began", "t": 2.0, "rank": rank, "node": name, "attempt": 0, "world": 3, "pid": 7})
    state.apply({"kind": "began", "t": 11.4, "rank": 1, "node": "worker-2", "attempt": 1, "world": 2, "pid": 8})
    told = {"rank": 0, "node": "worker-1", "epoch": 2, "planned": 3, "before": list(NAMES)}
    state.apply({"kind": "members", "t": 11.0, **told, "members": list(NAMES[1:])})
    assert state.ranks.began == {1: "worker-2"}
    state.apply(
        {"kind": "ended", "t": 20.0, "rank": 1, "node": "worker-2", "attempt": 1, "code": -9, "how": "was killed"}
    )
    assert state.story[-1].text.startswith("worker-2 (rank 1) was killed")


def members(t, now, before, first):
    """The report of node `first` that the nodes in `now` train from now on; `before`: those that trained until then."""
    about = {"kind": "members", "t": t, "rank": 0, "node": first, "epoch": 2, "planned": 3}
    return {**about, "members": list(now), "before": list(before)}


def test_a_lost_node_is_one_line_of_the_story_although_the_ranks_restart():
    state = grouped()
    state.apply({"kind": "began", "t": 11.0, "rank": 0, "node": "master", "attempt": 1, "world": 2, "pid": 8})
    state.apply(members(11.0, NAMES[:2], NAMES, "master"))
    for rank, name in enumerate(NAMES[:2]):
        state.apply({"kind": "started", "t": 12.0, "rank": rank, "node": name, "world": 2})
    state.apply({"kind": "plan", "t": 12.1, "rank": 0, "node": "master", "start_step": 20})
    told = [line for line in state.story if any(word in line.text for word in ("train", "continue", "restart"))]
    assert [line.t for line in told] == [11.0, 12.1], "the loss, when it was agreed on, and what is trained"
    assert state.ranks.restarts == 0
    assert state.step >= 20, "whoever is new trains from there, too"


def test_the_end_of_a_container_is_reported_when_it_ends_and_not_when_it_restarts():
    state = grouped()
    node = {"kind": "node", "node": "worker-1", "restarts": 0}
    state.apply({**node, "t": 9.0, "state": "running", "code": None})
    state.apply({**node, "t": 10.0, "state": "exited", "code": 137})
    state.apply({**node, "t": 30.0, "state": "running", "code": None, "restarts": 1})
    assert [(line.t, "SIGKILL" in line.text) for line in state.story] == [(10.0, True), (30.0, False)]


def test_a_follower_that_replaces_another_repeats_nothing_and_forgets_nothing(tmp_path):
    first, node = grouped(), {"kind": "node", "node": "worker-1", "restarts": 0, "code": None}
    first.apply({**node, "t": 9.0, "state": "running"})
    first.apply({**node, "t": 9.5, "state": "running", "trouble": "paused"})
    first.inquire(10.0)  # only a look at the engine reveals the pause
    first.apply(members(11.0, NAMES[::2], NAMES, "master"))
    first.apply({"kind": "plan", "t": 12.1, "rank": 0, "node": "master", "start_step": 20})
    timeline.keep(tmp_path, first.story)
    second = grouped()
    second.story.recall(timeline.read(tmp_path, 0))
    second.apply({**node, "t": 40.0, "state": "running", "restarts": 2})
    second.apply(members(11.0, NAMES[::2], NAMES, "master"))
    second.apply({"kind": "plan", "t": 12.1, "rank": 0, "node": "master", "start_step": 20})
    assert second.story == first.story
    assert any("paused" in line.text for line in second.story)


def test_the_story_of_a_script_counts_a_lost_node_as_no_restart():
    state = State(NAMES, least=2, script=True)
    for rank, name in enumerate(NAMES):
        state.apply({"kind": "began", "t": 2.0, "rank": rank, "node": name, "attempt": 0, "world": 3, "pid": 7})
    about = {"rank": 0, "node": "worker-1", "epoch": 2, "planned": 3}
    state.apply({"kind": "members", "t": 11.0, **about, "members": ["worker-1", "worker-2"], "before": list(NAMES)})
    again = {"kind": "began", "attempt": 0, "world": 2, "pid": 9}
    for rank, name in enumerate(NAMES[1:]):
        state.apply({**again, "t": 12.0, "rank": rank, "node": name})
    assert state.story[-1].text.startswith("master is lost: worker-1 and worker-2 start the script again")
    assert state.ranks.restarts == 0
    state.apply({**again, "t": 13.0, "rank": 0, "node": "worker-1"})
    assert state.ranks.restarts == 1


def test_a_cut_link_between_two_nodes_is_not_reported_as_a_lost_node():
    state = grouped()
    state.apply(members(11.0, NAMES[:2], NAMES, "master"))
    cut = {"kind": "apart", "rank": 0, "node": "master", "left_out": "worker-2", "others": ["worker-1"]}
    state.apply({**cut, "t": 11.5})
    state.apply({"kind": "plan", "t": 12.1, "rank": 0, "node": "master", "start_step": 20})
    told = [line.text for line in state.story]
    assert told[0].startswith("worker-2 and worker-1 are cut off from each other: master and worker-1 continue")
    state.apply({**cut, "t": 13.0})
    assert "not lost" in state.story[-1].text, "and later, where the loss was told"


def test_a_node_that_leaves_is_not_lost_and_its_return_is_no_fault():
    state = grouped()
    about = {"rank": 0, "node": "worker-1", "epoch": 2, "planned": 3, "left": ["master"]}
    state.apply({"kind": "members", "t": 11.0, **about, "members": ["worker-1", "worker-2"], "before": list(NAMES)})
    state.apply({"kind": "resumed", "t": 12.5, "rank": 0, "node": "worker-1", "step": 20, "changes": []})
    assert state.story[-1].text == "master has left: worker-1 and worker-2 continue from step 20 (2 of 3 nodes)"
    for now, restarts in (("exited", 0), ("running", 1)):
        state.apply({"kind": "node", "t": 13.0, "node": "master", "state": now, "code": 0, "restarts": restarts})
    assert state.story[-1].text == "master restarts"


def test_a_node_that_has_not_reported_yet_is_not_missing_while_the_others_train():
    state = State((*NAMES, "late"), least=2)
    for name in NAMES:
        state.apply({"kind": "node_up", "node": name, "t": 10.0})
    assert judge(state, 50.0, 60.0) is None, "who follows a run late hears of its nodes one by one"
    assert judge(state, 20.0, 60.0).message.startswith("late did not start")
    state.apply({"kind": "began", "node": "master", "rank": 0, "t": 11.0})
    assert judge(state, 20.0, 60.0) is None


def test_while_a_scripts_ranks_restart_the_step_that_it_had_reached_is_shown():
    """It once showed `step 0`; and after a host's return, the step at which that host had been lost."""
    state = grouped()
    state.ranks.script = True
    for rank, name in enumerate(NAMES):
        state.apply({"kind": "step", "t": 10.0, "rank": rank, "node": name, "step": 650})
    state.apply(members(20.0, NAMES, NAMES[1:], "master"))
    assert state.step == 650
    state.apply({"kind": "started", "t": 21.0, "rank": 0, "node": "master", "world": 3, "step": 466})
    assert state.step == 650, "master has told of step 466 before it was lost"
    state.apply(
        {"kind": "continues", "t": 22.0, "rank": 0, "node": "master", "step": 640, "before": 466, "known": True}
    )
    assert state.step == 640
