"""Lightning's Trainer with its CSVLogger and its TensorBoardLogger: what a third logger is told is what is true."""

import json

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger


class Own(Logger):
    """Keeps what it is told."""

    name, version = "own", 0

    def __init__(self):
        super().__init__()
        self.told = {}

    def log_hyperparams(self, *words, **named):
        """Nothing."""

    def log_metrics(self, metrics, step=None):
        """Each number by its name."""
        for name, value in metrics.items():
            self.told.setdefault(name, []).append([step, float(value)])


class Module(lightning.LightningModule):
    """A linear layer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        """One loss."""
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        """Another."""
        self.log("val_loss", self.layer(batch[0]).square().mean())

    def configure_optimizers(self):
        """SGD."""
        return torch.optim.SGD(self.parameters(), 0.01)


def loader(seed):
    """64 rows of 8 numbers, in batches."""
    rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=8)


own = Own()
trainer = lightning.Trainer(
    max_epochs=10, accelerator="cpu", devices=1, log_every_n_steps=3, enable_progress_bar=False,
    logger=[own, CSVLogger(".", "table"), TensorBoardLogger(".", "board")],
)  # fmt: skip
trainer.fit(Module(), loader(0), loader(1))
with open("own.json", "w") as file:
    json.dump(own.told, file)
