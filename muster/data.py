"""Exactly-once data: a stream of shuffled epochs, the same on all ranks, split into each rank's batches.

The position in the stream is one number: how many samples all ranks together have consumed. It is valid at any world
size, so a run can continue at another world size and neither repeats nor misses a sample. A batch may contain the end
of one epoch and the start of the next: nothing is dropped or padded, and every step has the same number of samples.
This module also moves batches to devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from . import exchange
from .checkpoint.randomness import Seeded
from .errors import Refused


class StreamSampler(DistributedSampler[Any]):
    """A batch sampler for a loader: this rank's sample indices, endlessly, from position `consumed` of the stream.

    It yields one list of dataset indices for each micro-batch. This rank's share of a global batch is `micro_batches`
    lists of nearly equal length. `size` (of the dataset), `batch` (over all ranks) and `consumed` count samples.
    `consumed` is `batch` times the number of optimizer steps: a checkpoint needs no other fact about the data.

    The order of an epoch is the same as DistributedSampler's, a permutation seeded with seed + epoch. This class does
    not pad to a multiple of the world size as DistributedSampler does, because padding repeats samples.
    """

    def __init__(
        self, size: int, *, batch: int, world: int, rank: int, micro_batches: int = 1, seed: int = 0, consumed: int = 0
    ) -> None:
        super().__init__(range(size), num_replicas=world, rank=rank, shuffle=True, seed=seed)  # type: ignore[arg-type]
        self.size, self.batch, self.micro_batches, self.consumed = size, batch, micro_batches, consumed
        self._order: tuple[int, torch.Tensor] | None = None

    def __iter__(self) -> Iterator[list[int]]:
        start = self.consumed
        while True:
            for low, high in cuts(*share(self.batch, self.num_replicas, self.rank), self.micro_batches):
                yield self.indices(start + low, start + high)
            start += self.batch

    def indices(self, start: int, end: int) -> list[int]:
        """The dataset indices at positions [start, end) of the stream."""
        indices: list[int] = []
        while start < end:
            epoch, offset = divmod(start, self.size)
            self.set_epoch(epoch)
            in_epoch = self._epoch_order()[offset : offset + end - start]
            indices += in_epoch.tolist()
            start += len(in_epoch)
        return indices

    def _epoch_order(self) -> torch.Tensor:
        if self._order is None or self._order[0] != self.epoch:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            self._order = (self.epoch, torch.randperm(self.size, generator=generator))
        return self._order[1]


def refuse_other_data(*samples: int, group: ProcessGroup | None = None) -> None:
    """Raise Refused if a rank's datasets differ in their number of `samples`. All ranks call this.

    Such a rank would train on other samples than rank 0 expects.
    """
    everyone = [" + ".join(map(str, theirs)) for theirs in exchange.all_of(samples, group)]
    if other := next((rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]), 0):
        raise Refused(
            f"rank 0 has {everyone[0]} samples, but rank {other} has {everyone[other]}: all ranks must have the "
            "same data",
            "give every host the same files, and every rank the whole dataset",
        )


def share(batch: int, world: int, rank: int) -> tuple[int, int]:
    """The bounds [low, high) of the samples of a global batch that `rank` takes.

    Shares differ by at most one sample.
    """
    return cuts(0, batch, world)[rank]


def cuts(low: int, high: int, count: int) -> list[tuple[int, int]]:
    """Split [low, high) into `count` ranges whose lengths differ by at most one."""
    return [(low + (high - low) * i // count, low + (high - low) * (i + 1) // count) for i in range(count)]


def batches(
    dataset: Dataset[Any],
    indices: Iterable[list[int]],
    *,
    collate: Callable[[list[Any]], Any] | None = None,
    workers: int = 0,
    pin: bool = False,
    seeds: tuple[int, int, int] | None = None,
) -> Iterator[Any]:
    """Collated batches of `dataset` on the CPU, one for each list of `indices`.

    `collate` makes a batch from a list of samples (None: torch's default), `workers` is the number of loader processes,
    `pin` asks for pinned memory, so that copies to a GPU run while the GPU computes. `seeds`: the run's seed, the
    rank's share of the data and the number of the first list; they determine what a loader process draws.

    A TensorDataset is indexed with the whole list: a DataLoader would take each sample alone and stack them again. The
    loader gets a copy of the rank's generator, because it draws a number when it starts, which in a resumed run would
    change the rank's random state.
    """
    if type(dataset) is TensorDataset and collate is None:  # a subclass may change each sample
        for batch_indices in indices:
            batch = dataset[torch.tensor(batch_indices)]
            # A copy from memory that is not pinned waits until the GPU has finished all its queued work.
            yield tuple(part.pin_memory() for part in batch) if pin else batch
        return
    if workers and seeds:
        *place, first = seeds
        dataset, indices = Seeded(dataset, *place), enumerate(indices, first)  # type: ignore[assignment]
    generator = torch.Generator()
    generator.set_state(torch.get_rng_state())
    loader = DataLoader(
        dataset,
        batch_sampler=indices,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=pin,
        generator=generator,
    )
    yield from loader


def to_device(batch: Any, device: torch.device) -> Any:
    """`batch` with every tensor on `device`, also those inside lists, tuples and dicts."""
    return batch if device.type == "cpu" else mapped(batch, lambda part: part.to(device, non_blocking=True))


def mapped(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to every tensor in `batch`, and to the batch types of other libraries that have a method `to`."""
    if hasattr(batch, "to"):
        return change(batch)
    if isinstance(batch, dict):
        return {key: mapped(value, change) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        # A namedtuple's constructor does not accept an iterator.
        return getattr(batch, "_make", type(batch))(mapped(value, change) for value in batch)
    return batch
