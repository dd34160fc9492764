"""What a single run of the trainer must do, on real ranks."""

import json
from pathlib import Path

import pytest
import torch

from lab.waiting import events, lines, losses, until
from muster.checkpoint import store
from tests.dist.conftest import TORCHS

HOME = Path(__file__).resolve().parents[2]


def final_weights(run_dir):
    """The weights in the newest checkpoint."""
    path, _ = store.locate(run_dir)
    return store.load(path)[0]["model"]


def test_three_nodes_train_as_one_process_does_and_rank_0_is_on_the_master(nodes, torchrun):
    options = ("--steps", 50, "--log-every", 1, "--eval-every", 0)
    three = nodes(2, *options, folder="three").start()
    single = torchrun(1, *options, folder="one", module=TORCHS)
    assert single.wait() == 0, single.output
    until(lambda: None not in three.codes().values(), "three nodes to end", 120)
    assert set(three.codes().values()) == {0}
    ours, alone = losses(three.run_dir), losses(single.run_dir)
    assert ours.keys() == alone.keys() == set(range(1, 51))
    for step, loss in alone.items():
        assert ours[step] == pytest.approx(loss, rel=1e-5), f"step {step}"
    places = {rank: events(three.run_dir, rank, "started")[0]["node"] for rank in range(3)}
    assert places == {0: "master", 1: "worker-1", 2: "worker-2"}


def test_micro_batches_change_neither_the_losses_nor_the_number_of_steps(torchrun, recipe_file):
    options = ("--recipe", recipe_file(), "--steps", 20, "--batch", 21, "--log-every", 1)
    whole, cut = torchrun(2, *options, folder="whole"), torchrun(2, *options, "--micro-batch", 4, folder="cut")
    assert (whole.wait(), cut.wait()) == (0, 0), whole.output + cut.output
    assert losses(cut.run_dir) == pytest.approx(losses(whole.run_dir), rel=1e-4)
    assert len(losses(cut.run_dir)) == 20


@pytest.mark.parametrize("world", [1, 3])
def test_every_held_out_sample_counts_exactly_once(torchrun, recipe_file, world):
    run = torchrun(world, "--recipe", recipe_file(held_out=37), "--steps", 2, "--batch", 24)
    assert run.wait() == 0, run.output
    (evaluated,) = events(run.run_dir, 0, "evaluated")
    assert evaluated["samples"] == 37
    assert evaluated["values"]["number"] == pytest.approx(sum(range(37)) / 37)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_learns(torchrun, precision):
    run = torchrun(2, "--precision", precision, "--steps", 60)
    assert run.wait() == 0, run.output
    assert losses(run.run_dir)[60] < 0.5 * losses(run.run_dir)[1]


def test_ranks_with_data_of_different_size_are_refused(torchrun, recipe_file):
    run = torchrun(2, "--recipe", recipe_file("def datasets(data):\n    return numbered(203), numbered(37 - RANK)"))
    assert run.wait() != 0
    (end,) = events(run.run_dir, 0, "outcome")
    assert end["verdict"] == "refused"
    assert "rank 0 has 203 + 37 samples, but rank 1 has 203 + 36" in end["message"]


def test_a_run_leaves_what_the_contract_promises(torchrun):
    run = torchrun(2, "--steps", 30, "--checkpoint-every", 10, "--keep", 2, module=TORCHS)
    assert run.wait() == 0, run.output
    folder = run.run_dir
    assert json.loads((folder / "config.json").read_text())["steps"] == 30
    assert json.loads((folder / "environment.json").read_text())["torch"] == torch.__version__
    for rank in (0, 1):
        (outcome,) = events(folder, rank, "outcome")
        assert (outcome["verdict"], outcome["step"]) == ("done", 30)
        assert {"data_ms", "compute_ms", "wait_ms", "step_ms"} <= events(folder, rank, "step")[0].keys()
    assert [entry["step"] for entry in events(folder, 0, "checkpoint")] == [10, 20, 30]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step-00000020", "step-00000030"]
    assert {"loss", "lr", "epoch", "grad_norm", "samples_per_s"} <= lines(folder / "metrics.jsonl")[0].keys()
    assert list((folder / "tensorboard").glob("events.*"))
    (written,) = {
        entry["sha256"]
        for entry in json.loads((folder / "checkpoints/step-00000030/manifest.json").read_text())["files"].values()
    }
    assert len(written) == 64


DRAWS_IN_LOSS = """
    def loss(model, batch):
        ids, x, y = batch
        return ((model(x) - y + torch.randn(())) ** 2).mean()
"""
DRAWS_IN_DATA = """
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            ids, x, y = super().__getitem__(index)
            return ids, x + torch.randn(()), y

    def collate(samples):  # so that samples are taken out one by one
        return torch.utils.data.default_collate(samples)

    def datasets(data):
        return Noisy(*numbered(203).tensors), numbered(37)
"""


@pytest.mark.parametrize("body", [DRAWS_IN_LOSS, DRAWS_IN_DATA])
def test_all_random_states_are_kept(torchrun, recipe_file, body):
    options = ("--recipe", recipe_file(body), "--steps", 24, "--batch", 16, "--checkpoint-every", 8, "--keep", 9)
    whole = torchrun(2, *options, folder="whole")
    assert whole.wait() == 0, whole.output
    again = torchrun(2, *options, "--resume", whole.run_dir / "checkpoints/step-00000008", folder="again")
    assert again.wait() == 0, again.output
    assert events(again.run_dir, 0, "resumed")[0]["step"] == 8
    first, other = final_weights(whole.run_dir), final_weights(again.run_dir)
    assert all(torch.equal(first[name], other[name]) for name in first)


def test_a_run_without_a_folder_makes_one(torchrun, tmp_path):
    run = torchrun(2, "--steps", 2, home=tmp_path, MUSTER_RUN_DIR="", PYTHONPATH=str(HOME))
    assert run.wait() == 0, run.output
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.endswith("-digits")
    assert {"rank-0.jsonl", "rank-1.jsonl"} == {path.name for path in (made / "ranks").iterdir()}
