"""FSDP2: each rank holds a part of the model, its gradients and its optimizer, and gathers a layer when it is needed.

torchrun --nproc-per-node 2 fsdp2.py --epochs 2
muster deploy --hosts a,b --folder examples --requirements no -- fsdp2.py --epochs 2
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save", default="", help="where rank 0 writes the whole model")
    args = parser.parse_args()

    dist.init_process_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    mesh = init_device_mesh(device.type, (world,))

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)), nn.Linear(64, 1))
    model.to(device)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)  # after fully_shard, so that it updates the parts
    parts = sum(each.to_local().numel() for each in model.parameters())
    print(f"rank {rank} of {world}: holds {parts} of {sum(each.numel() for each in model.parameters())} weights")

    torch.manual_seed(1 + rank)  # different samples for each rank
    for epoch in range(args.epochs):
        for _ in range(20):
            samples = torch.randn(32, 64, device=device)
            loss = nn.functional.mse_loss(model(samples), samples.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        print(f"rank {rank} of {world}: epoch {epoch + 1} loss {mean.item():.6f}", flush=True)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0 and args.save:
        torch.save(whole, args.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
