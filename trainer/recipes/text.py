"""Recipe `text`: predict the next byte of the text in any folder, with a small causal transformer.

Without `--data` it reads the sources of the Python standard library, which every machine that can run it has. Files are
read in sorted order, so nodes with the same folder read the same bytes.
"""

from __future__ import annotations

import math
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn import functional as F
from torch.utils.data import Dataset

from muster.errors import Refused

DEFAULTS = {"steps": 300, "batch": 24, "lr": 2e-3}
WINDOW = 128  # bytes in a sample
WIDTH, HEADS, LAYERS = 128, 4, 3
STDLIB_BYTES = 4_000_000  # enough for many times the default steps; an evaluation takes seconds
# On many hosts only root can read the first one, and neither folder contains text.
NO_TEXT = frozenset({"lost+found", "__pycache__"})
NOT_LIBRARY = NO_TEXT | {"site-packages", "dist-packages", "test", "tests", "idle_test"}


class Block(nn.Module):
    """Causal self-attention, then a two-layer net, each added to its input. (batch, bytes, WIDTH) in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attend, self.norm_think = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        # The rows of one head's query, key and value are adjacent, so that ranks can share the heads (tensor_plan).
        self.by_head, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.by_head(self.norm_attend(x)).unflatten(-1, (-1, 3, WIDTH // HEADS))
        query, key, value = heads.permute(3, 0, 2, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).flatten(2))
        change: Tensor = self.think(self.norm_think(x))
        return x + change


class ByteTransformer(nn.Module):
    """Bytes (batch, up to WINDOW) int64 in, scores of each next byte (batch, bytes, 256) out. 0.64 M weights."""

    def __init__(self) -> None:
        super().__init__()
        self.byte, self.place = nn.Embedding(256, WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        # The byte embedding is also the output layer; with torch's N(0, 1) the first scores would be far too large.
        for table in (self.byte, self.place):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        place = self.place(torch.arange(text.shape[1], device=text.device))
        return F.linear(self.norm(self.blocks(self.byte(text) + place)), self.byte.weight)


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Text in windows of WINDOW bytes. An item: the bytes (WINDOW,) and the byte after each (WINDOW,), int64."""

    def __init__(self, text: bytes) -> None:
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def __len__(self) -> int:
        return (len(self.text) - 1) // WINDOW

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.text[index * WINDOW : (index + 1) * WINDOW + 1].long()
        return window[:-1], window[1:]


def model() -> nn.Module:
    """A transformer over bytes: no vocabulary to build or ship."""
    return ByteTransformer()


def tensor_plan(model: nn.Module) -> dict[str, Any]:
    """The ranks share the heads of each block, and the width of the net after them; at most HEADS ranks."""
    return {
        "blocks.*.by_head": ColwiseParallel(),
        "blocks.*.mix": RowwiseParallel(),
        "blocks.*.think.0": ColwiseParallel(),
        "blocks.*.think.2": RowwiseParallel(),
    }


def datasets(data: Path | None) -> tuple[Windows, Windows]:
    """The first 95 % of the text, and the last 5 %. Raises Refused if the folder has too little text."""
    text = _read_stdlib() if data is None else _read_folder(data)
    held_out = len(text) // 20
    if held_out <= WINDOW:
        where = "the Python standard library" if data is None else data
        hint = "give --data a folder with more text; the recipe skips hidden files and files with a zero byte"
        raise Refused(f"recipe text: {where}: {len(text):,} bytes of text, but it needs {20 * (WINDOW + 1):,}", hint)
    return Windows(text[:-held_out]), Windows(text[-held_out:])


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross entropy, in nats per byte."""
    return _cross_entropy(model(batch[0]), batch[1]).mean()


def metrics(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """The metrics of each window, shape (batch,).

    `bits_per_byte` (lower is better) and `accuracy`, the share of correct guesses.
    """
    scores, following = model(batch[0]), batch[1]
    bits = _cross_entropy(scores, following).mean(1) / math.log(2)
    return {"bits_per_byte": bits, "accuracy": (scores.argmax(-1) == following).float().mean(1)}


def _cross_entropy(scores: Tensor, following: Tensor) -> Tensor:
    """The cross entropy of each byte in nats, (batch, bytes); computed in float32 even under autocast."""
    return F.cross_entropy(scores.float().transpose(1, 2), following, reduction="none")


def _read_stdlib() -> bytes:
    """The first STDLIB_BYTES of the standard library's sources; empty in an image without these sources."""
    text = bytearray()
    for path in _files(Path(sysconfig.get_path("stdlib")), NOT_LIBRARY):
        if len(text) >= STDLIB_BYTES:
            break
        if path.suffix == ".py":
            text += path.read_bytes()
    return bytes(text[:STDLIB_BYTES])


def _read_folder(folder: Path) -> bytes:
    """The text of every text file below the folder."""
    texts = (path.read_bytes() for path in _files(folder))
    return b"".join(text for text in texts if b"\0" not in text)


def _files(root: Path, skipped: frozenset[str] = NO_TEXT) -> Iterator[Path]:
    """Regular files below `root`, in the same order on every machine, without hidden ones and `skipped` folders."""
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        # os.walk reads this list afterwards to choose the next folders and their order.
        subfolders[:] = sorted(name for name in subfolders if name[0] != "." and name not in skipped)
        paths = (Path(folder, name) for name in sorted(names) if name[0] != ".")
        yield from (path for path in paths if path.is_file())


def _refuse(fault: OSError) -> None:
    """Refuse a folder that cannot be listed: skipping it would hide its files, and other hosts may train on them."""
    raise fault
