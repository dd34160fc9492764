"""A stranger on the network, without credentials, attacks the ports of a run: none of their code ever runs."""

import ast
import os
import pickle
import signal
import socket
from contextlib import suppress
from datetime import timedelta

import psutil
import pytest
from torch.distributed import TCPStore

from deploy.local import processes
from lab import waiting
from lab.ports import free_port
from muster import exchange
from tests.dist.conftest import HOME, Nodes
from trainer.node.membership import all_nodes, meeting, peers


class Payload:
    """When unpickled anywhere, it creates a file that proves it."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


@pytest.fixture
def payload(tmp_path):
    """The bytes of a Payload; by the end of the test, nobody may have executed them."""
    file = tmp_path / "was-run"
    assert os.system("true") == 0
    yield pickle.dumps(Payload(file))
    assert not file.exists(), "a stranger's code was run"


def listening(pids):
    """(address, port, process) of every socket on which these processes listen."""
    connections = psutil.net_connections("tcp")
    return [
        (each.laddr.ip, each.laddr.port, each.pid)
        for each in connections
        if each.status == "LISTEN" and each.pid in pids
    ]


def of_run(folder):
    """Process ids of a run with local processes."""
    return {process.pid for process in processes.labelled(folder)}


class Neighbour:
    """A stranger with a client for torch's store, which any machine on the network can have."""

    def __init__(self, port, address="127.0.0.1"):
        self.store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=10))

    def overwrite(self, data, *names):
        """Write `data` to each of these keys, and to every key that can be listed."""
        keys = {*names, *(self.store.list_keys() if hasattr(self.store, "list_keys") else ())}
        for key in keys:
            self.store.set(key, data)
        return keys


@pytest.fixture
def run(tmp_path):
    """Three nodes that train until the test ends; yielded once each rank has made steps."""
    made = Nodes(tmp_path / "run", 2, ["--steps", "1000000", "--eval-every", "0"]).start()
    waiting.until(lambda: all(waiting.events(made.run_dir, rank, "step") for rank in range(3)), "training", seconds=120)
    yield made
    made.kill_everything()


@pytest.mark.holds("meeting-address-alone")
@pytest.mark.holds("nothing-is-unpickled")
def test_a_stranger_reaches_only_the_meeting_address_and_runs_no_code(run, payload):
    ports = listening(of_run(run.run_dir))
    meets = int(run.spec.nodes[0].environment["PET_RDZV_ENDPOINT"].rpartition(":")[2])
    assert {address for address, _, _ in ports} == {"127.0.0.1"}
    ranks = {began["pid"] for rank in range(3) for began in waiting.events(run.run_dir, rank, "began")}
    (agent,) = {pid for _, port, pid in ports if port == meets}
    assert agent not in ranks, "no rank got hold of its socket"
    (store,) = {port for _, port, pid in ports if pid not in {*ranks, agent}}
    assert len(ports) >= 5, "the agent's port, the ranks' store, and each rank's gloo"

    Neighbour(store).overwrite(payload, "muster/muster/verdict", "muster/group/0/0")
    os.kill(max(ranks), signal.SIGKILL)  # the other ranks ask the store who knows the reason
    again = waiting.until(lambda: waiting.events(run.run_dir, 0, "began")[1:], "another start, in a store of its own")
    waiting.until(lambda: waiting.events(run.run_dir, 0, "step")[-1]["t"] > again[0]["t"], "training")


@pytest.mark.holds("nothing-is-unpickled")
@pytest.mark.holds("register-proved")
def test_a_stranger_at_the_agents_port_changes_nothing(run, payload):
    meets = int(run.spec.nodes[0].environment["PET_RDZV_ENDPOINT"].rpartition(":")[2])
    about = {"place": 1, "life": "x", "after": 9, "number": 9, "ranks": 1, "over": True}
    for key in ("", "guess", f"{run.spec.nodes[0].environment['PET_RDZV_ID']}x "):
        assert peers.ask("127.0.0.1", meets, key, about) is None
    for sent in (payload, b"", b"null\n", b"[" * 200_000, b"\xff" * (2 << 20)):
        with suppress(OSError), socket.create_connection(("127.0.0.1", meets), 5) as connection:
            connection.sendall(sent)
    before = len(waiting.events(run.run_dir, 1, "step"))
    waiting.until(lambda: len(waiting.events(run.run_dir, 1, "step")) > before + 2, "more steps")
    assert len(waiting.events(run.run_dir, 1, "began")) == 1


# What a node with the key, or a compromised host, may send.
SAID = {"place": 1, "life": "a", "ranks": 2, "after": 3, "number": 3, "store": "127.0.0.1 4711", "stands": "moves"}


@pytest.mark.parametrize("odd", [None, [], {}, "x", "\x1b]52;c;x\x07", float("nan"), float("inf"), 10**400, True, -7])
@pytest.mark.parametrize("field", SAID)
def test_the_first_agent_answers_the_others_whatever_one_of_them_sends(field, odd):
    port = free_port()
    first = all_nodes.AllNodesMember(0, 3, "127.0.0.1", port, "key")
    try:
        peers.ask("127.0.0.1", port, "key", {**SAID, field: odd})
        assert peers.ask("127.0.0.1", port, "key", {**SAID, "place": 2})["nodes"] == 3
    finally:
        first.close()


def test_nothing_that_ranks_exchange_is_unpickled(payload):
    with pytest.raises(pickle.UnpicklingError):
        exchange._load(bytearray(payload))
    for path in sorted([*(HOME / "trainer").rglob("*.py"), *(HOME / "muster").rglob("*.py")]):
        used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not [name for name in used if name.endswith(("_object", "_object_list"))], path


@pytest.mark.holds("port-is-held")
def test_the_rendezvous_port_is_held_from_the_first_look_on():
    port = free_port()
    first = all_nodes.AllNodesMember(0, 2, "127.0.0.1", port, "key")
    try:
        for address in ("127.0.0.1", "0.0.0.0"):
            with pytest.raises(OSError, match="in use"):
                meeting.listen(address, port)
    finally:
        first.close()
