"""Hosts in a push that lie to this machine and to each other: the others get what was sent, and nobody learns more."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.door import framing, session
from deploy.job.cluster import from_flag
from deploy.send.road import guide, routes
from deploy.send.road.cargo import Cargo, of_bytes
from deploy.send.road.road import Road
from tests.hostile.server import Answer

MB = 1 << 20
DATA = random.Random(7).randbytes(17 * MB)
CARGO = Cargo([of_bytes(DATA)])
DIGEST = hashlib.sha256(DATA).hexdigest()
ARGV = ["sh", "-c", "sha256sum | cut -c -64"]
READY = f"ready {1 << 30}"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB" + "A" * 42


def says(*lines, more=lambda: iter(())):
    """Answers for a host that, on the road, prints these lines and then `more`, and never ends by itself."""

    def answer(asked):
        def out():
            yield "".join(f"{line}\n" for line in lines).encode()
            yield from more()
            while True:
                time.sleep(0.1)
                yield b""

        return Answer(out(), code=None)

    return {"road": answer}


def serves(where):
    """Keep offering to serve every neighbour at this place, again and again."""

    def more():
        while True:
            yield "".join(f"serving {number} {where}\n" for number in range(1, 30)).encode()
            time.sleep(0.2)

    return more


# An address where nobody listens.
NOWHERE = f"29899 root {KEY} 127.0.0.1"


def push(there, cargo=CARGO, offering=()):
    """Send to all servers except those that offer; returns results by host, faults by host, and the notes."""
    notes = []
    with session.open_all(from_flag(there.hosts).hosts) as opened:
        sessions = opened.all()
        with Road(len(sessions), lambda *_: None, notes.append) as road:
            road.offer([sessions[name] for name in offering])
            lacking = [each for name, each in sessions.items() if name not in offering]
            results = session.on_all(lacking, lambda each: road.deliver(each, ARGV, cargo))
    return results.values, results.faults, notes


def ask(port, key, words):
    """Connect to a push's server with this key and send it these words."""
    options = ("IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
    line = ["ssh", "-F", "none", "-p", port, "-i", str(key), *(word for each in options for word in ("-o", each))]
    return subprocess.run([*line, "127.0.0.1"], input=words, capture_output=True, text=True, timeout=20)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Short waiting times for a host that stays silent."""
    monkeypatch.setattr(guide, "_READY_S", 8.0)
    monkeypatch.setattr(framing, "SLOWEST_OVER_S", 6.0)
    monkeypatch.setattr(framing, "_AFTER_S", 6.0)
    monkeypatch.setattr(framing, "_AFTER_BYTES_A_SECOND", 1 << 40)
    monkeypatch.setattr(routes, "SILENT_S", 3.0)


def good(ended, *names):
    """Whether these hosts received exactly what was sent."""
    return {name: ended[name].done.out.strip() for name in names} == dict.fromkeys(names, DIGEST)


@pytest.mark.holds("road-closed")
@pytest.mark.parametrize(
    "where",
    [
        "29800 -oProxyCommand=touch${IFS}own " + KEY + " 127.0.0.1",
        "29800 root;touch$IFS$HOME/own " + KEY + " 127.0.0.1",
        "29800 root " + KEY + " -oProxyCommand=touch 127.0.0.1",
        "29800 root " + KEY + " $(touch own)",
        "22 root " + KEY + " 127.0.0.1",
        "29800;touch$IFS$HOME/own root " + KEY + " 127.0.0.1",
        "29800 root " + KEY,
    ],
)
def test_a_hosts_address_for_neighbours_is_validated(hostile, where):
    """Muster passes a host's address on to its neighbours, where it becomes words of their ssh command."""
    there = hostile(says(f"{READY} {KEY}", more=serves(where)), good={})
    ended, faults, _ = push(there)
    assert good(ended, "good")
    assert set(faults) == {"evil"}
    assert not list(there.folder.rglob("own"))


def test_a_hosts_public_key_carries_no_options(hostile):
    for key in (
        f'command="touch own" {KEY}',
        f"{KEY} x\nlost",
        KEY.replace("ed25519", "rsa"),
        "ssh-ed25519 $(touch own)",
    ):
        assert not guide.READY.fullmatch(f"1 {key}")
    there = hostile(says(f'{READY} command="touch own" {KEY}'), good={})
    ended, _, _ = push(there)
    assert good(ended, "good")
    for path in there.folder.rglob("keys"):
        assert "touch" not in path.read_text()


def test_a_host_that_claims_everything_and_sends_nothing_is_bypassed(hostile):
    everything = [f"had {piece.digest}" for piece in CARGO.pieces]
    there = hostile(says(*everything, f"{READY} {KEY}", more=serves(NOWHERE)), good={}, other={})
    ended, faults, notes = push(there)
    assert good(ended, "good", "other")
    assert any("evil" in note for note in notes)
    assert set(faults) == {"evil"}


@pytest.mark.parametrize("times", [1, 500])
def test_a_host_that_offers_pieces_it_does_not_have_is_bypassed(hostile, times):
    everything = [f"had {piece.digest}" for piece in CARGO.pieces]
    there = hostile(says(*everything, *[f"{READY} {KEY}"] * times, more=serves(NOWHERE)), good={}, other={})
    ended, faults, _ = push(there, offering=["evil"])
    assert not faults
    assert good(ended, "good", "other")


def test_wrong_bytes_from_an_offering_host_are_not_accepted(hostile):
    there = hostile({}, good={}, other={})
    place = there.servers["evil"].home / ".muster/road" / os.uname().nodename / "pieces"
    place.mkdir(parents=True)
    for piece in CARGO.pieces:
        (place / piece.digest).write_bytes(b"x" * piece.size)
    ended, faults, _ = push(there, offering=["evil"])
    assert not faults
    assert good(ended, "good", "other")


def test_a_host_that_falsely_reports_success_deceives_only_itself(hostile):
    everything = [f"got {piece.digest}" for piece in CARGO.pieces]
    there = hostile(says(f"{READY} {KEY}", *everything, "end 0"), good={})
    ended, faults, _ = push(there)
    assert good(ended, "good")
    assert not faults
    assert ended["evil"].done.out == ""


def test_a_host_that_accuses_others_harms_at_most_its_own_transfer(hostile):
    numbers, reasons = ("1", "2", "99", "-1", "1 1", ""), ("wrong", "cut", "unreached \x1b[2J", "silent")
    accuses = [f"lost {number} {why}" for number in numbers for why in reasons]
    there = hostile(says(f"{READY} {KEY}", *accuses * 20), good={}, other={})
    ended, _, notes = push(there)
    assert good(ended, "good", "other")
    assert "\x1b" not in "".join(notes)


@pytest.mark.parametrize("free", ["x", "-1", "9" * 400, ""])
def test_a_host_with_invalid_numbers_fails_alone(hostile, free):
    there = hostile(says(f"ready {free} {KEY}"), good={})
    ended, faults, _ = push(there)
    assert good(ended, "good")
    assert set(faults) <= {"evil"}


def test_a_host_with_an_endless_line_or_output_is_cut_off(hostile):
    def flood():
        yield b"x" * (128 << 10)

    def lines():
        for _ in range(300):
            yield b"out y\n" * 1000
        yield b"end 1\n"

    there = hostile(says(f"{READY} {KEY}", more=flood), good={}, wordy=says(f"{READY} ", more=lines))
    ended, faults, _ = push(there)
    assert good(ended, "good")
    assert "evil" in faults
    assert len(ended["wordy"].done.out) <= 2 * guide._MOST_LINES


def test_digests_of_another_push_are_ignored(hostile):
    strange = [
        f"{word} {digest}" for word in ("had", "got") for digest in ("0" * 64, "../../etc/passwd", "", "x" * 5000)
    ]
    there = hostile(says(f"{READY} {KEY}", *strange), good={})
    ended, _, _ = push(there)
    assert good(ended, "good")


def test_a_link_in_place_of_a_piece_is_neither_read_nor_written_through(hostile):
    there = hostile({}, good={})
    for server in there.servers.values():
        place = server.home / ".muster/road" / os.uname().nodename / "pieces"
        place.mkdir(parents=True)
        (server.home / "precious").write_bytes(b"mine")
        for piece in CARGO.pieces[:4]:
            (place / piece.digest).symlink_to(server.home / "precious")
            (place / f".1.{piece.digest}.here.coming").symlink_to(server.home / "precious")
    ended, faults, _ = push(there)
    assert not faults
    assert good(ended, "good", "evil")
    assert all((server.home / "precious").read_bytes() == b"mine" for server in there.servers.values())


LAYER, STEP = "sha256:" + "5" * 64, 1 << 20


@pytest.mark.parametrize(
    "lines",
    [
        # The receivers of a piece reserve memory for it, so none may be larger than this machine announced.
        (f"{'a' * 64} {STEP}", f"{'b' * 64} 9999999999", LAYER, "end"),
        (f"{'a' * 64} {STEP + 1}", LAYER, "end"),
        (LAYER, "end"),
        (f"{'a' * 64} 0", LAYER, "end"),
        (f"{'a' * 64} -5", f"../../../../etc/passwd {STEP}", LAYER, "end"),
        (f"{'a' * 64} {STEP}", LAYER.replace("5", "6"), "end"),
        (f"{'a' * 64} {STEP}", LAYER.replace("sha256:", "sha256:../"), "end"),
    ],
)
def test_a_host_that_serves_layers_may_only_list_valid_pieces(hostile, lines):
    said = "".join(f"{line.replace('sha256:', 'layer ')}\n" for line in lines).encode()
    there = hostile({"hold": Answer(said, code=None)})
    assert held(there) == "evil: its engine does not give all layers"


@pytest.mark.parametrize("line", [f"{'a' * 64} {STEP}\n", "layer x\n", LAYER.replace("sha256:", "layer ") + "\n", "\n"])
def test_an_endless_list_of_layer_pieces_is_cut_off(hostile, monkeypatch, line):
    monkeypatch.setattr("deploy.send.road.road._MOST_LINES", 2000)

    def flood():
        while True:
            yield line.encode() * 1000

    there = hostile({"hold": Answer(flood(), code=None)})
    assert held(there) == "evil: its engine does not give all layers"


def held(there):
    """The error with which a host refuses to serve layers."""
    with session.open_all(from_flag(there.hosts).hosts) as opened:
        (evil,) = opened.all().values()
        with Road(1, lambda *_: None, lambda _: None) as road, pytest.raises(DeployError) as refused:
            road.hold(evil, "image", [LAYER], STEP, 0)
    return refused.value.message


@pytest.mark.holds("road-closed")
def test_two_pushes_of_one_user_cannot_reach_each_others_pieces(hostile):
    """A host's lock allows one push at a time, but a push that was left alone may still be serving."""
    later_data = random.Random(8).randbytes(17 * MB)
    there, second = hostile({}, good={}), Cargo([of_bytes(later_data)])
    with session.open_all(from_flag(there.hosts).hosts) as opened:
        sessions = list(opened.all().values())
        with Road(2, lambda *_: None, lambda _: None) as one, Road(2, lambda *_: None, lambda _: None) as two:
            first = session.on_all(sessions, lambda each: one.deliver(each, ARGV, CARGO)).all()
            later = session.on_all(sessions, lambda each: two.deliver(each, ARGV, second)).all()
            places = [path.parent for path in Path("/dev/shm").glob("muster-road-*/give")]
            places = [place for place in places if str(there.folder) in (place / "give").read_text()]
            serving = [place for place in places if (place / "log").exists()]
            for place in serving:
                # The later lines have the ports of the clients.
                port = (place / "log").read_text().partition(" port ")[2].split(".")[0]
                wanted = (place / "list").read_text()
                for other in places:
                    if (other / "list").read_text() != wanted:
                        assert ask(port, other / "me", wanted.partition("\n")[0]).returncode == 255
            assert serving, "nobody serves: this test would show nothing"
    assert {each.done.out.strip() for each in first.values()} == {DIGEST}
    assert {each.done.out.strip() for each in later.values()} == {hashlib.sha256(later_data).hexdigest()}
