"""`ddp.py` with `muster.Training` (docs/how-to/survive-a-kill.md): killed at any moment, it continues where it stopped.

torchrun --nproc-per-node 2 ddp_that_resumes.py --epochs 3
muster deploy -H a,b --folder examples --requirements no --restarts 3 ddp_that_resumes.py --epochs 3
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import muster


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--save", default="", help="where rank 0 writes the model")
    args = parser.parse_args()

    dist.init_process_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")

    torch.manual_seed(0)
    inputs = torch.randn(4096, 16)
    data = TensorDataset(inputs, inputs @ torch.randn(16, 1) + 0.1)
    model = DistributedDataParallel(nn.Linear(16, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    training = muster.Training(model=model, optimizer=optimizer)
    for epoch in range(training.epoch, args.epochs):
        for batch, target in training.batches(data, batch=64 * world, epochs=epoch + 1):
            loss = nn.functional.mse_loss(model(batch.to(device)), target.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank} of {world}: epoch {epoch + 1} loss {loss.item():.6f}", flush=True)
    if rank == 0 and args.save:
        torch.save(model.module.state_dict(), args.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
