"""What hosts of a push are told: when they may go on alone, and who is asked for what lies there already."""

import random

import pytest

from deploy.send.road import guide, routes
from deploy.send.road.cargo import Cargo, of_bytes
from deploy.send.road.guide import Delivery, Guide, NoRoad
from deploy.send.road.rates import Rates

KEY = "ssh-ed25519 " + "A" * 60
CARGO = Cargo([of_bytes(random.Random(3).randbytes(20 << 20))])
DIGESTS = [piece.digest for piece in CARGO.pieces]


class Wire:
    """A host's line that keeps what it is told."""

    def __init__(self):
        self.orders, self.pieces, self.stays, self.window, self.flying = [], [], False, 0, set()

    def order(self, *words):
        self.orders.append(words)

    def put(self, pieces):
        self.pieces = [piece.digest for piece in pieces]

    def land(self, digest):
        self.pieces = [each for each in self.pieces if each != digest]

    def stay(self):
        self.stays = True

    @property
    def is_idle(self):
        return not self.pieces

    def close(self):
        pass


class Pushed:
    """A guide, and its hosts by name."""

    def __init__(self):
        self.told, self.notes = [], []
        self.guide = Guide(lambda host, *_: self.told.append(host), self.notes.append, Rates())

    def host(self, name, offers=False):
        return Delivery(name, CARGO, Wire(), offers)

    def ready(self, delivery, had=()):
        for line in (*(f"had {digest}" for digest in had), f"ready {1 << 30} {KEY}"):
            self.guide.hear(delivery, *line.split(" ", 1))

    def got(self, delivery, digests):
        for digest in digests:
            self.guide.hear(delivery, "got", digest)
        self.guide.look()


@pytest.fixture
def push():
    return Pushed()


def test_hosts_may_go_on_alone_when_nothing_more_is_to_come_from_here(push):
    first, second = push.host("first"), push.host("second")
    push.ready(first)
    push.ready(second)
    assert second.source is first
    push.got(first, DIGESTS[:-1])
    push.got(second, DIGESTS[:3])
    assert not first.line.stays
    assert not second.line.stays
    push.got(first, DIGESTS[-1:])
    assert first.line.stays
    assert second.line.stays


def test_a_host_that_has_not_met_its_source_is_not_left_alone(push):
    first, second = push.host("first"), push.host("second")
    push.ready(first)
    push.ready(second)
    push.got(first, DIGESTS)
    assert not second.line.stays
    assert not first.line.stays, "the one that it will ask"
    push.got(second, DIGESTS[:1])
    assert first.line.stays
    assert second.line.stays


def test_what_lies_on_a_host_that_lacks_nothing_comes_from_there(push):
    lacking, whole = push.host("lacking"), push.host("whole", offers=True)
    push.ready(lacking)
    assert lacking.line.pieces == DIGESTS
    push.ready(whole, had=DIGESTS[:15])
    assert lacking.source is whole
    assert lacking.line.pieces == DIGESTS[15:]
    assert whole.line.orders == [("serve", "2", KEY)]
    assert set(push.told) <= {"lacking"}
    push.guide.look()
    assert whole.ended.done()


def test_a_host_that_offers_nothing_is_asked_for_nothing(push):
    lacking, whole = push.host("lacking"), push.host("whole", offers=True)
    push.ready(whole)
    push.ready(lacking)
    assert lacking.source is None
    assert not whole.line.orders


def test_nothing_more_is_said_of_a_host_that_is_lost(push, monkeypatch):
    first, second = push.host("first"), push.host("second")
    push.ready(first)
    push.ready(second)
    push.got(first, DIGESTS)
    push.guide.hear(second, "gone", "")
    monkeypatch.setattr(routes, "SILENT_S", 0.0)
    push.guide.look()
    push.guide.look()
    assert second.ended.done()
    assert push.notes == []


