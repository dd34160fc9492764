"""What a node of a group reports: which nodes train, which trained before, and nothing that it does not know."""

import time
from pathlib import Path

from muster.reserve import note
from trainer.node.hang.end_stuck_rank import ASLEEP, MOVING, WAITING
from trainer.node.membership import peers
from trainer.node.membership.leave import Leaving
from trainer.node.membership.members import ENDED_S, ENDS_S, HEARD_S, SILENT_S, Epoch, View
from trainer.node.membership.min_nodes import _ALONE_S, _DOUBT_S, _STUCK_S, _SURE_S, Group, pause_s
from trainer.node.membership.newcomers import Newcomers
from trainer.node.notes import Journal

ALL = ("a", "b", "c")


def member(name, floor=0):
    """A node's part in a group, without its sockets."""
    made = Group.__new__(Group)
    made.name, made._floor, made._last_news, made._trained, made._epoch = name, floor, 0, (), Epoch()
    made._spare_register, made._copies, made._stops, made.ranks_state = None, None, False, MOVING
    made._newcomers = Newcomers(Path("/nowhere"), ALL, {})
    made._left_out = (0.0, ())
    made._leaving, made._views = Leaving(Path(), name), {each: View() for each in ALL}
    return made


def test_the_first_node_of_an_epoch_reports_who_trains_even_if_it_missed_epochs():
    node = member("a")
    told = []
    for epoch in (Epoch(1, ALL), Epoch(2, ("a", "b"), ALL), Epoch(4, ALL, ALL), Epoch(4, ALL, ALL)):
        node._epoch = epoch
        told.append((news := node.news()) and (news.number, news.before))
    assert told == [None, (2, ALL), (4, ("a", "b")), None]
    assert member("b").news() is None


def test_hundreds_of_nodes_ask_each_other_less_often_and_a_lost_question_is_no_lost_node():
    """Each of 256 nodes had asked and answered 1,700 questions a second, which took 0.9 of a core on each host."""
    assert [pause_s(nodes) for nodes in (2, 16, 32)] == [0.15] * 3
    assert 255 / pause_s(256) < 450
    for nodes in range(2, 1024):
        assert pause_s(nodes) + peers._WAIT_S + pause_s(nodes, answered=False) < SILENT_S - 0.2
        assert pause_s(nodes) + 0.2 < HEARD_S, "all know of a node that leaves before they go on without it"
        assert pause_s(nodes) + 0.2 < _DOUBT_S - _SURE_S, "each has said since then whether it sees who was left out"


def test_a_node_that_comes_back_waits_for_nothing_before_it_knows_the_current_epoch(tmp_path):
    node = member("a", floor=-1)
    node._views, node._journal, node._folder = {}, Journal(tmp_path), tmp_path
    note(tmp_path, says={"after": 0, "number": 0, "store": ""})
    assert node._about()["after"] is None
    node._floor = 3
    assert node._about()["after"] == 3


def test_a_node_that_does_not_hear_of_the_epoch_in_which_the_others_train_ends_itself(tmp_path):
    node = member("a")
    node.planned, node.least, node._returns, node._journal = ALL, 2, False, Journal(tmp_path)
    node._voters, node._arbiter = ALL, ""
    node._alone_since = node._stuck_since = node._deaf_since = float("inf")
    node._epoch = Epoch(3, ALL)
    node._views = {each: View(answered=time.monotonic(), number=3) for each in ALL}
    assert node.reason_to_end() == ""
    node._views["b"] = View(answered=time.monotonic(), number=4)
    assert node.reason_to_end() == "", "it may hear of it in a moment"
    node._deaf_since -= _STUCK_S
    assert "not heard" in node.reason_to_end()


def test_a_left_out_node_that_still_answers_is_reported_as_cut_off_from_those_it_misses():
    node = member("a")
    node._epoch = Epoch(1, ALL)
    node.news()
    node._epoch = Epoch(2, ("a", "b"), ALL)
    node._views = {"b": View(time.monotonic(), sees=frozenset("a")), "c": View(time.monotonic())}
    assert node.news().members == ("a", "b")
    assert node.cut_off_nodes() == [], "it may have been lost just now"
    node._left_out = (time.monotonic() - _DOUBT_S, node._left_out[1])
    assert node.cut_off_nodes() == [("c", ("b",))]
    assert node.cut_off_nodes() == [], "once"
    node._left_out = (time.monotonic() + 1.0 - 2.0, ("c",))
    node._views["c"] = View(time.monotonic() - 5.0)
    assert node.cut_off_nodes() == [], "it has not answered since: it is lost"


