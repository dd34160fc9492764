"""What a node of a group says of itself: who it is in, who was before, and nothing that it does not know."""

from trainer.node.group import Group
from trainer.node.members import Epoch

ALL = ("a", "b", "c")


def member(name, floor=0):
    """A node's part in a group, without its sockets."""
    made = Group.__new__(Group)
    made.name, made._floor, made._told, made._trained, made._epoch = name, floor, 0, (), Epoch()
    return made


def test_the_first_node_of_an_epoch_tells_who_trains_also_if_epochs_have_passed_unseen():
    node = member("a")
    told = []
    for epoch in (Epoch(1, ALL), Epoch(2, ("a", "b"), ALL), Epoch(4, ALL, ALL), Epoch(4, ALL, ALL)):
        node._epoch = epoch
        told.append((news := node.news()) and (news.number, news.before))
    assert told == [None, (2, ALL), (4, ("a", "b")), None]
    assert member("b").news() is None


def test_a_node_that_comes_back_waits_for_nothing_before_it_knows_the_present_epoch(tmp_path):
    node = member("a", floor=-1)
    node._views, node._outcome, node._folder = {}, tmp_path, tmp_path
    (tmp_path / ".says").write_text('{"after": 0, "number": 0, "store": ""}')
    assert node._about()["after"] is None
    node._floor = 3
    assert node._about()["after"] == 3