def test_who_has_more_gives_it_to_those_that_answered_sooner(push):
    early, late = push.host("early"), push.host("late")
    push.ready(early, had=DIGESTS[:2])
    push.ready(late, had=DIGESTS[:15])
    assert early.source is late
    assert early.line.pieces == []
    assert late.source is None
    assert late.line.pieces == DIGESTS[15:]


def test_nothing_leaves_before_every_host_has_said_what_lies_there(push, monkeypatch):
    hosts = empty, half, late = [push.host(name) for name in ("empty", "half", "late")]
    for each in hosts:
        push.guide.hear(each, "asked", "")
    push.ready(half, had=DIGESTS[:20])
    push.ready(empty)
    push.guide.look()
    assert not any(each.line.pieces for each in hosts)
    monkeypatch.setattr(guide, "_ASKED_S", 0.0)
    push.guide.look()
    assert (empty.source, half.source) == (half, None)
    assert half.line.pieces == DIGESTS[20:]
    push.ready(late)
    assert (late.source, late.line.pieces) == (empty, [])


def test_who_gets_from_here_what_another_has_is_led_there_once_that_can_be(push, monkeypatch):
    first, second, third = push.host("first"), push.host("second"), push.host("third")
    for each in (first, second, third):
        push.ready(each)
    push.got(first, DIGESTS[:9])
    monkeypatch.setattr(routes, "SILENT_S", 0.0)
    push.guide.look()
    assert second.source is None, "the link to the first one is cut, and the third one waits for it"
    push.got(second, DIGESTS[:1])
    assert third.source is first
    monkeypatch.undo()
    push.got(third, DIGESTS[:9])
    assert (third.source, second.source, second.line.pieces) == (first, third, [])


WHERE = f"29801 root {KEY} 10.0.0.1 10.1.0.1"


def asked(delivery):
    """Where a host was told to ask, and for which question."""
    return [words[1] for words in delivery.line.orders if words[0] == "from"]


def test_a_question_has_one_answer_and_only_of_who_was_asked(push):
    first, second, third = push.host("first"), push.host("second"), push.host("third")
    for each in (first, second, third):
        push.ready(each)
    assert (second.source, third.source) == (first, second)
    push.guide.hear(third, "serving", f"{second.number} {WHERE}")
    assert asked(second) == []
    for _ in range(3):
        push.guide.hear(first, "serving", f"{second.number} {WHERE}")
    assert asked(second) == [second.number]
    lines = f"1,{len(DIGESTS)}p"
    assert second.line.orders[-1] == ("from", second.number, lines, "29801", "root", KEY, "10.0.0.1 10.1.0.1")
    for number in ("", "x", "-1", "99", f" {third.number}"):
        push.guide.hear(second, "serving", f"{number} {WHERE}")
    assert asked(third) == []
    assert third.source is second


@pytest.mark.parametrize(
    "where", ["", "29801", f"22 root {KEY} 10.0.0.1", f"29801 root {KEY}", f"29801 -oX {KEY} 10.0.0.1"]
)
def test_who_says_no_place_where_it_can_be_asked_is_asked_no_more(push, where):
    first, second = push.host("first"), push.host("second")
    push.ready(first)
    push.ready(second)
    push.guide.hear(first, "serving", f"{second.number} {where}".rstrip())
    assert not first.serves
    assert second.source is None
    assert second.line.pieces == DIGESTS
    assert push.notes == ["second cannot ask first, which cannot open a port: it gets the rest from this machine"]


@pytest.mark.parametrize(("word", "has_no_road"), [("failed", True), ("gone", False)])
def test_a_host_that_lacks_what_a_road_needs_is_told_from_one_whose_connection_is_lost(push, word, has_no_road):
    host = push.host("host")
    push.guide.hear(host, word, "dd: unknown option")
    assert isinstance(host.ended.exception(), NoRoad) is has_no_road
    assert host.is_cut is not has_no_road
    assert "dd: unknown option" in str(host.ended.exception())
