"""Nodes of one run talk only to those that know its key, and not to a stranger that sends back what it received."""

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


def test_a_question_is_heard_and_answered_only_if_its_sender_knows_the_key():
    heard, port = [], ports.free_port()
    listening = peers.serve("127.0.0.1", port, "key", lambda question: heard.append(question) or {"state": "rests"})
    assert peers.ask("127.0.0.1", port, "another key", {"do": "take"}) is None
    assert heard == []
    assert peers.ask("127.0.0.1", port, "key", {"do": "take"}) == {"state": "rests"}
    assert heard == [{"do": "take"}]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_an_echo_of_a_nodes_own_bytes_is_no_proof(echo):
    with pytest.raises(LinkLost, match="does not know the key"):
        Link.to(f"127.0.0.1 {echo}", "key")


@pytest.mark.parametrize("odd", [None, 1, [], "", "\ud800", "0" * proof.LENGTH])
def test_no_odd_value_passes_for_a_proof(odd):
    assert not proof.is_valid(odd, "key", "answers", "a", "b")


def test_a_proof_holds_only_for_its_key_role_words_and_text():
    right = ("key", "ask", "a", "b", "text")
    assert proof.is_valid(proof.make_proof(*right), *right)
    for place in range(len(right)):
        assert not proof.is_valid(proof.make_proof(*right), *right[:place], "other", *right[place + 1 :])
