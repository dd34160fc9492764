"""The checkpoint store on real disks finds a usable checkpoint, whatever happens to a file or to the writer."""

from __future__ import annotations

import errno
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from muster.checkpoint import store
from muster.errors import CheckpointError, TrainError
from tests.started import started

ROOT = Path(store.__file__).parents[2]


def write(folder, step, metric=None, size=1000):
    state = {"step": step, "model": {"w": torch.full((size,), float(step))}}
    return store.write(folder, step, state, metric=metric, summary={"run": "a run", "world": 3})


def names(folder):
    """Return all names in the folder, including hidden ones."""
    return sorted(path.name for path in folder.iterdir())


def flip(path, at, bit=0):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def test_a_loaded_checkpoint_equals_the_written_one(tmp_path):
    shared = torch.randn(4, 4)
    state = {"tied": [shared, shared.t()], "half": torch.ones(3, dtype=torch.bfloat16), "betas": (0.9, 0.95), "n": None}
    path = store.write(tmp_path / "Prüfung", 7, state, metric=0.5, summary={"run": "größer", "world": 2})

    loaded, manifest = store.load(path)

    assert path.name == "step-00000007"
    assert torch.equal(loaded["tied"][0], shared)
    assert loaded["tied"][1].data_ptr() == loaded["tied"][0].data_ptr()
    assert loaded["half"].dtype == torch.bfloat16
    assert (loaded["betas"], loaded["n"]) == ((0.9, 0.95), None)
    assert (manifest.step, manifest.metric, manifest.summary) == (7, 0.5, {"run": "größer", "world": 2})
    assert manifest.bytes == (path / "state.pt").stat().st_size
    assert names(path) == ["manifest.json", "state.pt"]


@pytest.mark.parametrize("name", ["state.pt", "manifest.json"])
def test_any_flipped_bit_is_noticed_and_the_checkpoint_before_is_used(tmp_path, name):
    before, newest = write(tmp_path, 1), write(tmp_path, 2)
    whole, dice = (newest / name).read_bytes(), random.Random(name)
    for _ in range(100):
        flip(newest / name, dice.randrange(len(whole)), dice.randrange(8))
        usable, damaged = store.newest_usable(tmp_path)
        assert usable.path == before
        assert [each.path for each in damaged] == [newest]
        (newest / name).write_bytes(whole)
    assert store.newest_usable(tmp_path)[0].path == newest


@pytest.mark.parametrize("name", ["state.pt", "manifest.json"])
def test_any_truncation_is_noticed_and_the_checkpoint_before_is_used(tmp_path, name):
    before, newest = write(tmp_path, 1), write(tmp_path, 2)
    whole, dice = (newest / name).read_bytes(), random.Random(name)
    for length in [0, len(whole) - 1, *(dice.randrange(len(whole)) for _ in range(50))]:
        (newest / name).write_bytes(whole[:length])
        usable, damaged = store.newest_usable(tmp_path)
        assert usable.path == before
        assert [each.path for each in damaged] == [newest]


def test_the_reason_says_what_is_wrong(tmp_path):
    truncated, altered, lacking = write(tmp_path, 1), write(tmp_path, 2), write(tmp_path, 3)
    os.truncate(truncated / "state.pt", 100)
    flip(altered / "state.pt", 700)
    (lacking / "state.pt").unlink()

    usable, damaged = store.newest_usable(tmp_path)

    assert usable is None
    expected = [(lacking, "cannot be read"), (altered, "altered"), (truncated, "truncated: 100")]
    for each, (path, words) in zip(damaged, expected, strict=True):
        assert each.path == path
        assert words in each.reason
        assert str(path) in each.reason


WRITER = """
import os, sys, torch
from pathlib import Path
from muster.checkpoint import store as checkpoint

folder = Path(sys.argv[1])
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        for step in range(int(line), int(line) + 1000):
            state = {"step": step, "model": {"w": torch.full((300_000,), float(step))}}
            for _ in range(2):
                checkpoint.write(folder, step, state, metric=None, summary={})
            checkpoint.prune(folder, 2, False)
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_usable_checkpoint(tmp_path):
    write(tmp_path, 0)
    reached, leftovers, dice = 0, 0, random.Random(11)
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with started(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as forker:
        for _ in range(20):
            print(reached + 1, file=forker.stdin, flush=True)
            victim = int(forker.stdout.readline())
            with pytest.raises(subprocess.TimeoutExpired):
                forker.wait(timeout=dice.uniform(0.0, 0.25))
            os.kill(victim, signal.SIGKILL)
            assert forker.stdout.readline() == "dead\n"

            leftovers += any(name.startswith(".") for name in names(tmp_path))
            usable, damaged = store.newest_usable(tmp_path)
            state, _ = store.load(usable.path)
            assert damaged == []
            assert usable.manifest.step >= reached, "a checkpoint that had been in place is gone"
            assert torch.unique(state["model"]["w"]).tolist() == [state["step"]] == [usable.manifest.step]
            reached = usable.manifest.step
        forker.stdin.close()
    assert reached > 0
    assert leftovers > 0, "no kill came in the middle of a write: the test says nothing"

    write(tmp_path, reached + 1)
    assert not [name for name in names(tmp_path) if name.startswith(".")]


DIES = """
import os, signal, sys, torch
from pathlib import Path
from muster.checkpoint import store as checkpoint

