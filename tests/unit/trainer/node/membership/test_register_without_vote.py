"""A spare believes the newest epoch that it has heard of, and ignores what is not an epoch."""

import pytest

from trainer.node.membership.members import Epoch
from trainer.node.membership.register_without_vote import SpareRegister, ended, fields_of

NODES = frozenset("abcd")
THIRD = Epoch(3, ("a", "c", "d"), ("a", "b", "c"))


def test_the_newest_epoch_counts_and_a_spare_that_comes_back_remembers_it(tmp_path):
    spare = SpareRegister(tmp_path / "journal", NODES)
    for epoch in (Epoch(2, ("a", "b", "c")), THIRD, Epoch(2, ("a", "b")), Epoch()):
        spare.hear(fields_of(epoch))
    assert spare.epoch == THIRD
    again = SpareRegister(tmp_path / "journal", NODES)
    assert again.epoch == THIRD
    again.hear(fields_of(Epoch(3, THIRD.members, THIRD.before, over=0)))
    assert again.epoch.over == 0


@pytest.mark.parametrize(
    "said",
    [
        *(None, 7, [], [9], [-1, [], [], None], ["9", [], [], None], [9, ["x"], [], None], [9, "ab", [], None]),
        *([9, [["a"]], [], None], [9, ["a"], [], "0"]),
    ],
)
def test_a_message_that_is_no_epoch_of_these_nodes_is_ignored(tmp_path, said):
    spare = SpareRegister(tmp_path / "journal", NODES)
    spare.hear(said)
    assert spare.epoch == Epoch()


def test_a_journal_that_a_full_disk_has_cut_is_ignored(tmp_path):
    (tmp_path / "journal").write_text("[3, [")
    assert SpareRegister(tmp_path / "journal", NODES).epoch == Epoch()


def test_the_end_is_an_epoch_and_a_code():
    assert ended([3, 0]) == (3, 0)
    assert [ended(said) for said in (None, [3], "30", [3, None])] == [None] * 4
