"""Hugging Face Accelerate on the ranks that torchrun started; runs under plain torchrun.

torchrun --nproc-per-node 2 accelerate_train.py --epochs 2
muster deploy -H a,b --folder examples accelerate_train.py --epochs 2
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--save", default="", help="where rank 0 writes the model")
    args = parser.parse_args()

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    set_seed(0)
    inputs = torch.randn(2048, 16)
    data = TensorDataset(inputs, inputs @ torch.randn(16, 1) + 0.1)
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    rank, world = accelerator.process_index, accelerator.num_processes
    for epoch in range(args.epochs):
        for batch, target in loader:
            loss = nn.functional.mse_loss(model(batch), target)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        mean = accelerator.reduce(loss.detach(), reduction="mean")
        print(f"rank {rank} of {world}: epoch {epoch + 1} loss {mean.item():.6f}", flush=True)
    if args.save:
        accelerator.save(accelerator.unwrap_model(model).state_dict(), args.save)
    accelerator.end_training()


if __name__ == "__main__":
    main()
