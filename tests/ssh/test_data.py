"""Data on several hosts, between real OpenSSH servers: one upload, interrupted and continued; then only changes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress

import pytest

from deploy.core.errors import DeployError
from deploy.door import session
from deploy.job.values import Data
from deploy.send.folder import folder_memory, folder_push
from deploy.send.folder.folder_look import FolderLook
from deploy.send.road.road import Road
from deploy.send.road.routes import HERE
from lab.waiting import until
from tests.ssh.test_road import HOME, MB, pieces, three, working
from tests.unit.send.test_folder_push import tree

CUT = """
import sys, time
from pathlib import Path
from deploy.send.road import cargo
from tests.ssh.test_data import *
from deploy.job.cluster import from_flag
read = cargo.Cargo.read
def slow(self, piece):
    time.sleep(0.25)
    return read(self, piece)
cargo.Cargo.read = slow
class At:
    def __init__(self, host): self.name, self.host = host.name, host
send([At(host) for host in from_flag(sys.argv[1]).hosts], Path(sys.argv[2]), Path(sys.argv[3]))
"""


def send(servers, folder, cache):
    """Send the folder as data to all servers; returns, by host, the bytes from each source, or the error."""
    outgoing = folder_push.outgoing_folder(FolderLook(folder, cache=cache, data=Data(folder, "/data")))
    with session.open_all([server.host for server in servers]) as opened:
        sessions = list(opened.all().values())
        with Road(len(sessions), lambda host, sent, total, source="": None, lambda text: None) as road:

            def work(each):
                there = folder_push.look_at_folders(each, outgoing.names)
                return folder_push.send_folder(each, outgoing, there, road)

            results = session.on_all(sessions, work)
    if results.values:
        outgoing.keep()
    return results


def there(server):
    """The data on a host, by digest."""
    return {path.name: path for path in server.home.glob(".muster/data/*/*")}


def kill_in_between(hosts, corpus, tmp_path):
    """Start a push and kill it once most of the data has arrived."""
    script = tmp_path / "cut.py"
    script.write_text(CUT)
    where = ",".join(host.host.destination for host in hosts)
    line = [sys.executable, script, where, corpus, tmp_path / "cache"]
    cut = subprocess.Popen(line, cwd=HOME, env={**os.environ, "PYTHONPATH": str(HOME)})
    until(lambda: all(arrived(host) >= 18 * MB for host in hosts), "most of it on all hosts", 90)
    cut.send_signal(signal.SIGKILL)
    cut.wait()


def arrived(server):
    """The total size of the pieces on a host, in bytes."""
    with suppress(FileNotFoundError):
        return sum(path.stat().st_size for path in pieces(server))
    return 0


@pytest.fixture
def hosts(server):
    yield from three(server)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_memory, "_RECENT_S", -60.0)
    folder = tmp_path / "corpus"
    for number in range(4):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "shard.bin").write_bytes(random.Random(number).randbytes(6 * MB))
    (folder / "small").write_text("x")
    (folder / "etc").symlink_to("/etc")
    return folder


def test_data_leaves_this_machine_once_and_later_only_its_changes(hosts, corpus, tmp_path):
    first = send(hosts, corpus, tmp_path / "cache").all()
    total = sum(first.values(), Counter())
    assert 24 * MB < total[HERE] < 24.1 * MB
    assert total.total() > 3 * 24 * MB
    for server in hosts:
        ((_, place),) = there(server).items()
        assert tree(place) == tree(corpus)
        assert pieces(server) == []
    again = send(hosts, corpus, tmp_path / "cache").all()
    assert sum(again.values(), Counter()).total() == 0
    (corpus / "0/shard.bin").write_bytes(random.Random(9).randbytes(6 * MB))
    third = sum(send(hosts, corpus, tmp_path / "cache").all().values(), Counter())
    # A change of a few megabytes goes straight from this machine to each host where that is faster.
    assert 6 * MB < third[HERE] < 3 * 6.1 * MB
    assert all(tree(corpus) in map(tree, there(server).values()) for server in hosts)


def test_a_killed_data_push_continues_from_what_arrived_and_leaves_nothing_partial(hosts, corpus, tmp_path):
    kill_in_between(hosts, corpus, tmp_path)
    until(lambda: not working(hosts), "the end of its parts on the hosts", 60)
    assert all(there(host).keys() <= {".coming"} or not there(host) for host in hosts), "no digest names half of it"
    total = sum(send(hosts, corpus, tmp_path / "cache").all().values(), Counter())
    assert total[HERE] < 9 * MB
    assert all(tree(place) == tree(corpus) for server in hosts for place in there(server).values())


def test_a_new_file_does_not_restart_an_interrupted_push(hosts, corpus, tmp_path):
    """Pieces belong to files: a new file that sorts first does not shift them."""
    kill_in_between(hosts, corpus, tmp_path)
    (corpus / "0/a new one").write_text("x" * 1000)
    total = sum(send(hosts, corpus, tmp_path / "cache").all().values(), Counter())
    assert total[HERE] < 9 * MB


def test_data_that_changes_while_it_is_read_is_stored_on_no_host(hosts, corpus, tmp_path):
    outgoing = folder_push.outgoing_folder(FolderLook(corpus, cache=tmp_path / "c", data=Data(corpus, "/data")))
    (corpus / "3/shard.bin").open("r+b").write(b"another begin")
    with session.open_all([server.host for server in hosts]) as opened:
        sessions = list(opened.all().values())
        with Road(len(sessions), lambda *_: None, lambda text: None) as road:

            def work(each):
                return folder_push.send_folder(each, outgoing, folder_push.look_at_folders(each, outgoing.names), road)

            faults = session.on_all(sessions, work).faults
    assert set(faults) == {"a", "b", "c"}
    assert all(isinstance(fault, DeployError) for fault in faults.values())
    assert any("3/shard.bin has changed" in fault.message for fault in faults.values())
    assert not any(there(server) for server in hosts)
