"""Which collective the waiting ranks disagree on, derived from the last calls of each rank."""

from deploy.run.inquest import hang
from deploy.run.inquest.collectives import Call, alike, disagreement
from deploy.run.inquest.hang import RankDoing


def called(*calls, group="0"):
    """A rank's last calls; each call has its sequence number as its line, and the first one has 7."""
    return tuple(Call(group, 7 + n, *call.split(), file="train.py", line=7 + n) for n, call in enumerate(calls))


def doing(rank, *calls):
    return RankDoing(rank, f"gpu-{rank}", "backward", "train.py", 88, "main", 31.0, collectives=called(*calls))


def test_the_first_differing_call_is_named_with_its_lines_and_the_smallest_group_first():
    others = ("all_reduce 5", "all_reduce 5")
    said = hang.verdict([doing(0, *others), doing(1, *others), doing(3, "all_reduce 5", "broadcast 5", "all_reduce 5")])
    assert said.endswith(
        "do not agree on the next collective: rank 3 called broadcast, train.py:8; "
        "ranks 0-1 called all_reduce, train.py:8"
    )


def test_a_different_size_is_a_disagreement_if_the_collective_needs_equal_sizes():
    said = hang.verdict([doing(0, "all_reduce 5"), doing(1, "all_reduce 3")])
    assert "rank 0 called all_reduce of 5" in said
    assert "rank 1 called all_reduce of 3" in said
    for name, differs in (("all_gather", False), ("reduce", True), ("broadcast", True)):
        assert bool(disagreement({0: called(f"{name} 5"), 1: called(f"{name} 3")})) == differs


def test_a_rank_that_lags_behind_or_is_in_another_group_does_not_disagree():
    assert not disagreement({0: called("all_reduce 5", "all_reduce 5"), 1: called("all_reduce 5")})
    assert not disagreement({0: called("all_reduce 5"), 1: called("broadcast 5", group="1")})
    assert "none is missing" in hang.verdict([doing(0, "all_reduce 5"), doing(1, "all_reduce 5")])


def test_ranks_with_the_same_call_are_one_group():
    calls = {0: called("all_reduce 5")[0], 1: called("broadcast 5")[0], 2: called("all_reduce 5")[0]}
    assert [ranks for ranks, _ in alike(calls)] == [[1], [0, 2]]


def test_without_a_flight_recorder_the_names_in_the_stacks_are_compared():
    first = RankDoing(3, "gpu-c", "collective", "train.py", 40, "", op="broadcast")
    second = RankDoing(0, "gpu-a", "collective", "train.py", 52, "", op="all_reduce")
    said = hang.verdict([first, second])
    assert "do not agree" in said
    assert "rank 3 in broadcast, train.py:40" in said
    assert "rank 0 in all_reduce, train.py:52" in said
