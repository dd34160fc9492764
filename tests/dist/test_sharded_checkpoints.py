"""A sharded run continues on any mesh and from any disk; a damaged part is named before it is loaded."""

import json
import subprocess
import sys

import pytest

from lab.ports import free_port
from lab.waiting import events, losses
from muster.checkpoint import store
from tests.dist.conftest import HOME, environment
from tests.dist.test_meshes import case, finish, start

SAVED = {"fsdp": "dp_shard=4", "hsdp": "dp_replicate=2,dp_shard=2", "tp": "dp_shard=2,tp=2"}
STEP = "checkpoints/step-00000004"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Runs that were saved on meshes of four ranks, and their continuations on other meshes."""
    root = tmp_path_factory.mktemp("sharded")
    hosts, bare, alone = root / "RANK", root / "bare-RANK", root / "alone-RANK"
    finish(
        start(
            4,
            case(root / "one-on-ddp"),
            *(case(root / name, "--mesh", mesh) for name, mesh in SAVED.items()),
            *(
                case(root / f"{name}-to-{other}", "--mesh", mesh, "--resume", root / name / STEP)
                for name, other, mesh in (
                    ("fsdp", "tp", SAVED["tp"]),
                    ("one-on-ddp", "fsdp", SAVED["fsdp"]),
                    ("one-on-ddp", "mixed", "tp=4"),
                )
            ),
            # Each rank is a host; in the second run, each has the disk of the next one.
            case(hosts, "--mesh", "dp_shard=4", stop_after=3),
            case(root / "NEXT", "--mesh", "dp_replicate=2,dp_shard=2"),
            # A host has a damaged file, so the step before is used. Then a host lacks its file: no step is complete.
            case(bare, "--mesh", "dp_shard=4", "--keep", 9),
            case(
                bare,
                "--mesh",
                "dp_shard=4",
                "--steps",
                9,
                flip=[str(root / "bare-2/checkpoints/step-00000008/shard-2.pt")],
            ),
            case(alone, "--mesh", "dp_shard=4", "--steps", 4),
            case(alone, "--mesh", "dp_shard=4", remove=[str(root / "alone-1" / STEP / "shard-1.pt")]),
        )
    )
    fewer = [
        start(
            world,
            *(case(root / f"{name}-to-{world}", "--mesh", mesh, "--resume", root / name / STEP) for name in SAVED),
            *(
                case(
                    root / f"{name}-bits-{world}",
                    "--mesh",
                    mesh,
                    "--resume",
                    root / name / STEP,
                    compare=str(root / name / STEP),
                )
                for name in SAVED
            ),
        )
        for world, mesh in ((1, ""), (3, "dp_shard=3"))
    ]
    for process in fewer:
        finish(process)
    return root


@pytest.mark.parametrize(
    "name",
    [
        "fsdp-to-tp",
        "one-on-ddp-to-fsdp",
        "one-on-ddp-to-mixed",
        *(f"{name}-to-{world}" for name in SAVED for world in (1, 3)),
    ],
)
def test_a_run_continues_on_another_mesh_and_world_as_if_nothing_had_changed(root, name):
    expected = losses(root / "one-on-ddp")
    assert losses(root / name) == pytest.approx({step: expected[step] for step in range(5, 9)}, rel=1e-5)


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("name", SAVED)
def test_every_tensor_is_the_same_to_the_last_bit_after_it_is_resharded(root, name, world):
    weights = len(store.load(root / name / STEP)[0]["optimizer"]["state"])
    text = (root / f"{name}-bits-{world}" / "compared").read_text()
    same, of = int(text.split()[0]), int(text.split()[2])
    assert same == of > 3 * weights
    assert text.endswith(f"moments of {weights} weights")


def test_each_host_has_its_own_files_and_the_manifest_of_all(root):
    manifests = set()
    for rank in range(4):
        folder = root / str(rank) / STEP
        assert {path.name for path in folder.iterdir()} == {"manifest.json", f"shard-{rank}.pt"}
        manifests.add((folder / "manifest.json").read_text())
    (manifest,) = manifests
    assert {name: file["host"] for name, file in json.loads(manifest)["files"].items()} == {
        f"shard-{rank}.pt": f"host-{rank}" for rank in range(4)
    }


def test_a_run_continues_without_a_shared_disk_with_its_ranks_on_other_hosts(root):
    (resumed,) = (event for rank in range(4) for event in events(root / str(rank), 0, "resumed"))
    assert resumed["step"] == 4
    merged = {**losses(root / "0"), **losses(root / "1")}  # rank 0 was on disk 0, then on disk 1
    assert merged == pytest.approx(losses(root / "one-on-ddp"), rel=1e-5)


def test_a_damaged_part_is_named_with_its_host_and_the_step_before_is_used(root):
    (damaged,) = events(root / "bare-0", 0, "checkpoint_damaged")
    assert "shard-2.pt was altered" in damaged["message"]
    assert "(on host-2)" in damaged["message"]
    assert [event["step"] for event in events(root / "bare-0", 0, "resumed")] == [4]
    assert (root / "bare-3/end-3").read_text() == "done 9"


def test_a_run_with_a_missing_part_is_refused_and_not_started_over(root):
    for rank in range(4):
        text = (root / f"alone-{rank}" / f"refused-{rank}").read_text()
        assert "shard-1.pt from host-1 is on none of these hosts" in text


def test_the_parts_load_as_one_checkpoint(root):
    state, manifest = store.load(root / "fsdp" / STEP)
    assert manifest.sharded
    assert state["position"] == {"step": 4, "consumed": 48}
    assert state["model"]["table.weight"].shape == (31, 16)


def test_a_script_that_shards_its_model_continues_to_the_same_weights(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    command += [str(HOME / "tests/dist/fully_sharded.py"), str(tmp_path)]
    ended = subprocess.run(
        command,
        env=environment(PYTHONPATH=str(HOME)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "continued at 4, the same to the last bit: True" in ended.stdout, ended.stdout + ended.stderr
    assert (tmp_path / "stopped/checkpoints/step-00000008/shard-1.pt").is_file()
