"""A node keeps its host's end of the run's network alive, and learns immediately when that end is gone."""

import socket
import threading
import uuid

import pytest

from trainer.node.beside import overlay_connection


@pytest.fixture
def end():
    """A listening end of the run's network, and the variables with its name."""
    name = f"muster-overlay-test-{uuid.uuid4().hex}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(f"\0{name}")
    listening.listen()
    listening.settimeout(5)
    yield listening, {overlay_connection.SOCKET_VARIABLE: name, "PATH": "/bin"}
    listening.close()


def test_a_node_that_leaves_says_so_and_no_rank_inherits_the_name(end):
    listening, environment = end
    lost = threading.Event()
    leave = overlay_connection.hold(environment, lost.set)
    assert environment == {"PATH": "/bin"}
    connection, _ = listening.accept()
    connection.settimeout(5)
    leave()
    assert connection.recv(100) == overlay_connection.DONE
    assert not lost.is_set()
    connection.close()
    assert lost.wait(5), "the end of the end is heard"


def test_a_node_whose_network_end_is_gone_does_not_begin():
    with pytest.raises(overlay_connection.NoOverlay, match="does not outlive a reboot"):
        overlay_connection.hold(
            {overlay_connection.SOCKET_VARIABLE: f"muster-overlay-test-{uuid.uuid4().hex}"}, lambda: None
        )


def test_a_run_without_an_overlay_network_ties_nothing():
    assert overlay_connection.hold({}, lambda: None)() is None
