"""A recipe chooses its model's memory layout; training and checkpoints keep it."""

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
        x = self.norm(self.first(torch.cat([x, x], 1).view(-1, 2, 2, 2)))
        return self.last(x.flatten(1))

def model():
    return Net().to(memory_format=torch.{layout})
"""
CONTIGUOUS, CHANNELS_LAST = (CONVOLUTION.format(layout=name) for name in ("contiguous_format", "channels_last"))


def newest_state(run):
    """From the newest checkpoint: the convolution's weight, its first moment, and the batch norm's batch count."""
    checkpoint, _ = store.newest_usable(run.run_dir / "checkpoints")
    state, _ = store.load(checkpoint.path)
    names = list(state["model"])
    moments = state["optimizer"]["state"][names.index("first.weight")]
    return state["model"]["first.weight"], moments["exp_avg"], int(state["model"]["norm.num_batches_tracked"])


def test_weights_and_moments_have_the_layout_that_the_recipe_chose(torchrun, recipe_file):
    run = torchrun(2, "--recipe", recipe_file(CHANNELS_LAST), "--steps", 3)
    assert run.wait() == 0, run.output
    weight, moment, batches = newest_state(run)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()
    assert moment.stride() == weight.stride()
    assert batches == 3, "the pass before the first step changed the model's buffers"


def test_a_run_in_one_layout_resumes_in_the_other_with_the_same_weights(torchrun, recipe_file):
    options = ("--batch", 16, "--warmup", 0, "--steps", 8, "--checkpoint-every", 4)
    whole = torchrun(1, "--recipe", recipe_file(CONTIGUOUS), *options, folder="whole")
    assert whole.wait() == 0, whole.output
    ends = []
    for number, recipe in enumerate((CONTIGUOUS, CHANNELS_LAST)):
        middle = whole.run_dir / "checkpoints/step-00000004"
        run = torchrun(1, "--recipe", recipe_file(recipe), *options, "--resume", middle, folder=f"resumed-{number}")
        assert run.wait() == 0, run.output
        ends.append(newest_state(run)[:2])
    (weight, moment), (other_weight, other_moment) = ends
    assert weight.is_contiguous()
    assert other_moment.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(other_weight, weight, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(other_moment, moment, rtol=1e-4, atol=1e-6)
    assert torch.equal(newest_state(whole)[0], weight)
