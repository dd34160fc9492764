"""A small transformer trained with `muster.Training`, in one process or split over ranks; it writes each step's loss.

    cut.py BACKEND PLAN STEPS SAVE_EVERY WIDTH LAYERS [PAUSE_S]

PLAN is `one`, `ddp`, `fsdp` or `tp`. If SAVE_EVERY is 0, the loop ends with `break`, without a checkpoint.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import muster
from gpu_check.scripts.joined import joined

WORDS, LENGTH, HEADS, BATCH, SAMPLES = 64, 16, 4, 8, 256
TENSOR_PLAN = {
    "blocks.*.by_head": ColwiseParallel(),
    "blocks.*.mix": RowwiseParallel(),
    "blocks.*.think.0": ColwiseParallel(),
    "blocks.*.think.2": RowwiseParallel(),
}
FOLDER = Path(os.environ["MUSTER_RUN_DIR"])


class Block(nn.Module):
    """Causal self-attention, then a two-layer net. Each rank of a tensor parallel group computes its own heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_attend, self.norm_think = nn.LayerNorm(width), nn.LayerNorm(width)
        self.by_head, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.by_head(self.norm_attend(x)).unflatten(-1, (-1, 3, x.shape[-1] // HEADS))
        query, key, value = heads.permute(3, 0, 2, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).flatten(2))
        change: Tensor = self.think(self.norm_think(x))
        return x + change


class Transformer(nn.Module):
    """Words (batch, LENGTH) int64 in, scores for each next word (batch, LENGTH, WORDS) out."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        x = self.word(words) + self.place.weight
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.scores(self.norm(x))
        return scores


def main() -> None:
    """Train from the newest checkpoint to step STEPS."""
    backend, plan, steps, save_every, width, layers = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
    pause = float((sys.argv[7:] or ["0"])[0])
    device = joined(backend, alone=plan == "one")
    torch.manual_seed(5)
    model = cut(Transformer(width, layers), plan, device)
    # In a tensor-parallel model some weights are split and some are whole: torch's foreach does not accept this
    # mixture.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    training = muster.Training(FOLDER / "training", save_every=save_every, keep=9, model=model, optimizer=optimizer)
    begin(training.step)
    for (words,) in training.batches(data(), batch=BATCH, steps=steps, device=device):
        words = together(words) if plan == "tp" else words
        loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note(training.step + 1, loss.detach(), plan)
        time.sleep(pause)
        if not save_every and training.step + 1 == steps:
            break
    peak = torch.cuda.max_memory_allocated() / 1e6 if device.type == "cuda" else 0.0
    seen = {"peak_mb": peak, "device": str(device), "weights": sum(weight.numel() for weight in model.parameters())}
    (FOLDER / f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))
    if dist.is_initialized():
        dist.destroy_process_group()


def cut(model: Transformer, plan: str, device: torch.device) -> nn.Module:
    """Put the model on the device as the plan demands.

    FSDP2 moves it block by block, so no GPU gets the whole model.
    """
    if plan == "fsdp":
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    model = model.to(device)
    if plan == "tp":
        return parallelize_module(model, init_device_mesh(device.type, (dist.get_world_size(),)), TENSOR_PLAN)
    return DistributedDataParallel(model) if plan == "ddp" else model


def data() -> TensorDataset:
    """Sequences of words, each a few numbers after the previous one."""
    draw = torch.Generator().manual_seed(7)
    return TensorDataset(torch.randint(0, 4, (SAMPLES, LENGTH + 1), generator=draw).cumsum(1) % WORDS)


def together(share: Tensor) -> Tensor:
    """The samples of all ranks: ranks that compute a layer together need the same, but `batches` gives each its own."""
    shares = [torch.empty_like(share) for _ in range(dist.get_world_size())]
    dist.all_gather(shares, share)
    return torch.cat(shares)


def begin(step: int) -> None:
    """Record that this rank begins, and after which step."""
    _append(FOLDER / f"begun-{os.environ['RANK']}.jsonl", {"pid": os.getpid(), "step": step, "t": time.time()})


def note(step: int, loss: Tensor, plan: str) -> None:
    """Record the loss of the whole batch, on rank 0."""
    if plan in ("ddp", "fsdp"):
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    if os.environ["RANK"] == "0":
        _append(FOLDER / "losses.jsonl", {"step": step, "loss": loss.item(), "t": time.time()})


def _append(path: Path, line: dict[str, float]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
