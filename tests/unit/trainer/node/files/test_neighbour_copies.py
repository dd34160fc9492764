"""A node copies its neighbour's files: nothing half-written is copied, and no copy replaces a file of its own."""

import os
import threading
import time

import pytest

from lab.waiting import until
from trainer.node.files import neighbour_copies, share, work
from trainer.node.files.missing_files import SENT, Entry
from trainer.node.files.neighbour_copies import NeighbourCopies, Source, Whole, being_written, settled
from trainer.node.membership.link import Link, LinkLost

KEY = "0123456789abcdef"


def test_a_folder_counts_as_settled_once_nobody_writes_into_it():
    files = {
        "work/last.pt": Entry(1, 90),
        "work/next.pt": Entry(1, 100),
        "work/checkpoint-2/model.safetensors": Entry(1, 96),
        "work/checkpoint-2/optimizer.pt": Entry(1, 100),
        "work/checkpoint-1/model.safetensors": Entry(1, 80),
        "work/checkpoint-1/train.log": Entry(5000, 100),
        "work/train.py": Entry(1, 1, SENT),
    }
    assert settled(files, 101.0).keys() == {"work/last.pt", "work/checkpoint-1/model.safetensors"}
    assert settled(files, 103.0).keys() == files.keys() - {"work/train.py", "work/checkpoint-1/train.log"}


def test_a_text_file_that_names_the_last_checkpoint_is_copied_with_it():
    """Megatron-LM writes such a tracker file; without it, a script starts over although its checkpoint exists."""
    files = {
        "work/ckpt/iter_0000010/model.pt": Entry(10**9, 90),
        "work/ckpt/latest_checkpointed_iteration.txt": Entry(2, 91),
        "work/ckpt/losses.csv": Entry(5000, 91),
        "work/ckpt/iter_0000010/log.txt": Entry(9, 99),
    }
    assert settled(files, 100.0).keys() == {
        "work/ckpt/iter_0000010/model.pt",
        "work/ckpt/latest_checkpointed_iteration.txt",
    }


def test_a_constantly_rewritten_file_counts_while_nobody_has_it_open():
    writers = set()
    whole = Whole(lambda: writers)
    looks = [whole.look({"work/out/last.pt": Entry(1, at)}, at + 0.5) for at in range(100, 110)]
    assert looks[0] == ({}, set())
    assert looks[-1] == ({"work/out/last.pt": Entry(1, 109)}, {"work/out/last.pt"})
    writers.add("work/out/last.pt")
    assert whole.look({"work/out/last.pt": Entry(1, 110)}, 110.5) == ({}, set())


def test_a_file_that_a_process_has_open_to_write_is_seen(tmp_path):
    read = tmp_path / "read"
    read.touch()
    with (tmp_path / "written").open("w"), read.open():
        assert being_written(tmp_path) == {"written"}


class Node:
    """A node on the loopback interface with its own disk; its ranks run in epoch `runs`."""

    def __init__(self, folder):
        (folder / "sent").mkdir(parents=True)
        work.prepare(folder, folder / "sent")
        self.folder, self.sources, self.runs = folder, [], 1
        self.copies = NeighbourCopies(folder, KEY, "127.0.0.1", lambda: self.sources, lambda: self.runs)

    def write(self, path, text, ago=10):
        file = self.folder / "work" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (time.time() - ago,) * 2)

    def read(self, path):
        file = self.folder / "work" / path
        return file.read_text() if file.exists() else None

    def follow(self, other):
        """Copy the files that the other node has saved so far."""
        saved = until(lambda: other.copies.saved, "the files to be seen")
        self.sources = [Source("other", other.copies.where, saved, 1)]


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbour_copies, "_LOOK_S", 0.1)  # with a second between looks, these tests would only wait
    made = [Node(tmp_path / name) for name in ("other", "own")]
    yield made
    for node in made:
        node.copies.close()


def test_a_neighbour_gets_a_nodes_files_and_keeps_its_own(pair):
    other, own = pair
    other.write("out/last.pt", "step 1", 20)
    other.write("out/more.pt", "of step 1", 20)
    other.write("mine.pt", "of the other", 20)
    own.write("mine.pt", "own", 20)
    own.follow(other)
    until(lambda: own.read("out/last.pt") == "step 1", "the copy")
    assert work.listing(own.folder).files["work/out/last.pt"].origin == "other"
    more = own.folder / "work/out/more.pt"
    brought = more.read_text(), more.stat().st_ino
    assert brought[0] == "of step 1"
    other.write("out/last.pt", "step 2", 5)
    until(lambda: other.copies.saved > own.sources[0].saved, "the newer file to be seen")
    own.follow(other)
    until(lambda: own.read("out/last.pt") == "step 2", "the newer copy")
    assert own.read("mine.pt") == "own"
    assert (more.read_text(), more.stat().st_ino) == brought, "what it has is not brought again"


def test_a_file_that_was_sent_only_in_part_is_not_put_in_place(pair, monkeypatch):
    other, own = pair
    tried, copy = [], NeighbourCopies._copy
    monkeypatch.setattr(NeighbourCopies, "_copy", lambda *words: (tried.append(words), copy(*words))[1])
    monkeypatch.setattr(share, "WHOLE", type("Never", (str,), {"__eq__": lambda *_: False, "__hash__": None})("whole"))
    other.write("out/last.pt", "step 1", 20)
    own.follow(other)
    until(lambda: len(tried) > 2, "it to be tried")
    assert own.read("out/last.pt") is None


def test_a_checkpoint_that_is_written_ten_times_a_second_is_copied_too(pair):
    other, own = pair
    stop = threading.Event()

    def save():
        number = 0
        while not stop.wait(0.1):
            other.write("out/last.tmp", f"step {number:09}", 0)
            os.replace(other.folder / "work/out/last.tmp", other.folder / "work/out/last.pt")
            number += 1

    saver = threading.Thread(target=save)
    saver.start()
    try:
        own.follow(other)
        until(lambda: own.read("out/last.pt"), "a copy")
    finally:
        stop.set()
        saver.join()
    assert own.read("out/last.pt").startswith("step ")


def test_no_copy_is_put_in_place_once_the_next_start_has_chosen_its_files(pair):
    other, own = pair
    other.write("last.pt", "step 1")
    with work.locked(own.folder):  # as the nodes do while they share files
        own.follow(other)
        until(lambda: (own.folder / ".copies").exists(), "the copy to arrive aside")
        own.runs = 2
    until(lambda: not (own.folder / ".copies").exists(), "the copy to be dropped")
    assert own.read("last.pt") is None


def test_whoever_does_not_know_the_key_gets_nothing(pair):
    other, _ = pair
    other.write("last.pt", "step 1")
    until(lambda: other.copies.saved, "the file to be seen")
    with pytest.raises(LinkLost):
        Link.to(other.copies.where, "another key")
