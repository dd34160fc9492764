"""Exactly-once data: an endless stream of shuffled epochs, cut into global batches, each shared out among the ranks.

The position in the stream is one number, the samples all ranks have consumed together. It means the same at any
world size, so a run can go on at another one and repeats nothing and misses nothing. A batch may straddle two epochs:
nothing is dropped, nothing is padded, every step has the same number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset, default_collate


class StreamSampler(DistributedSampler[Any]):
    """This rank's sample indices, endlessly from position `consumed` of the stream on: the batch sampler of a loader.

    It gives a list of dataset indices for each micro-batch: `pieces` of them, as equal as can be, are this rank's share
    of a global batch. `size` (of the dataset), `batch` (over all ranks) and `consumed` count samples. `consumed` is
    `batch` times the optimizer steps done: all that a checkpoint has to hold of the data.

    The order of an epoch is DistributedSampler's own (a permutation seeded with seed + epoch); its padding to a
    multiple of the world size, which repeats samples, is not used.
    """

    def __init__(
        self, size: int, *, batch: int, world: int, rank: int, pieces: int = 1, seed: int = 0, consumed: int = 0
    ) -> None:
        super().__init__(range(size), num_replicas=world, rank=rank, shuffle=True, seed=seed)  # type: ignore[arg-type]
        self.size, self.batch, self.pieces, self.consumed = size, batch, pieces, consumed
        self._order: tuple[int, torch.Tensor] | None = None

    def __iter__(self) -> Iterator[list[int]]:
        start = self.consumed
        while True:
            for low, high in cuts(*share(self.batch, self.num_replicas, self.rank), self.pieces):
                yield self.indices(start + low, start + high)
            start += self.batch

    def indices(self, start: int, end: int) -> list[int]:
        """Dataset indices at positions [start, end) of the stream."""
        found: list[int] = []
        while start < end:
            epoch, offset = divmod(start, self.size)
            self.set_epoch(epoch)
            taken = self._epoch_order()[offset : offset + end - start]
            found += taken.tolist()
            start += len(taken)
        return found

    def _epoch_order(self) -> torch.Tensor:
        if self._order is None or self._order[0] != self.epoch:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            self._order = (self.epoch, torch.randperm(self.size, generator=generator))
        return self._order[1]


def share(batch: int, world: int, rank: int) -> tuple[int, int]:
    """Bounds [low, high) of the samples of a global batch that `rank` takes; shares differ by one at most."""
    return batch * rank // world, batch * (rank + 1) // world


def cuts(low: int, high: int, pieces: int) -> list[tuple[int, int]]:
    """[low, high) in `pieces` runs as equal as can be."""
    return [(low + (high - low) * i // pieces, low + (high - low) * (i + 1) // pieces) for i in range(pieces)]


def batches(
    dataset: Dataset[Any],
    indices: Iterable[list[int]],
    *,
    collate: Callable[[list[Any]], Any] | None = None,
    workers: int = 0,
    pin: bool = False,
) -> Iterator[Any]:
    """Collated batches of `dataset` on the CPU, one for each list of `indices`.

    `collate` makes a batch of a list of samples (None: torch's own), `workers` is the number of loader processes, `pin`
    asks for pinned memory, from which copies to a GPU run beside the training.

    Tensors in memory are cut out directly: a DataLoader would take every sample out alone and stack them again.
    The loader gets a generator of its own: it draws a number at its start, which would shift the rank's random state
    of a resumed run against one that never stopped.
    """
    if isinstance(dataset, TensorDataset) and collate is None:
        for chosen in indices:
            yield dataset[torch.tensor(chosen)]
        return
    loader = DataLoader(
        dataset,
        batch_sampler=indices,
        collate_fn=collate or default_collate,
        num_workers=workers,
        pin_memory=pin,
        generator=torch.Generator().manual_seed(0),
    )
    yield from loader


def to_device(batch: Any, device: torch.device) -> Any:
    """`batch` with every tensor in it on `device`; lists, tuples and dicts are followed."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
