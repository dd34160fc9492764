"""Nodes of one run talk to those that know its key, and to nobody else: not to who sends back what it got either."""

import socket
import threading

import pytest

from lab import ports
from trainer.node.membership import peers, proof
from trainer.node.membership.link import Link, LinkLost


@pytest.fixture
def echo():
    """The port of a stranger who sends back every byte."""

    def answer():
        connection, _ = listening.accept()
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answer, daemon=True).start()
        yield listening.getsockname()[1]


def test_a_question_is_answered_to_who_knows_the_key_and_nobody_else_is_heard():
    heard, port = [], ports.free_port()
    listening = peers.serve("127.0.0.1", port, "key", lambda question: heard.append(question) or {"state": "rests"})
    assert peers.ask("127.0.0.1", port, "another key", {"do": "take"}) is None
    assert heard == []
    assert peers.ask("127.0.0.1", port, "key", {"do": "take"}) == {"state": "rests"}
    assert heard == [{"do": "take"}]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_what_comes_back_as_it_went_is_no_proof(echo):
    with pytest.raises(LinkLost, match="does not know the key"):
        Link.to(f"127.0.0.1 {echo}", "key")


@pytest.mark.parametrize("odd", [None, 1, [], "", "\ud800", "0" * proof.LENGTH])
def test_a_proof_may_be_anything(odd):
    assert not proof.holds(odd, "key", "answers", "a", "b")


def test_a_proof_is_of_its_role_its_words_and_its_text_alone():
    right = ("key", "ask", "a", "b", "text")
    assert proof.holds(proof.of(*right), *right)
    for place in range(len(right)):
        assert not proof.holds(proof.of(*right), *right[:place], "other", *right[place + 1 :])
