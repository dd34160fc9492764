"""A full disk ends no training run, and everything that must be reported still is."""

import errno
import os
import subprocess
import threading
import time
import traceback

import pytest

from lab.ports import free_port
from lab.waiting import until
from muster.checkpoint.writer import BackgroundWriter
from muster.errors import TrainError
from muster.files import Lines, read_lines, read_object, replace
from muster.metrics import Metrics
from muster.reserve import note, reserve_room, write_surely
from trainer import run_dir
from trainer.node.ending import rank_lives
from trainer.node.membership.all_nodes import AllNodesMember
from trainer.node.membership.min_nodes import EPOCH
from trainer.node.notes import Journal
from trainer.train.checkpoints import describe_earlier
from trainer.train.run import Console
from trainer.verdict import Verdict, publish


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 640 kB, and a way to fill it to the last byte."""
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=640k", "tmpfs", place], check=True)

    def fill():
        taken = os.statvfs(place)
        (place / f"filler-{taken.f_bfree}").write_bytes(bytes(taken.f_bfree * taken.f_bsize))
        assert os.statvfs(place).f_bfree == 0

    yield place, fill
    subprocess.run(["umount", "--lazy", place], check=True)


class SameDisk:
    """The error output of a process whose log is on the full disk."""

    def write(self, _):
        raise OSError(errno.ENOSPC, "no space")


def test_output_to_a_full_disk_is_lost_and_raises_nothing(monkeypatch):
    full = os.open("/dev/full", os.O_WRONLY)
    out = run_dir._open_tolerant(full)
    try:
        raise OSError(errno.ENOSPC, "no space")
    except OSError:
        traceback.print_exc(file=out)
    print("x" * 100_000, file=out)
    out.flush()
    lines = Lines.__new__(Lines)
    lines._file = full
    monkeypatch.setattr("sys.stderr", SameDisk())
    assert lines.add(kind="step")["kind"] == "step"
    Console(0, full).say_on_any_rank("error: the disk is full")


def test_a_verdict_is_written_on_a_full_disk(small_disk):
    disk, fill = small_disk
    private = disk / "nodes/.gpu-b"
    private.mkdir(parents=True)
    reserve_room(private)
    fill()
    with pytest.raises(OSError, match="No space"):
        replace(disk / "outcome/other.json", "x" * 5000)
    assert publish(Verdict("failed", 1, 2, "gpu-b", 7, "m" * 5000), disk, "gpu-b-0", private)
    assert "gpu-b" in (disk / "outcome/gpu-b-0.json").read_text()
    assert Journal(private).newest("verdict")["node"] == "gpu-b"
    fill()
    assert not write_surely(lambda: replace(disk / "more", "x" * 5000), private), "the room was given back once"


def test_the_last_write_is_tried_again_even_if_the_reserved_room_cannot_be_freed(tmp_path):
    (tmp_path / ".ballast").mkdir()
    tries = iter([OSError(errno.ENOSPC, "full")])

    def write():
        for fault in tries:
            raise fault

    assert write_surely(write, tmp_path)


def test_the_first_line_after_a_full_disk_is_not_lost_with_the_one_that_was_cut(small_disk):
    disk, fill = small_disk
    lines = Lines(disk / "events.jsonl")
    for number in range(10):
        lines.add(number=number, text="x" * 500)
    fill()
    for number in range(10, 30):
        lines.add(number=number, text="x" * 500)
    assert not (disk / "events.jsonl").read_text().endswith("\n"), "one was cut"
    next(disk.glob("filler-*")).unlink()
    for number in range(30, 33):
        lines.add(number=number)
    assert [line["number"] for line in read_lines(disk / "events.jsonl")][-3:] == [30, 31, 32]


def test_the_end_of_a_rank_is_noted_on_a_disk_that_fills_in_the_middle_of_the_note(small_disk, monkeypatch):
    disk, fill = small_disk
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(disk))
    reserve_room(disk)
    rank_lives.note_begin(0, 71, {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "0"})
    with (disk / "journal.jsonl").open("a") as file:  # up to 20 bytes before the end of a page
        file.write(" " * (4096 - 20 - file.tell()))
    fill()
    rank_lives.note_end(time.time(), 0, 71, 3)
    assert [(life.pid, life.code) for life in rank_lives.Ends(disk).read()] == [(71, None), (71, 3)]


def test_nodes_whose_ranks_ended_well_end_on_a_full_disk_too(small_disk):
    """A script had filled the disk and ended well, and each torchrun still waited for five minutes.

    It waited for the news that the others' ranks had ended, which its agent could not write.
    """
    disk, fill = small_disk
    port, folders = free_port(), [disk / "0", disk / "1"]
    agents = [AllNodesMember(place, 2, "127.0.0.1", port, "key") for place in range(2)]
    for agent, folder in zip(agents, folders, strict=True):
        folder.mkdir()
        reserve_room(folder)
        agent.begin(folder)
        note(folder, says={"after": 0, "number": 0, "store": ""})
    for folder in folders:
        until(lambda f=folder: read_object(f / EPOCH).get("number") == 1, "the first epoch")
    fill()
    for folder in folders:
        note(folder, says={"after": None, "number": 1, "store": "", "done": True})
    for folder in folders:
        until(lambda f=folder: read_object(f / EPOCH).get("done") is True, "the word that all have ended")
    for agent in agents:
        agent.close()


def test_metrics_on_a_full_disk_do_not_wait_forever(small_disk):
    disk, fill = small_disk
    record = Metrics(disk)
    fill()
    for step in range(2000):
        record.add(step, loss=1.0, lr=0.1, grad_norm=2.0)
    closing = threading.Thread(target=record.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_a_disk_without_room_for_the_first_folder_is_called_full(tmp_path, monkeypatch):
    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "mkdir", full)
    results = []
    writer = BackgroundWriter(tmp_path / "training/checkpoints", 1, False, results.append)
    writer.submit(1, {"a": 1}, None, {})
    with pytest.raises(TrainError, match="the disk is full"):
        writer.finish()
    assert len(results) == 1, "who trains hears of it"


def test_old_checkpoints_that_cannot_be_removed_end_nothing(tmp_path, monkeypatch):
    def broken(*_args, **_more):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr("muster.checkpoint.store.prune", broken)
    events = []
    writer = BackgroundWriter(tmp_path, 1, False, events.append)
    writer.submit(1, {"a": 1}, None, {})
    writer.submit(2, {"a": 2}, None, {})
    writer.finish()
    assert [event.error for event in events] == [None, None]


def test_an_earlier_checkpoint_is_mentioned_only_if_it_is_there(tmp_path):
    """The message had called the previous checkpoint intact although somebody had emptied its folder."""
    assert describe_earlier(tmp_path / "nowhere") == describe_earlier(tmp_path) == "and there is no earlier one"
    (tmp_path / "step-00000020").mkdir()
    assert describe_earlier(tmp_path) == "and there is no earlier one", "it has no manifest"
    (tmp_path / "step-00000020/manifest.json").write_text("{}")
    assert describe_earlier(tmp_path) == "step-00000020 exists"
