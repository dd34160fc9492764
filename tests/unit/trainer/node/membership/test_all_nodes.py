"""Nodes that are all needed begin together, and begin again together, but never with one that has gone."""

from operator import sub
from statistics import median
from time import monotonic

import pytest

from lab.ports import free_port
from lab.waiting import until
from muster.files import read_object
from muster.reserve import note
from trainer.node.hang import end_stuck_rank
from trainer.node.membership import all_nodes
from trainer.node.membership.all_nodes import AllNodesState
from trainer.node.membership.min_nodes import EPOCH
from trainer.node.membership.register_without_vote import view_of


class Nodes:
    """Three nodes with 1, 4 and 2 ranks, as the first node hears them; time passes only when the test says so."""

    def __init__(self):
        self.roll, self.now = AllNodesState(3, restarts=1), 100.0

    def say(self, place, after, number=0, life="a", **more):
        about = {"life": life, "ranks": (1, 4, 2)[place], "after": after, "number": number, **more}
        self.roll.hear(place, view_of(about, self.now))

    def all_say(self, after, number=0):
        for place in range(3):
            self.say(place, after, number)

    def places(self):
        shown = [self.roll.answer(place, self.now) for place in range(3)]
        return shown[0]["number"], [each["place"] for each in shown]


@pytest.fixture
def nodes():
    return Nodes()


BEGUN, CALLED = [0, 1, 2], [-1, -1, -1]


def test_ranks_begin_once_all_wait_in_their_planned_places_whoever_comes_first(nodes):
    for place in (2, 0):
        nodes.say(place, 0)
    assert nodes.places() == (1, CALLED)
    assert nodes.roll.answer(0, nodes.now)["come"] == 2
    nodes.say(1, 0)
    assert nodes.places() == (1, BEGUN)
    assert [nodes.roll.answer(place, nodes.now)["first_rank"] for place in range(3)] == [0, 1, 5]
    assert nodes.roll.answer(1, nodes.now)["world"] == 7


def test_if_the_ranks_of_one_node_fail_all_begin_again_once_all_wait(nodes):
    nodes.all_say(0)
    nodes.all_say(None, 1)
    nodes.say(2, 1, 1)
    assert nodes.places() == (2, CALLED), "the others end their ranks"
    nodes.say(0, 1, 1)
    assert nodes.places() == (2, CALLED)
    nodes.say(1, 1, 1)
    assert nodes.places() == (2, BEGUN)


def test_failed_ranks_begin_again_as_often_as_was_asked_and_then_the_run_is_over(nodes):
    nodes.all_say(0)
    for number in (1, 2):
        nodes.all_say(None, number)
        nodes.say(2, number, number, failed=True)
        nodes.say(1, number, number, failed=True)  # it has lost a peer
        assert nodes.roll.answer(0, nodes.now)["over"] is (number == 2)
        nodes.say(0, number, number)


def test_a_node_that_comes_back_costs_no_restart(nodes):
    for life in "abcd":
        nodes.all_say(nodes.roll.number, nodes.roll.number)
        nodes.say(1, 0, life=life)
        assert not nodes.roll.over


def test_a_node_that_comes_back_has_the_others_begin_again_with_it(nodes):
    nodes.all_say(0)
    nodes.all_say(None, 1)
    nodes.say(1, 0, life="b")
    assert nodes.places() == (2, CALLED)
    nodes.say(0, 1, 1)
    nodes.say(2, 1, 1)
    assert nodes.places() == (2, BEGUN)


def test_a_first_node_that_comes_back_continues_the_others_count(nodes):
    nodes.say(0, 0)
    nodes.say(1, None, 7)
    nodes.say(2, None, 7)
    assert nodes.places() == (8, CALLED)


def test_a_node_that_has_come_and_gone_is_waited_for(nodes):
    nodes.say(1, 0)
    nodes.now += 5
    nodes.say(0, 0)
    nodes.say(2, 0)
    assert nodes.places() == (1, CALLED)
    nodes.say(1, 0)
    assert nodes.places() == (1, BEGUN)


def test_the_others_learn_the_address_of_the_first_nodes_store_in_this_generation(nodes):
    nodes.all_say(0)
    nodes.say(0, 0, 1, store="127.0.0.1 5")
    assert nodes.roll.answer(2, nodes.now).get("store") == "127.0.0.1 5"
    nodes.say(0, 1, 1, store="127.0.0.1 5")
    nodes.say(1, 1, 1)
    nodes.say(2, 1, 1)
    assert nodes.roll.answer(2, nodes.now).get("store", "") == ""


def test_a_node_that_has_ended_for_good_ends_the_run_for_all(nodes):
    nodes.all_say(0)
    nodes.say(2, None, 1, over=True)
    nodes.say(2, None, 1)
    assert all(nodes.roll.answer(place, nodes.now)["over"] for place in range(3))


