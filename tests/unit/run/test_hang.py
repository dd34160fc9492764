"""Which rank is missing while a run is stuck, derived from what each rank is doing."""

import dataclasses

import pytest

from deploy.core.errors import BadAnswer
from deploy.run.inquest import hang
from deploy.run.inquest.hang import RankDoing
from deploy.run.progress import State


def waiting(rank, line=88, doing="backward"):
    return RankDoing(rank, f"gpu-{rank}", doing, "train.py", line, "main", 31.0)


def test_the_rank_that_does_not_wait_is_the_missing_one_and_is_named_with_its_line():
    missing = RankDoing(3, "gpu-c", "script", "data.py", 41, "read", 31.0)
    sentence = hang.verdict([waiting(0), waiting(1), waiting(2), missing])
    assert sentence.startswith("rank 3 (gpu-c) is stuck in data.py:41 read() for 31 s")
    assert "ranks 0-2 wait for it in backward, train.py:88" in sentence


def test_ranks_in_different_collectives_are_listed_with_their_lines_smallest_group_first():
    sentence = hang.verdict([waiting(0, 10, "collective"), waiting(1, 20, "collective"), waiting(2, 20, "collective")])
    assert "different places" in sentence
    assert sentence.index("train.py:10") < sentence.index("train.py:20")


def test_no_rank_is_blamed_if_all_wait_at_one_place():
    sentence = hang.verdict([waiting(0), waiting(1)])
    assert "none is missing" in sentence
    assert "gpu-0" not in sentence


def test_a_hang_in_the_rendezvous_hints_at_the_address_and_any_other_at_the_links():
    meets = [dataclasses.replace(waiting(rank, 9, "collective"), op="init_process_group") for rank in range(2)]
    assert (
        "in init_process_group, train.py:9 main(), and none is missing; does the script set its own address"
        in hang.verdict(meets)
    )
    assert hang.verdict([waiting(0), waiting(1)]).endswith("none is missing, so check the links between them")
    assert hang.verdict([]).startswith("all ranks wait in nothing that Muster can see")


def test_three_missing_ranks_are_named_and_any_more_are_counted():
    def stuck_ranks(count):
        return hang.verdict([RankDoing(rank, f"gpu-{rank}", "script", "data.py", 41) for rank in range(count)])

    assert stuck_ranks(3).count("is stuck in data.py:41") == 3
    assert "more" not in stuck_ranks(3)
    assert stuck_ranks(5).count("is stuck in data.py:41") == 3
    assert [stuck_ranks(count)[-6:] for count in (4, 5)] == ["1 more", "2 more"]


@pytest.mark.parametrize(
    ("doing", "words"), [("stopped", "SIGSTOP"), ("locked", "interpreter"), ("data", "DataLoader")]
)
def test_the_message_says_what_the_missing_rank_does(doing, words):
    assert words in hang.verdict([waiting(0), RankDoing(1, "b", doing)])


def test_a_rank_that_failed_but_has_not_ended_is_reported_with_its_exception():
    failed = RankDoing(1, "b", "lock", "train.py", 9, since_s=8.0, error="ValueError: bad row")
    assert "rank 1 (b) failed with ValueError: bad row, and has not ended for 8 s" in hang.verdict([waiting(0), failed])
    waits = dataclasses.replace(failed, error="", thread_error="ValueError: bad row")
    assert "in train.py:9 for 8 s, after one of its threads failed with ValueError: bad row" in hang.verdict([waits])


def test_a_rank_whose_process_runs_another_program_is_reported():
    other = RankDoing(1, "b", "replaced", program="sleep", since_s=8.0)
    assert "rank 1 (b) runs another program, sleep, instead of the script for 8 s" in hang.verdict([waiting(0), other])