def die_before(number):
    seen = 0
    def count(event, args):
        nonlocal seen
        if event == "open" or event.startswith(("os.", "shutil.")):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)

for line in sys.stdin:
    folder, number = line.split()
    child = os.fork()
    if child == 0:
        die_before(int(number))
        for step in (1, 2):
            state = {"step": step, "model": {"w": torch.zeros(9)}}
            checkpoint.write(Path(folder), step, state, metric=None, summary={})
        checkpoint.prune(Path(folder), 1, False)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_kill_before_any_file_operation_leaves_a_usable_checkpoint(tmp_path):
    """Trial n rewrites step 1, writes 2, prunes 1; it is killed before its nth file operation (Python audit event)."""
    trial, ended = 0, -signal.SIGKILL
    command = [sys.executable, "-c", DIES]
    with started(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as forker:
        while ended == -signal.SIGKILL:
            trial += 1
            folder = tmp_path / str(trial)
            write(folder, 1)
            print(folder, trial, file=forker.stdin, flush=True)
            ended = int(forker.stdout.readline())

            usable, damaged = store.newest_usable(folder)
            assert damaged == []
            assert usable is not None, f"nothing usable: {names(folder)}"
            assert store.load(usable.path)[0]["step"] == usable.manifest.step
            store.prune(folder, 1, False)
            assert names(folder) == [f"step-{usable.manifest.step:08d}"]
        forker.stdin.close()
    assert ended == 0
    assert trial > 30


def test_between_the_two_renames_of_a_replacement_the_old_one_is_used(tmp_path):
    write(tmp_path, 1)
    place = write(tmp_path, 2)
    place.rename(tmp_path / ".old-step-00000002")
    shutil.copytree(tmp_path / ".old-step-00000002", tmp_path / ".new-step-00000002")

    usable, damaged = store.newest_usable(tmp_path)
    assert (usable.path.name, usable.manifest.step, damaged) == (".old-step-00000002", 2, [])
    assert store.locate(tmp_path) == (usable.path, [])

    store.prune(tmp_path, 5, False)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    assert store.newest_usable(tmp_path)[0].path == place


def test_a_step_written_again_replaces_the_first(tmp_path):
    write(tmp_path, 5, size=10)
    path = write(tmp_path, 5, size=20)
    assert names(tmp_path) == ["step-00000005"]
    assert store.load(path)[0]["model"]["w"].numel() == 20


def test_a_state_that_torch_could_not_load_never_replaces_a_good_checkpoint(tmp_path):
    path = write(tmp_path, 1)
    with pytest.raises(pickle.UnpicklingError):
        store.write(tmp_path, 1, {"folder": tmp_path}, metric=None, summary={})
    assert names(tmp_path) == [path.name]
    assert store.load(path)[0]["step"] == 1


@pytest.fixture
def small_disk(tmp_path, request):
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", getattr(request, "param", "size=4m"), "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("small_disk", [f"size=4m,nr_inodes={number}" for number in (2, 3, 4)], indirect=True)
def test_a_disk_with_room_but_without_inodes_is_not_called_full(small_disk):
    with pytest.raises(TrainError, match=r"the disk has as many files as it can hold \(df -i\).* are free"):
        write(small_disk / "checkpoints", 1)


def test_a_quota_is_not_called_a_full_disk(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(store.HashingFile, "save", refuse)
    with pytest.raises(TrainError, match="the quota of this disk is used up: the checkpoint of step 1"):
        write(tmp_path, 1)


def test_a_full_disk_is_reported_and_harms_no_checkpoint(small_disk):
    folder = small_disk / "checkpoints"
    first = write(folder, 1, size=250_000)

    with pytest.raises(TrainError) as caught:
        write(folder, 2, size=2_000_000)

    assert str(folder) in caught.value.message
    assert "step 2 needs 8.0 MB, 3." in caught.value.message
    assert caught.value.hint
    assert names(folder) == [first.name]
    assert store.newest_usable(folder)[0].path == first
    assert store.load(write(folder, 3, size=250_000))[0]["step"] == 3


def test_a_full_disk_keeps_the_step_that_was_to_be_replaced(small_disk):
    first = write(small_disk, 1, size=250_000)
    with pytest.raises(TrainError, match="disk is full"):
        write(small_disk, 1, size=2_000_000)
    assert store.load(first)[0]["model"]["w"].numel() == 250_000


def test_prune_keeps_the_last_and_the_best(tmp_path):
    for step, metric in enumerate([0.1, 0.9, 0.3, None, float("nan"), 0.5], start=1):
        write(tmp_path, step, metric)
    store.prune(tmp_path, keep_last=2, keep_best=True)
    assert names(tmp_path) == ["step-00000002", "step-00000005", "step-00000006"]
    store.prune(tmp_path, keep_last=1, keep_best=False)
    assert names(tmp_path) == ["step-00000006"]


def test_prune_deletes_nothing_that_is_needed_while_the_newest_is_damaged(tmp_path):
    for step in (1, 2, 3):
        flip(write(tmp_path, step) / "state.pt", 900)
    assert store.prune(tmp_path, 1, False) == []
    assert len(names(tmp_path)) == 3
    flip(tmp_path / "step-00000002" / "state.pt", 900)
    assert [path.name for path in store.prune(tmp_path, 1, False)] == ["step-00000001"]
    assert store.newest_usable(tmp_path)[0].path.name == "step-00000002"


def test_a_truncated_checkpoint_does_not_count_among_those_to_keep(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path, step)
    os.truncate(tmp_path / "step-00000002" / "state.pt", 10)
    store.prune(tmp_path, 2, False)
    assert names(tmp_path) == ["step-00000001", "step-00000003"]


def test_a_run_that_went_back_to_an_earlier_step_continues_from_there(tmp_path):
    for step in (100, 200, 300, 150):
        write(tmp_path, step)
    assert store.newest_usable(tmp_path)[0].manifest.step == 150
    store.prune(tmp_path, 2, False)
    assert names(tmp_path) == ["step-00000150", "step-00000300"]


def test_leftovers_of_a_killed_writer_are_cleared_and_nothing_else(tmp_path):
    write(tmp_path, 1)
    for name in (".new-step-00000002", ".del-step-00000000", ".old-step-00000001", ".mine", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.pt").write_text("half")
    write(tmp_path, 2)
    assert names(tmp_path) == [".mine", "notes", "step-00000001", "step-00000002"]


def test_locate_takes_a_step_a_checkpoints_folder_or_a_run(tmp_path):
    before, newest = (write(tmp_path / "checkpoints", step) for step in (1, 2))
    assert store.locate(newest) == (newest, [])
    assert store.locate(tmp_path / "checkpoints") == (newest, [])
    assert store.locate(tmp_path) == (newest, [])
    flip(newest / "state.pt", 900)
    path, damaged = store.locate(tmp_path)
    assert (path, [each.path for each in damaged]) == (before, [newest])
    flip(before / "state.pt", 900)
    with pytest.raises(CheckpointError, match=r"it has no usable checkpoint:\n.*step-00000002.*altered"):
        store.locate(tmp_path)


def foreign_file(folder):
    torch.save({"model": torch.zeros(3)}, folder / "model.pt")
    return folder / "model.pt"


def foreign_folder(folder):
    torch.save({"model": torch.zeros(3)}, folder / "state.pt")
    return folder


def foreign_manifest(folder):
    (folder / "manifest.json").write_text('{"name": "an app", "icons": []}')
    return foreign_folder(folder)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (foreign_file, "a plain file, not a checkpoint"),
        (foreign_folder, "no manifest.json in it"),
        (foreign_manifest, "damaged, or another trainer wrote it"),
        (lambda folder: folder / "nowhere", "no such file or folder"),
        (lambda folder: write(folder / "checkpoints", 1).parents[1], "no manifest.json in it"),
    ],
)
def test_a_path_that_is_no_checkpoint_is_refused_and_the_hint_says_what_is(tmp_path, make, words):
    path = make(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        store.load(path)
    assert words in caught.value.message
    assert str(path) in caught.value.message
    assert "step-XXXXXXXX" in caught.value.hint
    assert "run folder" in caught.value.hint


@pytest.mark.parametrize("make", [foreign_file, foreign_folder, lambda folder: folder / "nowhere"])
def test_locate_refuses_a_path_without_a_checkpoint(tmp_path, make):
    with pytest.raises(CheckpointError, match=r"not a checkpoint|no usable checkpoint|no such") as caught:
        store.locate(make(tmp_path))
    assert "step-XXXXXXXX" in caught.value.hint
