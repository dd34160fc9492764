"""One sentence says how a script that was asked to stop ended."""

import pytest

from trainer.node.agent.limit import grace
from trainer.node.agent.stop_words import AfterStop, how_it_stopped

WHAT = "train.py was asked to stop"


@pytest.mark.parametrize(
    ("after", "words", "unsaved"),
    [
        (AfterStop(), f"{WHAT}; since then it wrote no file", False),
        (AfterStop(files=("last.pt",)), f"{WHAT}; since then it wrote last.pt", False),
        (AfterStop(files=("b.pt", "a.pt", "log")), f"{WHAT}; since then it wrote b.pt and 2 more", False),
        (
            AfterStop((0,), 20.0, files=("ckpt.part",)),
            f"{WHAT}; rank 0 was killed after 20 s while still working (--grace gives more time); since then it wrote "
            "ckpt.part, which may be incomplete",
            False,
        ),
        (
            AfterStop((1, 3), 0.5),
            f"{WHAT}; ranks 1, 3 were killed after 0.5 s while still working (--grace gives more time); "
            "since then it wrote no file",
            False,
        ),
        (
            AfterStop(errors={1: "OSError: no space", 0: "RuntimeError: DataLoader worker is killed"}),
            f"{WHAT}; rank 0 failed at it: RuntimeError: DataLoader worker is killed; since then it wrote no file",
            True,
        ),
        (
            AfterStop(errors={0: "ValueError: x"}, files=("last.pt",)),
            f"{WHAT}; rank 0 failed at it: ValueError: x; since then it wrote last.pt",
            False,
        ),
        (AfterStop(errors={0: "KeyboardInterrupt"}), f"{WHAT}; since then it wrote no file", False),
        (AfterStop(errors={0: "SignalException: got 15"}), f"{WHAT}; since then it wrote no file", False),
    ],
)
def test_the_sentence_says_what_was_written_and_which_ranks_failed(after, words, unsaved):
    assert how_it_stopped(WHAT, after) == words
    assert after.unsaved == unsaved


def test_one_of_several_nodes_does_not_speak_for_the_others():
    assert how_it_stopped(WHAT, AfterStop(), nodes=True) == WHAT
    assert how_it_stopped(WHAT, AfterStop(files=("a",)), nodes=True) == f"{WHAT}; since then it wrote a"


def test_long_words_of_a_script_are_cut():
    words = how_it_stopped(WHAT, AfterStop(errors={0: "E: " + "x" * 10_000}, files=("y" * 10_000,)))
    assert len(words) < 400


@pytest.mark.parametrize(
    ("asked", "usual", "seconds"),
    [
        ("", "20", 20.0),
        ("90", "20", 90.0),
        ("0.5", "20", 0.5),
        ("86400", "20", 86400.0),
        *((wrong, "7", 7.0) for wrong in ("0", "86401", "nan", "1e3", "-5", "inf", "9" * 40, "٣", " 5")),
        ("", "", 20.0),
        ("", "x", 20.0),
    ],
)
def test_the_time_to_save_has_limits(asked, usual, seconds):
    assert grace(asked, usual) == seconds
