"""Which checkpoints a run may continue from: those of its own recipe, seed and data."""

from dataclasses import asdict, replace

import pytest

from muster.errors import CheckpointError
from trainer.config import Config
from trainer.train import state

pytestmark = pytest.mark.torch
THEN = Config(recipe="my/recipe.py", seed=3)
SAVED = {"model": {}, "optimizer": {}, "position": {}, "config": asdict(THEN), "samples": 9}


def test_a_recipe_is_the_same_however_its_path_is_typed():
    for typed in ("my/recipe.py", "./my/recipe.py", "my//recipe.py"):
        state._check_same("step-7", SAVED, replace(THEN, recipe=typed), 9)


@pytest.mark.parametrize(
    ("config", "samples", "words"),
    [
        (replace(THEN, recipe="other/recipe.py"), 9, "recipe my/recipe.py wrote it"),
        (replace(THEN, seed=4), 9, "has seed 3, but this run has 4"),
        (THEN, 10, "had 9 training samples when it was saved and has 10 now"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_with_the_difference(config, samples, words):
    with pytest.raises(CheckpointError, match=words):
        state._check_same("step-7", SAVED, config, samples)
