"""A rank that waits for a disk that does not answer is reported with that disk, and nobody tries to end it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.waiting import until
from tests.started import started
from trainer.node.ending.rank_lives import Life
from trainer.node.hang import disks, stuck_ranks

# After vfork the kernel reports the parent as waiting for a disk until the child starts a program: here never.
WAITS = """
import ctypes, signal
CLONE_VFORK, libc = 0x4000, ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 16)
top = ctypes.addressof(stack) + (1 << 16) - 256
top -= top % 16
libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), ctypes.c_void_p(top), CLONE_VFORK | signal.SIGCHLD, None)
"""


@pytest.fixture
def waiter():
    """A session leader that waits in a call that the kernel reports as a wait for a disk."""
    process = subprocess.Popen([sys.executable, "-c", WAITS], start_new_session=True)
    until(lambda: disks.waiting(process.pid), "the wait")
    yield process
    os.killpg(process.pid, 9)
    process.wait()


def test_a_rank_in_a_call_that_no_signal_ends_is_reported_as_waiting_for_a_disk(waiter, tmp_path, monkeypatch):
    monkeypatch.setattr(stuck_ranks, "LOOK_SECONDS", 0.0)
    life = Life(rank=0, local_rank=0, attempt=0, world=3, pid=waiter.pid, began=time.time() - 100)
    still, told = stuck_ranks.StuckRanks(tmp_path, None), []
    until(lambda: told.extend(still.look([life])) or told, "the news")
    assert [(rank, about["doing"]) for rank, about in told] == [(0, "disk")]
    assert told[0][1]["disk"]
    assert not still.stuck_ranks([life])[0].asleep, "no signal would end it"


@pytest.fixture
def frozen():
    """A session leader in a frozen cgroup, of the cgroup version that this machine has."""
    name = f"muster-test-{os.getpid()}"
    first, second = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")
    versions = [(first, "freezer.state", "FROZEN", "THAWED"), (second, "cgroup.freeze", "1", "0")]
    root, file, freeze, thaw = versions[not first.is_dir()]
    try:
        (root / name).mkdir()
    except OSError as fault:
        pytest.skip(f"no cgroup can be made here: {fault}")
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    (root / name / "cgroup.procs").write_text(str(process.pid))
    (root / name / file).write_text(freeze)
    yield process
    (root / name / file).write_text(thaw)
    process.kill()
    process.wait()
    until(lambda: not (root / name / "cgroup.procs").read_text(), "the end")
    (root / name).rmdir()


def test_a_rank_in_a_frozen_cgroup_is_reported_as_frozen_and_waits_for_no_disk(frozen, tmp_path, monkeypatch):
    monkeypatch.setattr(stuck_ranks, "LOOK_SECONDS", 0.0)
    until(lambda: disks.is_frozen(frozen.pid), "the freezer")
    assert disks.waiting(frozen.pid) == {}
    life = Life(rank=0, local_rank=0, attempt=0, world=3, pid=frozen.pid, began=time.time() - 100)
    still, told = stuck_ranks.StuckRanks(tmp_path, None), []
    until(lambda: told.extend(still.look([life])) or told, "the news")
    assert [(rank, about["doing"]) for rank, about in told] == [(0, "frozen")]
    assert not still.stuck_ranks([life])[0].asleep, "no signal would end it"


def test_a_rank_that_only_sleeps_waits_for_no_disk():
    with started([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as sleeps:
        assert disks.waiting(sleeps.pid) == {}
        sleeps.communicate(b"\n")


@pytest.mark.parametrize("call", ["open(sys.argv[1])", "os.read(os.open(sys.argv[1], os.O_RDWR), 1)"])
def test_the_file_of_the_waiting_call_is_reported_with_its_file_system(tmp_path, call):
    fifo = tmp_path / "dataset"
    os.mkfifo(fifo)
    argv = [sys.executable, "-c", f"import os, sys\n{call}", str(fifo)]
    with started(argv) as reads:
        words = until(lambda: (said := disks.words_of(reads.pid, reads.pid)).startswith("/") and said, "the call")
        reads.kill()
    assert words.startswith(f"{fifo} on /")
    assert words.endswith(")")
