"""Context parallel in plain torch: each rank has a part of every sequence; attention uses all ranks' keys and values.

torchrun --nproc-per-node 1 context.py                 one process holds the whole sequences
torchrun --nproc-per-node 2 context.py                 two ranks with half of each: the same losses
muster deploy --hosts a,b -- context.py --steps 100    on hosts
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, HEADS, WORDS, LENGTH, BATCH = 2, 64, 4, 256, 64, 8


class Block(nn.Module):
    """Causal attention and a two-layer net, over this rank's part of the sequence."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.norm, self.norm_think = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.query_key_value(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads[0], self.of_all_ranks(heads[1]), self.of_all_ranks(heads[2])
        begin, here, whole = self.mesh.get_local_rank() * x.shape[1], x.shape[1], key.shape[2]
        earlier = torch.arange(begin, begin + here)[:, None] >= torch.arange(whole)[None]
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=earlier.to(x.device))
        x = x + self.mix(seen.transpose(1, 2).flatten(2))
        return x + self.think(self.norm_think(x))

    def of_all_ranks(self, part: torch.Tensor) -> torch.Tensor:
        """The whole sequence.

        In the backward pass, each rank gets its part's gradients, summed over all ranks' losses.
        """
        cut = DTensor.from_local(part.contiguous(), self.mesh, [Shard(2)])
        return cut.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])


class Model(nn.Module):
    """Embeddings of words and positions, blocks, and scores for each next word."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block(mesh) for _ in range(LAYERS)))
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.blocks(self.word(words) + self.place(places)))
        return scores


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    dist.init_process_group(device_id=device if on_gpu else None)
    rank, world = dist.get_rank(), dist.get_world_size()
    if LENGTH % world:
        raise SystemExit(f"{world} ranks do not divide sequences of {LENGTH} words")
    torch.manual_seed(0)
    bare = Model(init_device_mesh(device.type, (world,)))
    # Each rank's loss is the mean over its own words, so DDP's mean over the ranks is the mean over all words.
    model = DistributedDataParallel(bare.to(device), device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    here = slice(rank * LENGTH // world, (rank + 1) * LENGTH // world)
    places = torch.arange(LENGTH)[here].to(device)
    for step in range(1, steps + 1):
        # All ranks draw the same batch, and each takes its part of every sequence.
        draw = torch.Generator().manual_seed(step)
        drawn = torch.randint(0, 9, (BATCH, LENGTH + 1), generator=draw).cumsum(1) % WORDS
        words, following = drawn[:, :-1][:, here].to(device), drawn[:, 1:][:, here].to(device)
        loss = F.cross_entropy(model(words, places).flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 10 == 0:
            dist.all_reduce(mean := loss.detach() / world)
            if rank == 0:
                print(f"step {step}   loss {mean.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
