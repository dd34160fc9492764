"""Who is blamed if ranks only lost each other: the first is named, and the others are listed by number."""

from deploy.causes.end_causes import Cause
from deploy.run.inquest.blame import End, blame

LOST = "Connection closed by peer"


def victim(rank, t, error=LOST):
    return End(rank, f"n{rank}", 1, t, "ended with code 1", True, error)


def ranks(count):
    return {rank: f"n{rank}" for rank in range(count)}


def test_if_each_rank_lost_another_the_first_in_time_is_named():
    found = blame(ranks(3), [victim(0, 12.0, "b"), victim(1, 11.0, "a"), victim(2, 13.0, "c")])
    assert (found.cause, found.node, found.rank) == (Cause.NOT_KNOWN, "", None)
    assert found.message.endswith("each lost another one; the first was n1 (rank 1) (a)")


def test_the_rank_that_still_ran_is_blamed_and_its_victims_are_listed_by_number():
    four, five = (blame(ranks(count + 1), [victim(rank, 10.0) for rank in range(count)]) for count in (4, 5))
    assert (four.node, four.rank) == ("n4", 4)
    assert four.message == (
        f"n4 (rank 4) did not answer: it hangs or cannot be reached; ranks 0-3 gave up on it ({LOST})"
    )
    assert "ranks 0-4 gave up" in five.message
    assert "rank 0 gave up on it" in blame(ranks(2), [victim(0, 10.0)]).message
    assert "ranks 1-2 kept running" in blame(ranks(3), [victim(0, 10.0)]).message


def test_a_reset_connection_blames_the_far_end_or_something_between():
    found = blame(ranks(2), [victim(0, 10.0, "recv: Connection reset by peer")])
    assert (found.cause, found.node, found.rank) == (Cause.CUT_OFF, "n0", 0)
    assert "lost its connection to n1 (rank 1): that host, or something between them, reset it" in found.message


def test_a_rank_that_left_with_code_0_is_blamed_only_if_it_left_before_the_others_lost_it():
    def left(t):
        return blame(ranks(2), [End(1, "n1", 0, t, "ended with code 0"), victim(0, 10.0)])

    assert (left(10.0).cause, left(10.0).rank) == (Cause.LEFT_EARLY, 1)
    assert left(10.5).cause == Cause.NOT_KNOWN
    assert blame(ranks(2), [End(1, "n1", 0, 9.0), End(0, "n0", 0, 9.5)]) is None
