"""Lightning's Trainer with its own logger and checkpoints: lightning_logs/version_0/."""

import os
from pathlib import Path

import lightning
import torch
from shared import hold, samples

torch.manual_seed(0)


class Module(lightning.LightningModule):
    """A linear layer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        """One loss."""
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        """SGD."""
        return torch.optim.SGD(self.parameters(), 0.01)


world, local = (int(os.environ[name]) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", devices=local, num_nodes=world // local, log_every_n_steps=1
)
trainer.fit(Module(), torch.utils.data.DataLoader(samples(), batch_size=8))
if trainer.is_global_zero:
    versions = Path("lightning_logs/version_0")
    hold(*map(str, [*versions.rglob("*")]))
else:
    hold()
