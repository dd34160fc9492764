"""The register reads nothing from a peer without the run's key, and runs no code from a peer that has it."""

import os
import pickle
import socket
from contextlib import suppress

import pytest

from lab.ports import free_port
from lab.waiting import until
from muster.errors import TrainError
from trainer.node.membership import register


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


@pytest.mark.holds("register-proved")
def test_a_message_needs_the_proof_of_the_key():
    proof = register._Proof("key")
    message = proof.encrypt_at_time(b"vote", 7)
    assert (proof.extract_timestamp(message), proof.decrypt(message)) == (7, b"vote")
    flipped = [bytes([*message[:place], message[place] ^ 1, *message[place + 1 :]]) for place in range(len(message))]
    for other in (register._Proof("other").encrypt_at_time(b"vote", 7), b"", message[:-1], *flipped):
        with pytest.raises(ValueError, match="no proof"):
            proof.extract_timestamp(other)
        with pytest.raises(ValueError, match="no proof"):
            proof.decrypt(other)


@pytest.mark.holds("register-proved")
def test_a_pickle_may_hold_only_plain_values():
    plain = {"type": "vote", "term": 3, "entries": [(b"\x00\xff", 1, 2.5, None, True, "é")]}
    assert register._loads(pickle.dumps(plain, 2)) == plain
    for value in (Evil(), os.system, Exception("x")):
        with pytest.raises(pickle.UnpicklingError):
            register._loads(pickle.dumps(value, 2))


@pytest.mark.long
@pytest.mark.parametrize("content", [None, b""])
def test_a_journal_that_cannot_be_kept_is_told_from_a_port_that_is_taken(tmp_path, content):
    journal, where = tmp_path / "nodes/a.register", {name: f"127.0.0.1:{free_port()}" for name in ("a", "b")}
    if content is not None:
        journal.parent.mkdir()
        journal.write_bytes(content)
    with pytest.raises(TrainError, match=r"a\.register: the nodes' register cannot be kept there: \S"):
        register.Register("a", where, "key", journal)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where["b"] = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TrainError, match="cannot listen on"):
            register.Register("b", where, "key", tmp_path / "b.register")


def test_the_library_leaves_the_socket_module_as_it_is():
    assert socket.inet_ntop(socket.AF_INET, b"\x7f\x00\x00\x01") == "127.0.0.1"


@pytest.mark.holds("register-proved")
def test_a_majority_holds_an_epoch_and_strangers_neither_read_it_nor_flood_a_node(tmp_path):
    where = {name: f"127.0.0.1:{free_port()}" for name in "abc"}
    nodes = [register.Register(name, where, "key", tmp_path / name) for name in "ab"]  # c is lost
    stranger = register.Register("c", where, "another key", tmp_path / "c")
    try:
        until(lambda: any(node.is_leader for node in nodes), "a leader")
        with socket.create_connection(("127.0.0.1", int(where["a"].rpartition(":")[2]))) as flood, suppress(OSError):
            flood.settimeout(5)
            flood.sendall((1 << 30).to_bytes(4, "little"))
            for _ in range(64):  # 64 MiB of a message that was announced as 1 GiB: the node hangs up long before
                flood.sendall(bytes(1 << 20))
            raise AssertionError("the flood was taken")
        next(node for node in nodes if node.is_leader).form(1, ("a", "b"))
        until(lambda: all(node.epoch.members == ("a", "b") for node in nodes), "both to hold it")
        for number in (1, 3):  # neither the current epoch again nor one that does not follow it
            next(node for node in nodes if node.is_leader).form(number, ("a",))
        next(node for node in nodes if node.is_leader).end(1, 0)
        until(lambda: all(node.epoch.over == 0 for node in nodes), "the end")
        assert [node.epoch.number for node in nodes] == [1, 1]
        assert stranger.epoch.number == 0
        assert not stranger.is_leader
    finally:
        for node in (*nodes, stranger):
            node.close()


def test_a_node_with_a_full_disk_hears_of_each_epoch_and_votes_again_once_it_has_room(tmp_path, monkeypatch):
    where = {name: f"127.0.0.1:{free_port()}" for name in "abc"}
    nodes = {name: register.Register(name, where, "key", tmp_path / name) for name in "abc"}
    store, full, failed = register.their_journal.MetaStorer.storeMeta, True, []

    def store_or_fail(self, meta):  # a fake of a full disk
        if full and self.getPath().startswith(str(tmp_path / "a")):
            failed.append(meta)
            raise OSError(28, "No space left on device")
        store(self, meta)

    def form(number, *names):
        until(lambda: any(nodes[name].is_leader for name in names), "a leader")
        next(nodes[name] for name in names if nodes[name].is_leader).form(number, tuple(names))
        until(lambda: all(nodes[name].epoch.number == number for name in names), f"epoch {number}")

    try:
        until(lambda: all(node.is_current for node in nodes.values()), "the nodes to agree")
        monkeypatch.setattr(register.their_journal.MetaStorer, "storeMeta", store_or_fail)
        form(1, *"abc")
        until(lambda: failed, "the library to save, which it does once a second")
        form(2, *"abc")
        full = False
        nodes["b"].close()  # of the two that are left, each needs the other's vote
        form(3, *"ac")
    finally:
        for node in nodes.values():
            node.close()
