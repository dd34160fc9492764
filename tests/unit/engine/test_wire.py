"""A malicious engine: whatever it answers, time, bytes and text are limited."""

from __future__ import annotations

import http.client
import resource
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from deploy.causes.docker_faults import DockerFault
from deploy.core.errors import BadAnswer, DeployError
from deploy.door import framing
from deploy.engine import wire
from deploy.engine.engine import Engine
from deploy.engine.wire import ERR, OUT, Excess, Wire
from tests.hostile.engine import FakeEngine, answered

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n"
LOST = (OSError, http.client.HTTPException, Excess)


@contextmanager
def engine_that(speaks):
    """A connection to an engine that answers its first request with these bytes or pieces."""
    ours, its = socket.socketpair()

    def serve():
        with suppress(OSError):
            its.recv(1 << 16)
            for piece in [speaks] if isinstance(speaks, bytes) else speaks:
                its.sendall(piece)
            its.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield Wire(ours)
    finally:
        ours.close()
        its.close()


def forever(piece, every_s=0.0):
    while True:
        yield piece
        time.sleep(every_s)


def frame(kind, data, size=None):
    return struct.pack(">BxxxI", kind, len(data) if size is None else size) + data


def chunk(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@pytest.mark.holds("stream-limits")
@pytest.mark.parametrize(
    "speaks",
    [
        lambda: _and(ENDLESS, b"[" * 65536),
        lambda: _and(CHUNKED, chunk(b'{"a":' * 9999)),
        lambda: _and(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n", b"x" * 65536),
        lambda: _and(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 999),
        lambda: _and(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 999),
        lambda: _and(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65536),
        lambda: _and(b"", b"x" * 65536),
    ],
    ids=["a body without end", "chunks without end", "a length of a hundred terabytes", "continues", "headers",
         "a header", "no HTTP"],
)  # fmt: skip
def test_an_endless_answer_is_cut(speaks, monkeypatch):
    monkeypatch.setattr(wire, "MOST_ANSWER", 1 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with engine_that(speaks()) as engine, pytest.raises((Excess, http.client.HTTPException)):
        engine.ask("GET", "/x", seconds=20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


def _and(first, again):
    yield first
    yield from forever(again)


@pytest.mark.parametrize("speaks", [b"", ENDLESS, CHUNKED + b"5\r\n"], ids=["nothing", "no body", "half a chunk"])
@pytest.mark.parametrize("every_s", [None, 0.05], ids=["silent", "a byte now and then"])
def test_an_answer_that_takes_too_long_is_late(speaks, every_s):
    def slowly():
        yield speaks
        if every_s is None:
            time.sleep(5)
        yield from forever(b"1", every_s or 1)

    began = time.monotonic()
    with engine_that(slowly()) as engine, pytest.raises(TimeoutError):
        engine.ask("GET", "/x", seconds=0.5)
    assert time.monotonic() - began < 3


def test_a_frame_of_4_gib_is_read_in_pieces_and_a_missing_end_is_noticed():
    def speaks():
        yield CHUNKED + chunk(frame(1, b"", (1 << 32) - 1))
        for _ in range(100):
            yield chunk(b"x" * 65536)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with engine_that(speaks()) as engine:
        sizes = []
        with pytest.raises(http.client.IncompleteRead):
            sizes.extend(len(piece) for _, piece in engine.open("GET", "/x").frames())
    assert sum(sizes) == 100 << 16
    assert max(sizes) <= 1 << 16
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


@pytest.mark.parametrize(
    "head", [b"\x09\0\0\0\0\0\0\x01", b"\x01\0\x01\0\0\0\0\x01", b"GET / HT", b"\x03\0\0\0\0\0\0\x01"]
)
def test_an_invalid_frame_header_is_refused(head):
    with engine_that(CHUNKED + chunk(head + b"x") + b"0\r\n\r\n") as engine, pytest.raises(Excess):
        list(engine.open("GET", "/x").frames())


def test_frames_are_split_into_output_and_errors_however_they_are_cut():
    text = frame(1, b"one\n") + frame(2, b"two\n") + frame(0, b"") + frame(1, b"three")
    body = b"".join(chunk(text[at : at + 1]) for at in range(len(text))) + b"0\r\n\r\n"
    with engine_that([CHUNKED + body[:30], body[30:]]) as engine:
        pieces = list(engine.open("GET", "/x").frames())
    assert b"".join(piece for kind, piece in pieces if kind == OUT) == b"one\nthree"
    assert b"".join(piece for kind, piece in pieces if kind == ERR) == b"two\n"


@pytest.mark.parametrize("cut", [1, 9, 13, 20])
def test_a_stream_that_is_cut_off_is_an_error(cut):
    whole = chunk(frame(1, b"one\n")) + chunk(frame(1, b"two\n"))
    with engine_that(CHUNKED + whole[:-cut]) as engine, pytest.raises(http.client.HTTPException):
        list(engine.open("GET", "/x").frames())


def test_a_stream_that_is_too_slow_times_out_unless_it_is_followed(monkeypatch):
    monkeypatch.setattr(framing, "SLOWEST_OVER_S", 0.3)
    with engine_that(_and(CHUNKED, b"")) as engine, pytest.raises(TimeoutError):
        list(engine.open("GET", "/x").frames())

    def later():
        yield CHUNKED
        time.sleep(0.8)
        yield chunk(frame(1, b"late\n")) + b"0\r\n\r\n"

    with engine_that(later()) as engine:
        assert list(engine.open("GET", "/x", follow=True).frames()) == [(OUT, b"late\n")]


@pytest.mark.parametrize("length", [b"-1b", b"-1", b"-b"])
def test_a_chunk_of_negative_length_is_refused(length):
    says = CHUNKED + length + b"\r\nabc\r\n0\r\n\r\n"
    for read in (lambda wire: wire.ask("GET", "/x"), lambda wire: wire.open("GET", "/x").read(100)):
        with engine_that(says) as wire, pytest.raises(Excess, match="a chunk without a length"):
            read(wire)


def test_two_answers_on_one_connection_are_not_mixed_up():
    fake, (ours, its) = FakeEngine(), socket.socketpair()
    threading.Thread(target=fake.serve, args=(its.recv, its.sendall), daemon=True).start()
    engine = Wire(ours)
    assert b"27.3.1" in engine.ask("GET", "/version").body
    assert engine.ask("GET", "/containers/json").body == b"[]"
    ours.close()


class Near:
    """An engine in this process; `odd` is passed to FakeEngine."""

    host = "a"

    def __init__(self, **odd):
        self.fake, self.connections = FakeEngine(odd=odd), 0

    def connect(self):
        ours, its = socket.socketpair()
        self.connections += 1

        def serve():
            with its, suppress(OSError):
                self.fake.serve(its.recv, its.sendall)

        threading.Thread(target=serve, daemon=True).start()
        return ours

    def explain(self, failed, connection):
        return DeployError(f"a: {failed!r}")


@pytest.mark.parametrize(
    "body", [b"{}", b"[7]", b'[{"Id":"x"}]', b"null", b"\xff", b"", b'[{"Id":"a","Names":7,"State":"running"}]']
)
def test_an_answer_of_the_wrong_type_is_a_bad_answer(body):
    reach = Near(**{"/containers/json": answered(body)})
    with pytest.raises(BadAnswer):
        Engine(reach).containers("muster.run")


@pytest.mark.parametrize("words", [b'{"message":"no \\u001b[31m"}', b"{", b'{"message":7}', b"[" * 9999])
def test_a_refusal_is_reported_in_the_engines_words_or_by_its_status(words):
    reach = Near(**{"/containers/json": answered(words, "500 No")})
    with pytest.raises(DeployError, match=r"Error response from daemon: (no |status 500)"):
        Engine(reach).containers("muster.run")


IMAGES = [{"RepoTags": ["muster-code:latest"], "Size": 4096, "Containers": 1}]
VOLUMES = [{"Name": "muster-packages-1", "UsageData": {"RefCount": 0, "Size": 9}}]


@pytest.mark.parametrize(
    "says",
    [
        {"Images": IMAGES, "Volumes": VOLUMES},
        # The form of API 1.53 and later.
        {"ImageUsage": {"TotalCount": 1, "Items": IMAGES}, "VolumeUsage": {"TotalCount": 1, "Items": VOLUMES}},
    ],
)
def test_stored_images_and_volumes_are_read_from_docker_20_and_docker_29(says):
    reach = Near(**{"/system/df": answered(says)})
    (image,), (volume,) = Engine(reach).stored(5.0)
    assert (image.name, image.size, image.used) == ("muster-code:latest", 4096, True)
    assert (volume.name, volume.size, volume.used) == ("muster-packages-1", 9, False)
    assert "verbose=1" in reach.fake.asked[0]  # without it, the newer engine counts them but names none


def test_a_connection_that_the_engine_closed_is_reopened():
    reach = Near()
    engine = Engine(reach)
    engine.version()
    reach.fake.odd["/containers/json"] = None
    with pytest.raises(DeployError):
        engine.containers("x")  # two tries: the waiting connection, and a new one
    assert reach.connections == 2
    reach.fake.odd.clear()
    assert engine.containers("x") == []


def test_a_request_that_changes_something_is_never_repeated():
    reach = Near()
    engine = Engine(reach)
    engine.version()
    reach.fake.odd["/kill"] = None
    with pytest.raises(DeployError):
        engine.signal("x", "SIGKILL")
    assert [asked for asked in reach.fake.asked if "/kill" in asked] == ["POST /containers/x/kill?signal=SIGKILL"]


@pytest.mark.parametrize("name", ["../../images/x", "a b", "x?force=1", "a\r\nX: y", "\u00b2"])
def test_a_name_is_escaped_as_one_part_of_a_path(name):
    reach = Near()
    assert Engine(reach).inspect(name) is None
    (asked,) = reach.fake.asked
    assert asked.count("/") == 3
    assert " " not in asked.removeprefix("GET ")


@pytest.mark.parametrize(("status", "code"), [("400 Bad Request", 400), ("200 OK", 200)])
def test_a_proxy_that_passes_on_no_upgrade_is_reported(status, code):
    reach = Near(**{"/exec/": answered(b"<html>", status)})
    reach.fake.odd["/containers/x/exec"] = answered({"Id": "a1"}, "201 Created")
    with pytest.raises(DockerFault, match=f"unable to upgrade to tcp, received {code}"):
        Engine(reach).ask_inside("x", ("true",), 5.0)


def test_a_command_whose_connection_ends_first_has_no_exit_code(monkeypatch):
    monkeypatch.setattr("deploy.engine.container_command._CODE_S", 0.2)
    upgraded = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    reach = Near(**{"/exec/a1/start": upgraded + frame(1, b"begun\n"), "/exec/a1/json": answered({"Running": True})})
    reach.fake.odd["/containers/x/exec"] = answered({"Id": "a1"}, "201 Created")
    reach.fake.ends_after = "/start"
    with pytest.raises(DeployError, match="EOFError"):
        Engine(reach).ask_inside("x", ("true",), 5.0)
    reach.fake.odd["/exec/a1/json"] = answered({"Running": False, "ExitCode": 7})
    assert Engine(reach).ask_inside("x", ("true",), 5.0) == (7, "begun\n", "")
