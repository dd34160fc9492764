"""Which checkpoint a run continues from, and what is said of those that are unusable; here of a run of one rank."""

import hashlib
import json

import pytest
import torch

from muster.checkpoint import search, store
from muster.checkpoint.manifest import File, Manifest
from muster.errors import CheckpointError, NewerFormat

pytestmark = pytest.mark.torch


def whole(folder, step):
    return store.write(folder, step, {"step": step}, metric=None, summary={})


def in_parts(folder, step, created, hosts=("gpu-a", "gpu-b")):
    """A sharded checkpoint with one file of each host, all in this folder."""
    path, files = folder / f"step-{step:08d}", {}
    path.mkdir(parents=True)
    for rank, host in enumerate(hosts):
        part = path / f"shard-{rank}.pt"
        torch.save({"boxes": {}, "rest": {"step": step}} if rank == 0 else {"boxes": {}}, part)
        data = part.read_bytes()
        files[part.name] = File(hashlib.sha256(data).hexdigest(), len(data), host)
    (path / "manifest.json").write_text(Manifest(step, created, None, files, {}).render())
    return path


def flip(file):
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def find(folder):
    return search.newest_of_all_ranks(folder, looks=True)


def test_a_run_without_a_checkpoint_begins_at_step_0(tmp_path):
    assert find(tmp_path / "absent") == find(tmp_path) == search.Search(None, None, [])
    whole(tmp_path, 4)
    assert search.newest_of_all_ranks(tmp_path, looks=False).path is None


def test_the_newest_intact_checkpoint_is_used_and_each_newer_one_is_named(tmp_path):
    paths = [whole(tmp_path, step) for step in (4, 8, 12)]
    flip(paths[2] / "state.pt")
    (paths[1] / "state.pt").write_bytes(b"")
    used = find(tmp_path)
    assert (used.path, used.state, used.shards) == (str(paths[0]), {"step": 4}, None)
    assert [damaged.path for damaged in used.damaged] == paths[:0:-1]
    assert [word in damaged.reason for word, damaged in zip(("altered", "truncated"), used.damaged, strict=True)] == [
        True,
        True,
    ]
    assert used.created == json.loads((paths[0] / "manifest.json").read_text())["created"]


def test_a_checkpoint_in_parts_is_used_if_it_is_newer_and_whole(tmp_path):
    one = whole(tmp_path, 4)
    two = in_parts(tmp_path, 8, created=store.now(tmp_path))
    used = find(tmp_path)
    assert (used.path, used.state, used.damaged) == (str(two), {"step": 8}, [])
    assert used.shards is not None
    flip(two / "shard-1.pt")
    used = find(tmp_path)
    assert (used.path, [damaged.path for damaged in used.damaged]) == (str(one), [two])
    assert used.damaged[0].reason == (
        f"{two}: shard-1.pt was altered: its SHA-256 is not the one in the manifest (on gpu-b)"
    )


def test_a_run_is_not_started_over_if_all_its_checkpoints_are_damaged(tmp_path):
    paths = [whole(tmp_path, step) for step in (4, 8)]
    for path in paths:
        flip(path / "state.pt")
    with pytest.raises(CheckpointError) as refused:
        find(tmp_path)
    head, *reasons = refused.value.message.splitlines()
    assert head == f"{tmp_path}: each checkpoint there is damaged:"
    assert [reason.strip().partition(": ")[0] for reason in reasons] == [str(path) for path in reversed(paths)]
    assert refused.value.hint == "put a good copy there; or remove the folder to begin at step 0"


def test_a_run_on_other_hosts_than_those_that_wrote_its_checkpoint_is_refused_with_their_names(tmp_path):
    (in_parts(tmp_path, 4, created=1.0) / "shard-1.pt").unlink()
    with pytest.raises(CheckpointError) as refused:
        find(tmp_path)
    assert "no checkpoint is complete on these hosts" in refused.value.message
    assert "shard-1.pt from gpu-b is on none of these hosts" in refused.value.message
    assert refused.value.hint.startswith("start the run on the hosts that wrote the checkpoint; or remove the folder")


def test_a_checkpoint_of_a_newer_muster_is_refused_and_no_older_one_used(tmp_path):
    whole(tmp_path, 4)
    newer = whole(tmp_path, 8) / "manifest.json"
    newer.write_text(newer.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(NewerFormat, match="format 99"):
        find(tmp_path)


def test_copies_on_several_hosts_are_tried_in_the_order_of_ranks_and_a_checkpoint_in_parts_once():
    everyone = [[(5.0, "/r", ""), (7.0, "/p", "{}")], [(5.0, "/r", ""), (7.0, "/p", "{}")], [(9.0, "/n", "")]]
    made = search._candidates(everyone)
    assert [(each.path, each.owner, each.owners) for each in made] == [
        ("/n", 2, {}),
        ("/p", 0, {0: "/p", 1: "/p"}),
        ("/r", 0, {}),
        ("/r", 1, {}),
    ]
