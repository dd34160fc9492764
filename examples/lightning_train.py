"""PyTorch Lightning on the ranks that torchrun started; runs under plain torchrun.

torchrun --nproc-per-node 2 lightning_train.py --epochs 2
muster deploy -H a,b --folder examples lightning_train.py --epochs 2
"""

import argparse
import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr, self.net = lr, nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)

    def on_train_epoch_end(self) -> None:
        world, loss = self.trainer.world_size, self.trainer.callback_metrics["loss"].item()
        print(f"rank {self.global_rank} of {world}: epoch {self.current_epoch + 1} loss {loss:.6f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--save", default="", help="where rank 0 writes a checkpoint")
    args = parser.parse_args()

    lightning.seed_everything(0)
    inputs = torch.randn(2048, 16)
    data = TensorDataset(inputs, inputs @ torch.randn(16, 1) + 0.1)
    # Lightning finds torchrun's ranks by itself, but has to be told how many there are.
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        strategy="ddp",
        devices=devices,
        num_nodes=int(os.environ["WORLD_SIZE"]) // devices,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Line(args.lr), DataLoader(data, batch_size=64, shuffle=True))
    if args.save:
        trainer.save_checkpoint(args.save)
    # A rank that exits while another rank still waits in gloo makes that rank fail.
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
