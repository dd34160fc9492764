"""A run's only node restarts as often as was asked, with a new store each time; a launcher has its own store."""

import socket

import pytest

from lab.ports import free_port

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def alone(monkeypatch):
    """Return a function that makes the epochs of a run's only node: two ranks, one restart. `config`: torchrun's."""
    from torch.distributed.launcher.api import LaunchConfig

    from trainer.node.launch.epochs import Epochs

    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "lo")
    monkeypatch.delenv("MUSTER_LAUNCHER_RANKS", raising=False)
    made = []

    def start(**config):
        asked = {"rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0", "rdzv_configs": {"join_timeout": 0}, **config}
        sizes = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2, "max_restarts": 1}
        made.append(Epochs(LaunchConfig(**sizes, **asked)))
        return made[-1]

    yield start
    for each in made:
        if each._store:
            each._store.close()


def listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_ranks_begin_immediately_and_begin_again_as_often_as_was_asked(alone):
    epochs = alone()
    first = epochs.next()
    assert (first.attempt, first.place, first.nodes, first.first_rank, first.world) == (0, 0, 1, 0, 2)
    assert listens(first.port)
    assert not epochs.waiting(), "nobody asks the ranks to begin again"
    second = epochs.next(failed=True)
    assert second.attempt == 1
    assert not listens(first.port), "keys of earlier ranks are in the earlier store"
    assert epochs.next(failed=True) is None


def test_a_run_is_over_once_its_ranks_have_ended_well(alone):
    epochs = alone()
    epochs.next()
    assert epochs.is_over()


def test_ranks_of_a_node_with_a_given_port_meet_there_each_time(alone):
    port = free_port()
    epochs = alone(rdzv_backend="static", rdzv_endpoint=f"127.0.0.1:{port}")
    assert [epochs.next().port, epochs.next(failed=True).port] == [port, port]


def test_a_launcher_gets_a_free_port_and_another_one_at_each_start(alone, monkeypatch):
    monkeypatch.setenv("MUSTER_LAUNCHER_RANKS", "2")
    told = free_port()
    epochs = alone(rdzv_backend="static", rdzv_endpoint=f"127.0.0.1:{told}")
    first = epochs.next()
    assert first.port != told, "what an earlier launcher has left may listen there still"
    with socket.create_server(("127.0.0.1", first.port)):
        assert epochs.next(failed=True).port not in (told, first.port)


def test_a_port_that_another_holds_is_waited_for_and_then_given_up(alone):
    from torch.distributed.elastic.rendezvous import RendezvousTimeoutError

    with socket.create_server(("127.0.0.1", 0)) as other:
        epochs = alone(rdzv_backend="static", rdzv_endpoint=f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(RendezvousTimeoutError):
            epochs.next()
