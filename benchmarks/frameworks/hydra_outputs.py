"""Hydra's main with its default: outputs/<date>/<time>/, with .hydra/ and the log in it."""

import logging
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from shared import hold, model, train


@hydra.main(version_base=None)
def main(config):
    """Train, log, and save where Hydra says."""
    net = model()
    train(net)
    logging.getLogger(__name__).info("trained")
    folder = Path(HydraConfig.get().runtime.output_dir).relative_to(Path.cwd())
    torch.save(net.state_dict(), folder / "model.pt")
    hold(*map(str, folder.rglob("*")))


main()
