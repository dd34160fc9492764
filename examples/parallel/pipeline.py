"""Pipeline parallel in plain torch: each rank has some layers, and a batch flows through the ranks in small pieces.

python pipeline.py                                     one process holds all layers
torchrun --nproc-per-node 2 pipeline.py                two ranks with half of the layers each: the same losses
muster deploy --hosts a,b -- pipeline.py --steps 100   on hosts
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional as F

LAYERS, WIDTH, WORDS, LENGTH, BATCH, PIECES = 6, 64, 256, 32, 16, 8


def layer(index: int) -> nn.Module:
    """One of the model's layers, with the same weights whichever rank holds it."""
    torch.manual_seed(index)
    if index == 0:
        return nn.Embedding(WORDS, WIDTH)
    if index == LAYERS - 1:
        return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))
    return nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)


def next_word_loss(scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of a piece of the batch."""
    return F.cross_entropy(scores.flatten(0, 1), words.flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > LAYERS:
        raise SystemExit(f"{world} ranks for {LAYERS} layers: start fewer ranks")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    part = nn.Sequential(*(layer(i) for i in range(LAYERS * rank // world, LAYERS * (rank + 1) // world))).to(device)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    if world > 1:
        dist.init_process_group(device_id=device if device.type == "cuda" else None)
        schedule = Schedule1F1B(PipelineStage(part, rank, world, device), PIECES, next_word_loss)
    first, last = rank == 0, rank == world - 1
    for step in range(1, steps + 1):
        # All ranks draw the same batch: the first rank needs its words, the last rank the word after each.
        draw = torch.Generator().manual_seed(step)
        drawn = torch.randint(0, 9, (BATCH, LENGTH + 1), generator=draw).cumsum(1) % WORDS
        words, following = drawn[:, :-1].to(device), drawn[:, 1:].to(device)
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if world == 1:
            losses = [next_word_loss(part(words), following)]
            losses[0].backward()
        else:
            schedule.step(*([words] if first else []), **({"target": following, "losses": losses} if last else {}))
        # Every piece has the same number of words, so the mean of their means is the batch's mean. The schedule scales
        # gradients accordingly.
        optimizer.step()
        if last and (step == 1 or step % 10 == 0):
            print(f"step {step}   loss {torch.stack(losses).mean().item():.6f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