def test_no_rank_is_missing_or_stuck_while_the_ranks_move():
    moving = [dataclasses.replace(rank, moves=True) for rank in (waiting(0), RankDoing(1, "b", "script", "train.py"))]
    assert hang.missing(moving) == ""
    assert [hang.words_of(rank) for rank in moving] == ["is in backward", "runs"]
    still = [dataclasses.replace(rank, moves=False) for rank in moving]
    assert "rank 1 (b) is stuck" in hang.missing(still)
    assert hang.words_of(still[1]) == "has made no step", "Muster may see no steps of it, and it may work"
    assert hang.words_of(dataclasses.replace(still[1], step=3)) == "is stuck"
    assert hang.read({"rank": 0, "node": "a", "doing": "script", "moves": True}).moves
    of_older_image = {"rank": 0, "node": "a", "doing": "script"}
    assert [hang.read({**of_older_image, "since_s": since}).moves for since in (1.0, 9.0)] == [True, False]


def stuck(rank, **more):
    event = {"kind": "stuck", "t": 100.0, "rank": rank, "node": f"n{rank}", "doing": "backward", "since_s": 9.0, **more}
    return {**event, "file": event.get("file", "train.py"), "line": event.get("line", 7)}


@pytest.fixture
def run():
    """A run with three ranks that have begun."""
    state = State(("n0", "n1", "n2"), script=True)
    for rank in range(3):
        state.apply({"kind": "began", "t": 1.0, "rank": rank, "node": f"n{rank}"})
    return state


def verdict_of(run):
    run.inquire(120.0)
    return run.case.finding.message if run.case.finding else ""


def test_a_hang_is_reported_when_all_living_ranks_are_stuck_and_only_once(run):
    for event in (stuck(0), stuck(1, doing="script", file="data.py")):
        run.apply(event)
    assert not verdict_of(run)
    run.apply(stuck(2))
    assert "rank 1 (n1) is stuck in data.py" in verdict_of(run)
    run.apply(stuck(2))
    assert [line.text for line in run.story if line.grave] == [verdict_of(run)]


def test_a_rank_that_moves_while_the_others_wait_is_no_hang(run):
    run.apply(stuck(0))
    run.apply(stuck(2))
    assert not verdict_of(run)
    run.apply({"kind": "moves", "t": 101.0, "rank": 0, "node": "n0"})
    run.apply(stuck(1))
    assert not verdict_of(run)


def test_a_rank_that_has_ended_well_is_missing_once_all_others_wait(run):
    run.apply({"kind": "ended", "t": 50.0, "rank": 1, "node": "n1", "code": 0})
    run.apply(stuck(0))
    assert not verdict_of(run)
    run.apply(stuck(2))
    assert "n1 (rank 1) left early, with code 0; ranks 0, 2 still wait for it" in verdict_of(run)


def test_the_end_of_a_hang_is_reported_too(run):
    for rank in range(3):
        run.apply(stuck(rank, doing="script" if rank else "backward"))
    assert verdict_of(run)
    run.apply({"kind": "moves", "t": 130.0, "rank": 1, "node": "n1"})
    assert not verdict_of(run)
    assert "rank 1 makes progress again" in run.story[-1].text


def test_new_ranks_with_the_same_numbers_do_not_end_a_hang_from_before_the_nodes_changed(run):
    for rank in range(3):
        run.apply(stuck(rank, doing="script" if rank else "backward"))
    assert verdict_of(run)
    members = {"members": ["n0", "n1"], "before": ["n0", "n1", "n2"], "planned": 3}
    run.apply({"kind": "members", "t": 125.0, "rank": 0, "node": "n0", **members})
    run.apply({"kind": "moves", "t": 130.0, "rank": 1, "node": "n1"})
    assert not any("makes progress again" in line.text for line in run.story)


@pytest.mark.parametrize(
    "value", [{"rank": -1, "node": "a"}, {"rank": 1, "node": "../a"}, {"rank": 1, "node": "a", "stack": [["x"]]}, []]
)
def test_an_answer_that_no_agent_gives_is_refused(value):
    with pytest.raises(BadAnswer):
        hang.read(value)


def test_a_rank_that_is_not_observed_is_blamed_for_nothing():
    ranks = [hang.read({"rank": rank, "node": "a", "doing": "unobserved"}) for rank in range(2)]
    assert {hang.words_of(rank) for rank in ranks} == {"is not observed (--no-observe)"}
    assert hang.missing(ranks) == ""
    assert hang.missing([waiting(2), *ranks]) == ""


def test_a_rank_that_answers_no_look_is_not_called_stuck():
    assert hang.words_of(RankDoing(0, "a", "unseen")) == "answers no look"
