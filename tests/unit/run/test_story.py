"""The story of a run, line by line: what a user is told about restarts and ends, and what is left out."""

import pytest

from deploy.run.progress import State


def event(kind, t, rank=None, node=None, **more):
    names = "abc"
    return {"kind": kind, "t": t, "rank": rank, "node": node or names[rank or 0], **more}


def ended(t, rank, code=1, **more):
    return event("ended", t, rank, code=code, how=f"ended with code {code}", **more)


def lines(*events, names="abc", **more):
    """The story of these events."""
    state = State(tuple(names), **more)
    for one in events:
        state.apply(one)
    return [line.text for line in state.story]


BEGAN = [event("began", 1.0 + rank, rank) for rank in range(3)]


def test_a_restart_of_all_ranks_names_the_failed_rank_if_the_world_size_is_known():
    starts = [event("started", 2.0, rank, world=3) for rank in range(3)]
    again = event("started", 20.0, 0, world=3)
    told = lines(*BEGAN, *starts, ended(10.0, 2, error="ValueError: x"), again)
    assert told == [
        "all ranks restart (restart 1): c (rank 2) ended with code 1: ValueError: x; logs/rank-2.log has its last words"
    ]


def test_a_rank_that_no_longer_exists_is_not_blamed_for_a_restart():
    starts = [event("started", 2.0, rank, world=3) for rank in range(3)]
    fewer = [event("started", 15.0, 1, world=2), event("started", 20.0, 0, world=2)]
    assert lines(*BEGAN, *starts, ended(10.0, 2), *fewer) == ["all ranks restart (restart 1)"]


def test_a_late_reason_for_a_restart_is_reported_after_a_change_of_nodes_too():
    fewer = event("members", 10.0, 0, members=["a", "b"], before=["a", "b", "c"], planned=3)
    anew = [event("began", 11.0 + n, rank) for n in (0.0, 10.0) for rank in range(2)]
    told = lines(
        *BEGAN, fewer, *anew, event("began", 31.0, 0), ended(30.0, 1, error="KeyError: 'x'"), script=True, least=1
    )
    assert told[-2:] == [
        "the script starts again (restart 2)",
        "the reason of restart 2: b (rank 1) ended with code 1: KeyError: 'x'; logs/rank-1.log has its last words",
    ]


@pytest.mark.parametrize(("code", "told"), [(-9, True), (137, True), (1, False), (0, False)])
def test_a_killed_node_is_reported_immediately_and_one_that_ended_itself_is_not(code, told):
    states = [event("node", 5.0, node="b", state="running"), event("node", 9.0, node="b", state="exited", code=code)]
    assert any("b was killed by SIGKILL" in line for line in lines(*BEGAN, *states)) == told


def test_sent_files_that_a_run_has_changed_are_named_once():
    def changed(*paths, node="a", count=0):
        return event("conflicts", 5.0, node=node, paths=list(paths), count=count or len(paths))

    told = lines(changed(), changed("train.py", "data.py"), changed("train.py", "data.py", node="b"))
    assert told == [
        "a: the run had changed train.py, data.py: it keeps its own versions, and the ones that you sent are not used"
    ]
    (many,) = lines(changed(*"12345", count=9))
    assert "1, 2, 3, 4, 5 and 4 more" in many
