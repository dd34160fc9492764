"""Nodes of one start share files before an attempt, on real sockets; nobody else receives or provides a file."""

import errno
import io
import json
import os
import resource
import socket
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lab import waiting
from muster.errors import TrainError
from trainer.node.files import share, work
from trainer.node.membership import proof
from trainer.node.membership.link import Link, LinkLost

HOME = Path(__file__).resolve().parents[5]
KEY = "0123456789abcdef"


def write(folder, path, text, at):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (at, at))


def events(folder):
    lines = [line for file in sorted((folder / "ranks").glob("*")) for line in file.read_text().splitlines()]
    return [(event["node"], event["source"], event["files"], event["bytes"]) for event in map(json.loads, lines)]


class Nodes:
    """Nodes on the loopback interface, each with its own run folder; each attempt runs one thread per node."""

    def __init__(self, tmp_path, count):
        self.folders = [tmp_path / f"node-{place}" for place in range(count)]
        for folder in self.folders:
            (folder / "sent").mkdir(parents=True)
            work.prepare(folder, folder / "sent")
        self.sharing = [share.Sharing(KEY, folder, f"n{place}", 2) for place, folder in enumerate(self.folders)]

    def attempt(self, places=None, on_meet=lambda place, first: None, on_first=lambda where: None, stale=()):
        """Return what each node raised, by its place. `stale`: places of nodes that others continued without."""
        found, met, first = {}, threading.Event(), []

        def meet(place, where):
            if place == 0:
                on_first(where)
                first.append(where)
                met.set()
            assert met.wait(10)
            on_meet(place, first[0])
            return first[0]

        def run(place):
            try:
                node = self.sharing[place]
                epoch = {"place": place, "nodes": len(self.folders), "stayed": place not in stale, "lost": []}
                found[place] = node.attempt(epoch, "127.0.0.1", lambda where: meet(place, where))
            except Exception as fault:
                found[place] = fault

        threads = [threading.Thread(target=run, args=(place,)) for place in places or range(len(self.folders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
            assert not thread.is_alive(), "a node hangs"
        return found


@pytest.fixture
def nodes(tmp_path):
    return Nodes(tmp_path, 3)


def test_every_node_gets_a_checkpoint_of_a_hidden_folder_and_nobody_gets_a_download(nodes):
    path, blob = "home/.cache/mychat/model_000030.pt", f"home/.cache/huggingface/hub/models--a--b/blobs/{'0f' * 32}"
    write(nodes.folders[0], path, "weights", 10)
    write(nodes.folders[0], blob, "download", 10)
    write(nodes.folders[0], "home/.cache/torch_extensions/py311_cpu/mine/lock", "", 10)
    assert not any(nodes.attempt().values())
    for folder in nodes.folders[1:]:
        assert (folder / path).read_text() == "weights"
        assert [entry.name for entry in (folder / "home/.cache").iterdir()] == ["mychat"]


def test_files_of_rank_0_reach_all_nodes_and_each_nodes_own_files_stay(nodes):
    first, second, third = nodes.folders
    write(first, "work/ckpt/last.pt", "step 1", 100)
    write(third, "home/state.json", "third", 100)
    for folder in nodes.folders:
        write(folder, "work/own.txt", folder.name, 100)
    assert nodes.attempt() == {0: None, 1: None, 2: None}
    for folder in nodes.folders:
        assert (folder / "work/ckpt/last.pt").read_text() == "step 1"
        assert (folder / "home/state.json").read_text() == "third"
        assert (folder / "work/own.txt").read_text() == folder.name
    write(first, "work/ckpt/last.pt", "step 2", 200)
    (third / "home/state.json").unlink()
    write(second, "work/ckpt/last.pt", "its own", 300)
    assert nodes.attempt() == {0: None, 1: None, 2: None}
    assert [(folder / "work/ckpt/last.pt").read_text() for folder in nodes.folders] == ["step 2", "its own", "step 2"]
    assert not (third / "home/state.json").exists()
    assert events(third) == [("n2", "n0", 1, 6), ("n2", "n0", 1, 6)]
    assert work.count_written(third).files == 1


def test_nothing_to_share_changes_nothing(nodes):
    assert nodes.attempt() == {0: None, 1: None, 2: None}
    assert [list((folder / "work").iterdir()) for folder in nodes.folders] == [[], [], []]


@pytest.mark.holds("shared-inside")
def test_a_stranger_gets_nothing_and_stops_nobody(nodes):
    write(nodes.folders[0], "work/last.pt", "weights", 100)
    strangers = []

    def disturb(where):
        address, _, port = where.partition(" ")
        strangers.append(socket.create_connection((address, int(port))))  # it sends nothing at all
        noisy = socket.create_connection((address, int(port)))
        noisy.sendall(os.urandom(4096))
        strangers.append(noisy)
        with pytest.raises(LinkLost):
            Link.to(where, "another key")
        strangers.append(None)

    assert nodes.attempt(on_first=disturb) == {0: None, 1: None, 2: None}
    assert len(strangers) == 3
    assert (nodes.folders[2] / "work/last.pt").read_text() == "weights"


_DOOR = """
import resource, sys
from pathlib import Path
from trainer.node.files.share import FileServer
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
print(FileServer("127.0.0.1", sys.argv[2], Path(".")).where, flush=True)
for _ in sys.stdin:
    print(open("/dev/null").name, flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize(("files", "strangers"), [(1024, 1100), (40, 100)])
def test_hundreds_of_strangers_use_up_neither_a_nodes_open_files_nor_its_door(files, strangers):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most[1]), most[1]))
    words, pipes = [sys.executable, "-c", _DOOR, str(files), KEY], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as stack, subprocess.Popen(words, cwd=HOME, text=True, **pipes) as node:
        stack.callback(node.kill)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, most)
        where = node.stdout.readline()
        address, port = where.split()
        with ExitStack() as open_ones:
            for _ in range(strangers):
                open_ones.enter_context(socket.create_connection((address, int(port))))
            has = Path(f"/proc/{node.pid}/fd")
            waiting.until(lambda: len([*has.iterdir()]) >= min(files, 256), "the node to meet them")
            time.sleep(0.2)
            if files > 1000:  # as many open files as a host usually allows
                print(file=node.stdin, flush=True)
                assert node.stdout.readline() == "/dev/null\n"

        def is_open():
            with suppress(LinkLost):
                Link.to(where, KEY).close()
                return True
            return False

        waiting.until(is_open, "the node to answer one of its own")


def test_a_node_gives_only_what_it_lists(nodes):
    first = nodes.folders[0]
    write(first, "work/last.pt", "weights", 100)
    (first / "secret.json").write_text("key")
    read = []

    def ask(place, where):
        if place == 1:
            with Link.to(where, KEY) as asks:
                deadline = time.monotonic() + 5
                while not read and time.monotonic() < deadline:
                    asks.send({"get": ["secret.json", "../secret.json", "work/../secret.json"]})
                    read.append(asks.read(1 << 20))

    assert nodes.attempt(on_meet=ask) == {0: None, 1: None, 2: None}
    assert b"key" not in read[0]


def test_a_node_takes_only_what_it_asked_for_and_no_more_than_was_listed(nodes):
    data, second = io.BytesIO(), nodes.folders[1]
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, size in (("work/train.py", 3), ("work/asked", 9), ("home/asked", 3)):
            about = tarfile.TarInfo(name)
            about.size = size
            tar.addfile(about, io.BytesIO(b"x" * size))
    data.seek(0)
    wanted = {"work/asked": 3, "home/asked": 3}
    with tarfile.open(fileobj=data) as tar:
        assert list(work.unpack(tar, second, "n0", wanted)) == ["home/asked"]
    assert not (second / "work/asked").exists()
    assert not (second / "work/train.py").exists()


def test_a_file_that_was_written_while_it_was_sent_is_reported_as_the_cause(tmp_path):
    class Sent(io.BytesIO):
        def send(self, asked):
            """Ignore the request: the stream holds the node's answer already."""

    sent = Sent()
    with tarfile.open(fileobj=sent, mode="w") as tar:
        about = tarfile.TarInfo("work/last.pt")
        about.size = 3
        tar.addfile(about, io.BytesIO(b"xxx"))  # the last name is missing, as in FileServer's answer in this case
    sent.seek(0)
    with pytest.raises(LinkLost, match="of 1 files of n0 is missing, or was written in the meantime"):
        share.receive(sent, "n0", {"work/last.pt": 3}, tmp_path)


def test_if_a_node_goes_away_the_others_notice_and_may_meet_again(nodes):
    write(nodes.folders[0], "work/last.pt", "weights", 100)

    def dies(place, where):
        if place == 2:
            gone = Link.to(where, KEY)
            gone.send({"place": 2})
            gone.close()
            raise KeyError("dead")

    found = nodes.attempt(on_meet=dies)
    assert isinstance(found[0], LinkLost)
    assert isinstance(found[1], LinkLost)
    assert nodes.attempt() == {0: None, 1: None, 2: None}
    assert (nodes.folders[2] / "work/last.pt").read_text() == "weights"


def test_a_node_that_was_left_behind_takes_the_others_files_even_after_a_broken_meeting(nodes):
    def breaks(place, where):
        raise LinkLost("cut")

    write(nodes.folders[0], "work/last.pt", "step 9", 100)
    write(nodes.folders[2], "work/last.pt", "step 5", 300)
    nodes.attempt(stale=[2], on_meet=breaks)
    assert nodes.attempt() == {0: None, 1: None, 2: None}
    assert (nodes.folders[2] / "work/last.pt").read_text() == "step 9"
    # From here on, the files that it writes count as its own.
    write(nodes.folders[2], "work/last.pt", "step 10", 400)
    assert nodes.attempt() == {0: None, 1: None, 2: None}
    assert (nodes.folders[2] / "work/last.pt").read_text() == "step 10"


def test_a_full_disk_ends_all_nodes_and_its_node_is_named(nodes, monkeypatch):
    write(nodes.folders[0], "work/last.pt", "weights", 100)
    real = work.unpack

    def full(tar, run_folder, *words):
        if run_folder == nodes.folders[2]:
            raise OSError(errno.ENOSPC, "No space left on device")
        yield from real(tar, run_folder, *words)

    monkeypatch.setattr(work, "unpack", full)
    found = nodes.attempt()
    for fault in found.values():
        assert isinstance(fault, TrainError)
        assert "n2 cannot copy the files of n0: No space left on device" in str(fault)


def test_more_files_than_the_limit_are_not_shared_and_this_is_reported(nodes, monkeypatch, capfd):
    monkeypatch.setattr(work, "MOST_LISTED", 2)
    for number in range(3):
        write(nodes.folders[1], f"work/{number}", "x", 100)
    assert nodes.attempt() == {0: None, 1: None, 2: None}
    assert not list((nodes.folders[0] / "work").iterdir())
    assert "n1 has more than 2 files" in capfd.readouterr().err


def test_the_ranks_do_not_get_the_key():
    environment = {share.KEY: KEY, "MUSTER_RUN_DIR": "/run", "PET_NPROC_PER_NODE": "4"}
    assert share.take_sharing(environment)
    assert share.KEY not in environment
    assert share.take_sharing({"MUSTER_RUN_DIR": "/run"}) is None


def test_a_node_talks_to_nobody_who_does_not_prove_the_key():
    kept = []

    def pretend():
        kept.append(listening.accept()[0])
        kept[0].sendall(os.urandom(proof.WORD + proof.LENGTH))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(LinkLost, match="does not know the key"):
            Link.to(f"127.0.0.1 {listening.getsockname()[1]}", KEY)
    kept[0].close()
