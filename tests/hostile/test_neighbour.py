"""A neighbour on the network, without credentials, against the ports of a run: nothing of theirs is ever run."""

import ast
import json
import os
import pickle
from datetime import timedelta

import psutil
import pytest
import torch
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousStateError

from deploy.local import processes
from lab import waiting
from lab.ports import free_port
from muster import exchange
from tests.dist.conftest import HOME, Nodes
from trainer.node.launch import rounds
from trainer.node.membership import meeting


class Payload:
    """Unpickled anywhere, it makes a file that tells."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


@pytest.fixture
def payload(tmp_path):
    """The bytes of a Payload; nobody may have run them by the end of the test."""
    file = tmp_path / "was-run"
    assert os.system("true") == 0
    yield pickle.dumps(Payload(file))
    assert not file.exists(), "a stranger's code was run"


def listening(pids):
    """(address, port, process) of what these processes listen on."""
    connections = psutil.net_connections("tcp")
    return [
        (each.laddr.ip, each.laddr.port, each.pid)
        for each in connections
        if each.status == "LISTEN" and each.pid in pids
    ]


def of_run(folder):
    """Process ids of a run of local processes."""
    return {process.pid for process in processes.labelled(folder)}


class Neighbour:
    """Somebody with a store's client, as any machine in the network has one."""

    def __init__(self, port, address="127.0.0.1"):
        self.store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=10))

    def overwrite(self, data, *names):
        """Put `data` wherever something lies."""
        keys = {*names, *(self.store.list_keys() if hasattr(self.store, "list_keys") else ())}
        for key in keys:
            self.store.set(key, data)
        return keys


@pytest.fixture
def run(tmp_path):
    """Three nodes that train for as long as it takes, once each rank has made steps."""
    made = Nodes(tmp_path / "run", 2, ["--steps", "1000000", "--eval-every", "0"]).start()
    waiting.until(lambda: all(waiting.events(made.run_dir, rank, "step") for rank in range(3)), "training", seconds=120)
    yield made
    made.kill_everything()


@pytest.mark.holds("meeting-address-alone")
@pytest.mark.holds("nothing-is-unpickled")
def test_a_stranger_reaches_no_other_address_and_has_no_code_run(run, payload):
    ports = listening(of_run(run.run_dir))
    meets = int(run.spec.nodes[0].environment["PET_RDZV_ENDPOINT"].rpartition(":")[2])
    assert {address for address, _, _ in ports} == {"127.0.0.1"}
    (torchrun,) = {pid for _, port, pid in ports if port == meets}  # no rank got hold of its socket
    stores = {port for _, port, pid in ports if pid == torchrun} - {meets}
    assert len(stores) == 1
    assert len(ports) >= 5, "both stores, and each rank's gloo"

    Neighbour(*stores).overwrite(payload, "muster/muster/verdict", "muster/group/0/0")
    assert rounds.KEY in Neighbour(meets).overwrite(payload, rounds.KEY)

    codes = waiting.until(
        lambda: None not in (connections := run.codes()).values() and connections, "the end of all nodes"
    )
    assert set(codes.values()) == {1}
    verdicts = [json.loads(file.read_text()) for file in (run.run_dir / "outcome").glob("*-agent.json")]
    assert any("somebody else wrote into the rendezvous of this run" in each["message"] for each in verdicts), verdicts
    logs = [log.read_text() for log in (run.run_dir / "logs").glob("[mw]*.log")]
    # Who read it says so in a line; a node whose store left with that one has torch's words for it.
    assert all("Traceback" not in each or "RendezvousConnectionError" in each for each in logs), logs


# What may lie in the store of the rounds, and who reads it.
WRITTEN = [
    (rounds.round_of, b"3", (3, False)),
    (rounds.round_of, b"3 closed", (3, True)),
    (rounds.node_of, b"8 node-00001", (8, "node-00001")),
    (rounds.meeting_place, b"4711 fd00::1", (4711, "fd00::1")),
]


@pytest.mark.parametrize(("read", "written", "value"), WRITTEN)
def test_what_lies_in_the_store_of_the_rounds_is_read_or_refused_in_words(read, written, value, payload):
    assert read(written) == value
    odd = (payload, b"", b"\xff", b"null", b"{}", b"9" * 9999, b"1" * (2 << 20), b" " + written)
    odd += (written + b"\n", b"-" + written, b"1 \x1b]52;c;x\x07", b"9999999999 x")
    for stored in odd:
        with pytest.raises(RendezvousStateError, match="somebody else wrote"):
            read(stored)


def test_nothing_is_unpickled_of_what_ranks_give_each_other(payload):
    with pytest.raises(pickle.UnpicklingError):
        exchange._load(torch.frombuffer(bytearray(payload), dtype=torch.uint8))
    for path in sorted([*(HOME / "trainer").rglob("*.py"), *(HOME / "muster").rglob("*.py")]):
        used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not [name for name in used if name.endswith(("_object", "_object_list"))], path


@pytest.mark.holds("port-is-held")
def test_the_port_is_held_from_the_first_look_on():
    port = free_port()
    started = meeting.hold("127.0.0.1", port)
    try:
        for address in ("127.0.0.1", "0.0.0.0"):
            with pytest.raises(OSError, match="in use"):
                meeting.listen(address, port)
    finally:
        variables = dict(started)
        claimed = meeting.claim(variables)
        assert (claimed.getsockname(), variables) == (("127.0.0.1", port), {})
        claimed.close()
