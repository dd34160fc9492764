"""A small GPT and its whole training loop in one file, as in nanoGPT: it reads text, learns letters, and resumes.

torchrun --nproc-per-node 2 char_lm.py --steps 200
muster deploy -H a,b --folder examples --requirements no --restarts 3 char_lm.py --steps 200
"""

import argparse
import os
import tokenize
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

CONTEXT, WIDTH, HEADS, BLOCKS, LETTERS = 64, 64, 4, 2, 256


class Block(nn.Module):
    """Attention to the preceding letters, then a small network for each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        normed = self.first(x)
        x = x + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return x + self.network(self.second(x))


class GPT(nn.Module):
    """Takes letters, and returns scores for the next letter at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.out(self.blocks(self.letters(x) + self.places(places)))


def draw_batch(text: torch.Tensor, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of the text, and the same pieces shifted by one letter."""
    starts = torch.randint(len(text) - CONTEXT - 1, (size,))
    pieces = torch.stack([text[start : start + CONTEXT + 1] for start in starts]).long().to(device)
    return pieces[:, :-1], pieces[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2, help="of 50 steps each")
    parser.add_argument("--steps", type=int, default=0, help="instead of epochs")
    parser.add_argument("--text", default=tokenize.__file__, help="a file to learn; without it, a source of Python")
    parser.add_argument("--save", default="", help="where rank 0 writes the model at the end")
    args = parser.parse_args()
    steps = args.steps or 50 * args.epochs

    dist.init_process_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    text = torch.frombuffer(bytearray(Path(args.text).read_bytes()), dtype=torch.uint8)

    torch.manual_seed(0)
    model = DistributedDataParallel(GPT().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step, last = 0, Path("last.pt")
    if last.exists():  # every rank finds the file: Muster copies missing files to each host
        saved = torch.load(last, map_location=device)
        step = saved["step"]
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        print(f"rank {rank} of {world}: continues at step {step}", flush=True)

    while step < steps:
        torch.manual_seed(step * world + rank)  # different pieces for each rank, the same pieces after a resume
        letters, targets = draw_batch(text, 16, device)
        loss = functional.cross_entropy(model(letters).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 50 == 0:
            print(f"rank {rank} of {world}: epoch {step // 50} loss {loss.item():.6f}", flush=True)
            if rank == 0:
                state = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, "last.tmp")
                os.replace("last.tmp", last)  # a kill never leaves half a file
    if rank == 0 and args.save:
        torch.save(model.module.state_dict(), args.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
