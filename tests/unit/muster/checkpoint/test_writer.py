"""Checkpoints are written while training continues: none is lost or mixed up, and no failure stops the training."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from muster.checkpoint import store
from muster.checkpoint.writer import BackgroundWriter
from muster.errors import TrainError

ROOT = Path(store.__file__).parents[2]


def test_each_checkpoint_holds_the_step_it_was_submitted_at(tmp_path):
    done, state = [], {"step": 0, "w": torch.zeros(2_000_000)}
    writer = BackgroundWriter(tmp_path, 10, False, done.append)
    for step in range(1, 7):
        state["step"] = step
        state["w"].fill_(step)
        assert writer.submit(step, state, None, {"world": 1}) > 0
    state["w"].fill_(-1)
    writer.finish()

    assert [written.step for written in done] == [1, 2, 3, 4, 5, 6]
    for written in done:
        loaded, manifest = store.load(written.path)
        assert torch.unique(loaded["w"]).tolist() == [written.step] == [loaded["step"]]
        assert (written.error, written.bytes) == (None, manifest.bytes)
        assert written.pause_ms > 0
        assert written.write_ms > 0


def test_old_checkpoints_go_and_the_best_stays(tmp_path):
    writer = BackgroundWriter(tmp_path, 2, True, lambda written: None)
    for step, metric in enumerate([0.2, 0.8, 0.4, 0.5, 0.6], start=1):
        writer.submit(step, {"w": torch.zeros(10)}, metric, {})
    writer.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000004", "step-00000005"]


def test_submit_does_not_wait_for_the_disk(tmp_path):
    held, began = threading.Event(), threading.Event()

    def hold(written):
        began.set()
        held.wait(30)

    writer = BackgroundWriter(tmp_path, 3, False, hold)
    writer.submit(1, {"w": torch.zeros(10)}, None, {})
    assert began.wait(30)
    writer.submit(2, {"w": torch.ones(10)}, None, {})  # returns before the first is done
    assert not (tmp_path / "step-00000002").exists()
    held.set()
    writer.finish()
    assert store.newest_usable(tmp_path)[0].manifest.step == 2


def test_a_failed_write_is_reported_and_training_continues(tmp_path):
    folder, done, reported = tmp_path / "checkpoints", [], threading.Event()

    def tell(written):
        done.append(written)
        reported.set()

    writer = BackgroundWriter(folder, 3, False, tell)
    folder.write_text("a file where the folder should be")
    writer.submit(1, {"w": torch.zeros(10)}, None, {})
    assert reported.wait(30)
    folder.unlink()
    writer.submit(2, {"w": torch.zeros(10)}, None, {})
    writer.finish()

    assert (done[0].path, done[0].bytes) == (None, 0)
    assert str(folder) in done[0].error.message
    assert "step 1 cannot be written" in done[0].error.message
    assert done[1].error is None
    assert done[1].path == folder / "step-00000002"


def test_finish_says_that_the_last_write_failed(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.write_text("a file where the folder should be")
    writer = BackgroundWriter(folder, 3, False, lambda written: None)
    writer.submit(1, {"w": torch.zeros(10)}, None, {})
    with pytest.raises(TrainError, match="step 1 cannot be written"):
        writer.finish()


def test_finish_with_nothing_submitted(tmp_path):
    BackgroundWriter(tmp_path, 3, False, print).finish()
    assert list(tmp_path.iterdir()) == []


def test_a_bug_in_the_callback_is_not_swallowed(tmp_path):
    writer = BackgroundWriter(tmp_path, 3, False, lambda written: 1 / 0)
    writer.submit(1, {"w": torch.zeros(10)}, None, {})
    with pytest.raises(ZeroDivisionError):
        writer.finish()


def test_a_state_that_cannot_be_saved_is_refused_and_blocks_no_later_one(tmp_path):
    writer = BackgroundWriter(tmp_path, 3, False, lambda written: None)
    for _ in range(3):  # more often than there are buffers
        with pytest.raises(TypeError, match="a checkpoint cannot hold a object"):
            writer.submit(1, {"w": object()}, None, {})
    writer.submit(1, {"w": torch.zeros(10)}, None, {})
    writer.finish()
    assert store.newest_usable(tmp_path)[0].manifest.step == 1


@pytest.mark.skipif(sys.platform != "linux", reason="priorities are a thread's own on Linux alone")
def test_the_writer_runs_at_a_lower_priority_than_training(tmp_path):
    seen = []

    def look(written):
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    writer = BackgroundWriter(tmp_path, 3, False, look)
    writer.submit(1, {"w": torch.zeros(10)}, None, {})
    writer.finish()
    assert seen == [10]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


CRASH = """
import sys, torch
from pathlib import Path
from muster.checkpoint.writer import BackgroundWriter
from muster.errors import TrainError

writer = BackgroundWriter(Path(sys.argv[1]), 3, False, lambda written: None)
for step in (1, 2):
    writer.submit(step, {"w": torch.full((5_000_000,), float(step))}, None, {})
raise SystemExit("the training failed")
"""


def test_an_exception_in_training_neither_hangs_nor_loses_submitted_checkpoints(tmp_path):
    command = [sys.executable, "-c", CRASH, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (1, "the training failed\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
    assert torch.unique(store.load(tmp_path / "step-00000002")[0]["w"]).tolist() == [2]


def test_a_paused_process_writes_no_checkpoint_where_others_have_continued(tmp_path):
    done = []
    paused = BackgroundWriter(tmp_path, 10, False, done.append)
    paused.submit(1, {"x": torch.zeros(1)}, None, {})
    paused.wait()
    other = BackgroundWriter(tmp_path, 10, False, done.append)
    other.submit(9, {"x": torch.ones(1)}, None, {})
    other.finish()
    paused.submit(2, {"x": torch.zeros(1)}, None, {})
    with pytest.raises(TrainError, match="other nodes continue"):
        paused.finish()
    newest, damaged = store.newest_usable(tmp_path)
    assert (newest.manifest.step, damaged) == (9, [])


def test_a_checkpoint_is_dated_after_the_one_from_another_host_that_it_continues(tmp_path):
    ahead = time.time() + 3600
    writer = BackgroundWriter(tmp_path, 3, False, lambda written: None)
    writer.continue_after(ahead)
    writer.submit(1, {"x": torch.zeros(1)}, None, {})
    writer.submit(2, {"x": torch.zeros(1)}, None, {})
    writer.finish()
    times = [store.verify(tmp_path / f"step-0000000{step}").created for step in (1, 2)]
    assert ahead < times[0] < times[1]