def test_all_nodes_are_stuck_only_if_all_train_and_say_so(nodes):
    nodes.all_say(0)
    for place, stands in enumerate((end_stuck_rank.MOVING, end_stuck_rank.ASLEEP, end_stuck_rank.WAITING)):
        nodes.say(place, None, 1, stands=stands)
    assert nodes.roll.answer(0, nodes.now)["stands"] == end_stuck_rank.WAITING, "its own do not count"
    assert nodes.roll.answer(1, nodes.now)["stands"] == end_stuck_rank.MOVING
    nodes.say(2, 1, 1, stands=end_stuck_rank.WAITING)
    assert nodes.roll.answer(0, nodes.now)["stands"] == end_stuck_rank.MOVING


@pytest.fixture
def two(tmp_path):
    """Two nodes that ask each other, and each one's folder with what its torchrun says and what the node learns."""
    port = free_port()
    made = [all_nodes.AllNodesMember(place, 2, "127.0.0.1", port, "key", restarts=1) for place in range(2)]
    folders = [tmp_path / str(place) for place in range(2)]
    for each, folder in zip(made, folders, strict=True):
        folder.mkdir()
        each.begin(folder)
    yield made, folders
    for each in made:
        each.close()


def say(folder, after, number=0, **more):
    note(folder, says={"after": after, "number": number, "store": "", **more})


def test_two_agents_exchange_what_their_torchruns_say(two):
    (first, second), folders = two
    for folder in folders:
        say(folder, 0)
    for place, folder in enumerate(folders):
        until(lambda f=folder, p=place: read_object(f / EPOCH).get("place") == p, "its place")
    say(folders[0], None, 1, store="127.0.0.1 77")
    until(lambda: read_object(folders[1] / EPOCH).get("store") == "127.0.0.1 77", "the store")
    say(folders[1], None, 1)
    first.ranks_state = end_stuck_rank.WAITING
    until(lambda: second.others_state() == end_stuck_rank.WAITING, "word of the other's ranks")
    say(folders[1], None, 1, over=True)
    second.close()
    until(lambda: read_object(folders[0] / EPOCH)["over"] is True, "the last word")


def test_a_node_knows_that_no_restart_is_left(two):
    (_, second), folders = two
    for folder in folders:
        say(folder, 0)
    until(lambda: read_object(folders[1] / EPOCH).get("place") == 1, "its place")
    assert second.may_begin_again
    say(folders[1], 1, 1, failed=True)
    until(lambda: not second.may_begin_again, "the restart, which was the last one")


def test_a_node_asks_ten_times_a_second_at_most_while_its_ranks_train(two, monkeypatch):
    _, folders = two
    for folder in folders:
        say(folder, 0)
    until(lambda: read_object(folders[1] / EPOCH).get("place") == 1, "its place")
    times, ask = [], all_nodes.peers.ask
    monkeypatch.setattr(all_nodes.peers, "ask", lambda *words: (times.append(monotonic()), ask(*words))[1])
    say(folders[1], None, 1)
    until(lambda: len(times) > 8, "its questions")
    assert median(map(sub, times[2:], times[1:])) > 0.07


def test_a_node_knows_when_the_first_one_is_gone(two, monkeypatch):
    monkeypatch.setattr(all_nodes, "_GONE_S", 0.1)
    (first, _), folders = two
    for folder in folders:
        say(folder, 0)
    until(lambda: read_object(folders[1] / EPOCH).get("place") == 1, "its place")
    first.close()
    until(lambda: read_object(folders[1] / EPOCH).get("gone") is True, "the end of the first")


def test_an_unnumbered_node_keeps_its_place_and_a_new_one_takes_that_of_a_node_that_is_gone(nodes):
    nodes.say(0, 0)
    nodes.say(nodes.roll.place_of("x", nodes.now), 0, life="x")
    nodes.say(nodes.roll.place_of("y", nodes.now), 0, life="y")
    assert [nodes.roll.place_of(life, nodes.now) for life in "xy"] == [1, 2]
    with pytest.raises(ValueError, match="no place"):
        nodes.roll.place_of("z", nodes.now)
    nodes.now += 5
    nodes.say(1, 0, life="x")
    assert nodes.roll.place_of("z", nodes.now) == 2


def test_the_run_is_done_once_the_ranks_of_all_nodes_have_ended_well(nodes):
    nodes.all_say(0)
    for place in range(2):
        nodes.say(place, None, 1, done=True)
    assert not nodes.roll.answer(0, nodes.now)["done"]
    nodes.say(2, None, 1, done=True)
    assert all(nodes.roll.answer(place, nodes.now)["done"] for place in range(3))
    assert nodes.roll.know == {0, 1, 2}
