"""Lightning's Trainer with DDP, a validation every epoch, and batches accumulated in pairs."""

import os
import warnings

import lightning
import torch
from own import STEPS, Slow, net, own
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")


class Module(lightning.LightningModule):
    """A small network under Lightning."""

    def __init__(self):
        super().__init__()
        self.net, self.losses = net(), []

    def training_step(self, batch, _):
        loss = mse_loss(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def on_train_batch_end(self, *_):
        if self.trainer.global_step > len(own.losses):
            own.stepped(self.trainer.global_step, sum(self.losses) / len(self.losses))
            self.losses = []

    def validation_step(self, batch, _):
        mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp",
    accumulate_grad_batches=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, use_distributed_sampler=False,
)  # fmt: skip
training = DataLoader(Slow(STEPS * 4), batch_size=4)
trainer.fit(Module(), training, DataLoader(Slow(32, 0.005, training=False), batch_size=8))
