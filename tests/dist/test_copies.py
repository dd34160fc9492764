"""If each host has its own disk, two hosts write each checkpoint, so a run survives the loss of the first disk."""

import pytest

from lab.waiting import events, losses
from muster.checkpoint import store
from tests.dist.test_meshes import case, finish, start


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Runs of three hosts with one rank each, of which some lost a disk or had files damaged."""
    root = tmp_path_factory.mktemp("copies")
    lost, flipped, narrow = root / "lost-RANK", root / "flipped-RANK", root / "narrow-RANK"
    narrow_disk = root / "narrow-1"
    narrow_disk.mkdir()
    (narrow_disk / "checkpoints").touch()  # nothing can be written there
    finish(
        start(
            3,
            case(root / "whole", "--steps", 12),
            case(lost, "--keep", 1, "--steps", 12, stop_after=7),
            case(lost, "--steps", 12, remove=[str(root / "lost-0/checkpoints")]),
            case(flipped, "--steps", 12, stop_after=7),
            case(
                flipped,
                "--steps",
                12,
                flip=[str(root / "flipped-1/checkpoints/step-00000008/state.pt")],
                remove=[str(root / "flipped-0/checkpoints")],
            ),
            case(narrow),
        )
    )
    return root


def test_the_first_disk_is_lost_and_the_run_continues_from_the_last_checkpoint(root):
    (resumed,) = events(root / "lost-0", 0, "resumed")
    assert (resumed["step"], resumed["path"]) == (8, str(root / "lost-1/checkpoints/step-00000008"))
    assert losses(root / "lost-0") == losses(root / "whole")


def test_the_second_disk_has_the_same_checkpoint_and_removes_old_ones(root):
    steps = [event["step"] for event in events(root / "lost-1", 1, "copied")]
    assert steps == [4, 8, 12]
    assert not (root / "lost-1/checkpoints/step-00000004").exists()
    own, copy = (store.verify(root / f"lost-{host}/checkpoints/step-00000012") for host in (0, 1))
    assert (copy.files, copy.created) == (own.files, own.created)
    assert not any((root / "lost-2/checkpoints").iterdir())  # two disks are enough


def test_a_damaged_copy_is_not_used(root):
    assert [event["step"] for event in events(root / "flipped-0", 0, "resumed")] == [4]
    (damaged,) = events(root / "flipped-0", 0, "checkpoint_damaged")
    assert "flipped-1" in damaged["path"]


def test_a_host_that_cannot_write_is_passed_over(root):
    assert [event["step"] for event in events(root / "narrow-2", 2, "copied")] == [4, 8]


def test_ranks_that_see_one_disk_write_one_checkpoint(root):
    assert not any(events(root / "whole", rank, "copied") for rank in range(3))