def test_a_host_and_a_spare_are_no_majority_and_end_themselves(tmp_path):
    node = member("a")
    node.planned, node.least, node._returns, node._journal = ALL, 2, False, Journal(tmp_path)
    node._voters, node._arbiter = ALL, ""
    node._alone_since = node._stuck_since = node._deaf_since = float("inf")
    node._epoch = Epoch(3, ("a", "c", "d"))
    node._views = {each: View(answered=time.monotonic(), number=3) for each in (*ALL, "d")}
    for lost in ("b", "c"):
        assert node.reason_to_end() == ""
        node._views[lost] = View(gone=True)
    assert node.reason_to_end() == "", "they may be back in a moment"
    node._alone_since -= _ALONE_S
    assert "has seen only 1 of 3 nodes" in node.reason_to_end()


def test_with_an_arbiter_a_node_without_a_majority_ends_before_others_may_train(tmp_path):
    node = member("a")
    node.planned, node.least, node._returns, node._journal = ("a", "b"), 1, False, Journal(tmp_path)
    node._voters, node._arbiter = ALL, "c"
    node._alone_since = node._stuck_since = node._deaf_since = float("inf")
    node._epoch = Epoch(3, ("a",), ("a", "b"))
    node._views = {each: View() for each in ALL}
    note(tmp_path, says={"after": None, "number": 3, "store": ""})
    assert node.reason_to_end() == ""
    node._alone_since -= (ENDS_S + ENDED_S) / 2
    assert "has seen only 1 of 3" in node.reason_to_end()


def test_a_node_that_comes_back_may_take_long_to_begin(tmp_path):
    node = member("a")
    node.planned, node.least, node._returns, node._journal = ALL, 2, True, Journal(tmp_path)
    node._voters, node._arbiter = ALL, ""
    node._alone_since = node._stuck_since = node._deaf_since = float("inf")
    node._epoch = Epoch(3, ("b", "c"))
    node._views = {each: View(answered=time.monotonic(), number=3) for each in ALL}
    node.reason_to_end()
    node._stuck_since -= 2 * _STUCK_S
    assert node.reason_to_end() == "", "torchrun has not said anything yet"
    note(tmp_path, says={"after": None, "number": 2, "store": ""})
    node.reason_to_end()
    node._stuck_since -= 2 * _STUCK_S
    assert "have not ended" in node.reason_to_end()


def test_a_node_that_left_is_reported_as_left_and_not_as_cut_off():
    node = member("a")
    node._epoch = Epoch(1, ALL)
    node.news()
    node._epoch = Epoch(2, ("a", "b"), ALL)
    node._views |= {"b": View(time.monotonic(), sees=frozenset("a")), "c": View(time.monotonic() + 9.0, leaves=True)}
    assert node.leavers(node.news().before) == ["c"]
    node._left_out = (time.monotonic() - _DOUBT_S, node._left_out[1])
    assert node.cut_off_nodes() == []


def test_the_other_nodes_are_stuck_only_if_each_training_one_says_so_of_this_epoch():
    node, now = member("a"), time.monotonic()
    node._epoch = Epoch(3, ALL)

    def stand(**of_c):
        node._views = {"b": View(now, number=3, stands=ASLEEP), "c": View(**{"answered": now, "number": 3, **of_c})}
        return node.others_state()

    assert stand(stands=WAITING) == WAITING
    assert stand(stands=ASLEEP) == ASLEEP
    moving = (
        {},
        {"stands": MOVING},
        {"stands": "odd"},
        {"number": 2},
        {"after": 3},
        {"answered": now - 5.0},
        {"gone": True},
    )
    assert {stand(**{"stands": WAITING, **odd}) for odd in moving[1:]} == {MOVING}
    assert stand() == MOVING, "it has said nothing of it"
    node._epoch = Epoch(4, ("b", "c"))
    assert stand(stands=WAITING, number=4) == MOVING, "this node does not train"


def test_the_ranks_may_begin_again_until_the_register_has_counted_all_restarts():
    node = member("a")
    node._restarts = 1
    assert node.may_begin_again
    node._epoch = Epoch(2, ALL, ALL, repeats=1)
    assert not node.may_begin_again
