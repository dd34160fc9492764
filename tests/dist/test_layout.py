"""Convolutions lie channels-last where the model's own code goes along, on all ranks or on none."""

import pytest
import torch

from muster.checkpoint import store

CONVOLUTION = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 8, 3, padding=1), nn.Linear(8 * 2 * 2, 1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        # Four values, twice: a picture of two colours and 2 x 2 pixels.
        seen = self.norm(self.first(torch.cat([x, x], 1).view(-1, 2, 2, 2)))
        return self.last(self.flat(seen))

    def flat(self, seen):
        return {flat}

def model():
    return Net()
"""
EASY, STUBBORN = "seen.flatten(1)", "seen.view(len(seen), -1)"
STUBBORN_ON_ONE = f"{STUBBORN} if RANK == 1 else {EASY}"


def weights(run):
    """The convolution's weight in the newest checkpoint, its first moment, and the batch norm's count of batches."""
    found, _ = store.newest_usable(run.run_dir / "checkpoints")
    state, _ = store.load(found.path)
    names = list(state["model"])
    moments = state["optimizer"]["state"][names.index("first.weight")]
    return state["model"]["first.weight"], moments["exp_avg"], int(state["model"]["norm.num_batches_tracked"])


@pytest.mark.parametrize(("flat", "last"), [(EASY, True), (STUBBORN, False), (STUBBORN_ON_ONE, False)])
def test_a_model_whose_code_minds_is_left_as_it_is_on_all_ranks(torchrun, recipe_file, flat, last):
    run = torchrun(2, "--recipe", recipe_file(CONVOLUTION.format(flat=flat)), "--steps", 3)
    assert run.wait() == 0, run.output
    weight, moment, batches = weights(run)
    assert weight.is_contiguous(memory_format=torch.channels_last) == last
    assert weight.is_contiguous() != last
    assert moment.stride() == weight.stride()
    assert batches == 3, "the rehearsals left traces in the model"


def test_what_was_trained_in_one_layout_goes_on_the_same_in_the_other(torchrun, recipe_file):
    options = ("--batch", 16, "--warmup", 0, "--steps", 8, "--checkpoint-every", 4)
    ends = {}
    for flat in (STUBBORN, EASY):
        recipe = recipe_file(CONVOLUTION.format(flat=flat))
        if not ends:
            whole = torchrun(1, "--recipe", recipe, *options, folder="whole")
            assert whole.wait() == 0, whole.output
        begun = whole.run_dir / "checkpoints/step-00000004"
        run = torchrun(1, "--recipe", recipe, *options, "--resume", begun, folder=f"again-{len(ends)}")
        assert run.wait() == 0, run.output
        ends[flat] = weights(run)
    assert ends[STUBBORN][0].is_contiguous()
    assert ends[EASY][1].is_contiguous(memory_format=torch.channels_last)
    for one, other in zip(ends[STUBBORN][:2], ends[EASY][:2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert torch.equal(weights(whole)[0], ends[STUBBORN][0])
