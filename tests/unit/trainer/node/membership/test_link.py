"""Two nodes of a run talk over a connection; whatever the other end does wrong raises LinkLost and never hangs."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from trainer.node.membership.link import Link, LinkLost


@pytest.fixture
def pair():
    """Both ends of a link: ours, and the other node's, which has proved that it knows the key."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening, ThreadPoolExecutor(1) as threads:
        opened = threads.submit(Link.to, f"127.0.0.1 {listening.getsockname()[1]}", "key")
        theirs = Link(listening.accept()[0], "key", opens=False)
        with opened.result() as ours, theirs:
            yield ours, theirs


def test_messages_and_bytes_come_as_they_were_sent(pair):
    ours, theirs = pair
    theirs.send({"files": ["ä", 1]})
    theirs.write(b"whole")
    theirs.close()
    assert ours.receive() == {"files": ["ä", 1]}
    assert ours.read(99) == b"whole"


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\xff\xff\xff\xff", "a message of 4294967295 bytes"),
        (b"\0\0\0\x03abc", "not JSON"),
        (b"\0\0\0\x02\xff\xfe", "not JSON"),
        ((200_000).to_bytes(4) + b"[" * 200_000, "not JSON"),
        (b"\0\0\0\x01\x31", "not an object"),
        (b"\0\0\0\x09{", "connection to a node ended"),
        (b"\0", "connection to a node ended"),
        (b"", "connection to a node ended"),
    ],
)
def test_an_invalid_message_ends_the_link(pair, sent, why):
    ours, theirs = pair
    theirs.write(sent)
    theirs.end()
    with pytest.raises(LinkLost, match=why):
        ours.receive()


def test_a_silent_node_is_waited_for_only_as_long_as_asked(pair):
    ours, _ = pair
    ours.patience(0.05)
    with pytest.raises(LinkLost, match="connection to a node ended"):
        ours.receive()


def test_every_wait_ends_when_another_thread_ends_the_link(pair):
    ours, _ = pair
    ours.patience(None)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ours.receive)
        ours.end()
        with pytest.raises(LinkLost):
            waiting.result(10)


def test_without_a_listener_no_link_is_made():
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(LinkLost, match=r"cannot reach 127\.0\.0\.1"):
        Link.to(f"127.0.0.1 {port}", "key")


def test_a_node_with_another_key_gets_no_link():
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(Link, theirs, "another key", opens=False)
        with pytest.raises(LinkLost, match=r"does not know the key|connection to a node ended"):
            Link(ours, "key", opens=True)
        with pytest.raises(LinkLost):
            other.result(20)
