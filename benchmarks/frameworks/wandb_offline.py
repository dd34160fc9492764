"""wandb without a network: wandb/offline-run-<date>-<id>/."""

from pathlib import Path

import wandb
from shared import hold, model, train

run = wandb.init(mode="offline", project="kept")
train(model(), lambda step, loss: run.log({"loss": loss}))
run.finish()
hold(*(str(path) for path in Path("wandb").rglob("*") if not path.is_symlink()))
