"""Every mesh trains as one process does: the same losses, every sample once, an orderly stop."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from lab.ports import free_port
from lab.waiting import events, losses
from muster.data import StreamSampler
from tests.dist.conftest import HOME, environment

RECIPE, SEQUENCE = HOME / "lab/mesh_recipe.py", HOME / "lab/sequence_recipe.py"


def start(world, *cases):
    """Start so many ranks, which run each case in turn: its folder, and the trainer's options."""
    listed = [{**case, "arguments": ["--recipe", str(RECIPE), *map(str, case["arguments"])]} for case in cases]
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    command += [f"--master-port={free_port()}", "-m", "lab.mesh_runs", json.dumps(listed)]
    return subprocess.Popen(
        command, cwd=HOME, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process):
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 0, output


def case(folder, *arguments, **more):
    return {"folder": str(folder), "arguments": arguments, **more}


MESHES = ["dp_shard=4", "dp_replicate=2,dp_shard=2", "dp_replicate=4", "tp=4", "dp_shard=2,tp=2", "dp_replicate=2,tp=2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Each mesh's run folder, with that of one process, all of the same steps."""
    root = tmp_path_factory.mktemp("meshes")
    one = start(1, case(root / "one"))
    four = start(
        4,
        *(case(root / mesh, "--mesh", mesh) for mesh in MESHES),
        case(root / "sequence", "--mesh", "dp_shard=2,tp=2", "--recipe", SEQUENCE),
        case(root / "accumulated", "--mesh", "dp_shard=-1", "--micro-batch", 2),
        *(
            case(root / f"{precision} {mesh}", "--mesh", mesh, "--precision", precision)
            for precision in ("bf16", "fp16")
            for mesh in ("dp_replicate=4", "dp_shard=4")
        ),
        case(root / "uneven", "--mesh", "dp_shard=4", "--batch", 13, "--micro-batch", 1),
        case(root / "stopped", "--mesh", "dp_shard=4", "--steps", 500, stop_after=3),
        case(root / "exploded", "--mesh", "dp_shard=4", "--lr", "1e38"),
        case(root / "too-many", "--mesh", "dp_shard=8"),
        case(root / "compiled", "--mesh", "dp_shard=4", "--compile"),
    )
    for process in (one, four):
        finish(process)
    return root


@pytest.mark.parametrize("name", [*MESHES, "sequence", "accumulated"])
def test_a_mesh_has_the_losses_of_one_process(trained, name):
    assert len(losses(trained / name)) == 8
    assert losses(trained / name) == pytest.approx(losses(trained / "one"), rel=1e-5)


@pytest.mark.parametrize("name", MESHES)
def test_every_sample_is_read_once_by_the_ranks_that_share_the_data(trained, name):
    taken = Counter()
    for rank in range(4):
        rows = (
            (trained / name / f"seen-{rank}").read_text().splitlines()[-8:]
        )  # passes before the first step come before
        peers = 1 if "tp" not in name else int(name.rpartition("tp=")[2])  # they read the same
        if rank % peers == 0:
            taken.update(int(number) for row in rows for number in row.split())
    stream = StreamSampler(203, batch=12, world=1, rank=0)
    assert taken == Counter(stream.indices(0, 8 * 12))


@pytest.mark.parametrize("name", MESHES)
def test_every_held_out_sample_counts_once(trained, name):
    (evaluated,) = events(trained / name, 0, "evaluated")
    assert evaluated["samples"] == 37
    assert evaluated["values"]["number"] == pytest.approx(sum(range(37)) / 37)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_is_the_same_on_a_mesh(trained, precision):
    ddp, sharded = (losses(trained / f"{precision} {mesh}") for mesh in ("dp_replicate=4", "dp_shard=4"))
    assert sharded == pytest.approx(ddp, rel=2e-3)


def test_an_orderly_stop_and_a_loss_that_is_not_finite_end_all_ranks_alike(trained):
    assert {(trained / "stopped" / f"end-{rank}").read_text() for rank in range(4)} == {"stopped 4"}
    words = {(trained / "exploded" / f"refused-{rank}").read_text() for rank in range(4)}
    assert all("the loss is" in text and "no optimizer took that step" in text for text in words)


def test_what_a_mesh_cannot_do_is_refused_by_name(trained):
    assert "one would have an empty pass" in (trained / "uneven" / "refused-0").read_text()
    assert "--compile" in (trained / "compiled" / "refused-0").read_text()
    assert "dp_shard=8: 8 ranks, but the run has 4" in (trained / "too-many" / "refused-3").read_text()
