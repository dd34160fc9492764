"""What the hosts of a push are told: when they may continue alone, and whom to ask for pieces that exist already."""

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
    """A host's line that records the orders and pieces it gets."""

    def __init__(self):
        self.orders, self.pieces, self.stays, self.window, self.flying = [], [], False, 0, set()

    def order(self, *words):
        self.orders.append(words)

    def put(self, pieces):
        self.pieces = [piece.digest for piece in pieces]

    def confirm(self, digest):
        self.pieces = [each for each in self.pieces if each != digest]

    def allow_alone(self):
        self.stays = True

    @property
    def is_idle(self):
        return not self.pieces

    def close(self):
        pass


class Pushed:
    """A guide, with helpers that create hosts and report what they have."""

    def __init__(self):
        self.told, self.notes = [], []
        self.guide = Guide(lambda host, *_: self.told.append(host), self.notes.append, Rates())

    def host(self, name, offers=False):
        return Delivery(name, CARGO, Wire(), offers)

    def ready(self, delivery, had=()):
        for line in (*(f"had {digest}" for digest in had), f"ready {1 << 30} {KEY}"):
            self.guide.handle_line(delivery, *line.split(" ", 1))

    def got(self, delivery, digests):
        for digest in digests:
            self.guide.handle_line(delivery, "got", digest)
        self.guide.check_hosts()


@pytest.fixture
def push():
    return Pushed()


def test_hosts_may_continue_alone_once_this_machine_has_nothing_more_to_send(push):
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


def test_pieces_come_from_a_host_that_already_has_them_all(push):
    lacking, whole = push.host("lacking"), push.host("whole", offers=True)
    push.ready(lacking)
    assert lacking.line.pieces == DIGESTS
    push.ready(whole, had=DIGESTS[:15])
    assert lacking.source is whole
    assert lacking.line.pieces == DIGESTS[15:]
    assert whole.line.orders == [("serve", "2", KEY)]
    assert set(push.told) <= {"lacking"}
    push.guide.check_hosts()
    assert whole.ended.done()


def test_a_host_that_offers_nothing_is_asked_for_nothing(push):
    lacking, whole = push.host("lacking"), push.host("whole", offers=True)
    push.ready(whole)
    push.ready(lacking)
    assert lacking.source is None
    assert not whole.line.orders


def test_a_lost_host_is_not_mentioned_again(push, monkeypatch):
    first, second = push.host("first"), push.host("second")
    push.ready(first)
    push.ready(second)
    push.got(first, DIGESTS)
    push.guide.handle_line(second, "gone", "")
    monkeypatch.setattr(routes, "SILENT_S", 0.0)
    push.guide.check_hosts()
    push.guide.check_hosts()
    assert second.ended.done()
    assert push.notes == []


def test_a_host_with_more_pieces_becomes_the_source_of_those_that_answered_earlier(push):
    early, late = push.host("early"), push.host("late")
    push.ready(early, had=DIGESTS[:2])
    push.ready(late, had=DIGESTS[:15])
    assert early.source is late
    assert early.line.pieces == []
    assert late.source is None
    assert late.line.pieces == DIGESTS[15:]


def test_nothing_is_sent_before_every_host_has_reported_what_it_has(push, monkeypatch):
    hosts = empty, half, late = [push.host(name) for name in ("empty", "half", "late")]
    for each in hosts:
        push.guide.handle_line(each, "asked", "")
    push.ready(half, had=DIGESTS[:20])
    push.ready(empty)
    push.guide.check_hosts()
    assert not any(each.line.pieces for each in hosts)
    monkeypatch.setattr(guide, "_ASKED_S", 0.0)
    push.guide.check_hosts()
    assert (empty.source, half.source) == (half, None)
    assert half.line.pieces == DIGESTS[20:]
    push.ready(late)
    assert (late.source, late.line.pieces) == (empty, [])


def test_a_host_is_redirected_to_another_with_its_pieces_once_that_is_possible(push, monkeypatch):
    first, second, third = push.host("first"), push.host("second"), push.host("third")
    for each in (first, second, third):
        push.ready(each)
    push.got(first, DIGESTS[:9])
    monkeypatch.setattr(routes, "SILENT_S", 0.0)
    push.guide.check_hosts()
    assert second.source is None, "the link to the first one is cut, and the third one waits for it"
    push.got(second, DIGESTS[:1])
    assert third.source is first
    monkeypatch.undo()
    push.got(third, DIGESTS[:9])
    assert (third.source, second.source, second.line.pieces) == (first, third, [])


WHERE = f"29801 root {KEY} 10.0.0.1 10.1.0.1"


def asked(delivery):
    """The numbers of the questions for which this host was told where to ask."""
    return [words[1] for words in delivery.line.orders if words[0] == "from"]


def test_a_question_is_answered_once_and_only_by_the_host_that_was_asked(push):
    first, second, third = push.host("first"), push.host("second"), push.host("third")
    for each in (first, second, third):
        push.ready(each)
    assert (second.source, third.source) == (first, second)
    push.guide.handle_line(third, "serving", f"{second.number} {WHERE}")
    assert asked(second) == []
    for _ in range(3):
        push.guide.handle_line(first, "serving", f"{second.number} {WHERE}")
    assert asked(second) == [second.number]
    lines = f"1,{len(DIGESTS)}p"
    assert second.line.orders[-1] == ("from", second.number, lines, "29801", "root", KEY, "10.0.0.1 10.1.0.1")
    for number in ("", "x", "-1", "99", f" {third.number}"):
        push.guide.handle_line(second, "serving", f"{number} {WHERE}")
    assert asked(third) == []
    assert third.source is second


@pytest.mark.parametrize(
    "where", ["", "29801", f"22 root {KEY} 10.0.0.1", f"29801 root {KEY}", f"29801 -oX {KEY} 10.0.0.1"]
)
def test_a_host_without_a_valid_address_to_serve_at_is_not_asked_again(push, where):
    first, second = push.host("first"), push.host("second")
    push.ready(first)
    push.ready(second)
    push.guide.handle_line(first, "serving", f"{second.number} {where}".rstrip())
    assert not first.can_serve
    assert second.source is None
    assert second.line.pieces == DIGESTS
    assert push.notes == ["second cannot ask first, which cannot open a port: it gets the rest from this machine"]


@pytest.mark.parametrize(("word", "has_no_road"), [("failed", True), ("gone", False)])
def test_a_host_that_cannot_have_a_road_is_distinguished_from_a_lost_connection(push, word, has_no_road):
    host = push.host("host")
    push.guide.handle_line(host, word, "dd: unknown option")
    assert isinstance(host.ended.exception(), NoRoad) is has_no_road
    assert host.is_cut is not has_no_road
    assert "dd: unknown option" in str(host.ended.exception())
