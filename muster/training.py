"""A plain training loop that neither repeats nor misses a sample: `muster.Training`, and what it refuses.

    training = muster.Training(model=model, optimizer=optimizer)         # continues from the newest checkpoint
    for images, labels in training.batches(dataset, batch=256, steps=10_000):
        ...                                                               # one optimizer step, as before
        training.log(loss=loss)

It needs no other part of Muster: the loop runs under plain `python` and plain `torchrun` too.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from numbers import Real
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset

from . import ddp, exchange
from .agreement import Agreement, cpu_group
from .checkpoint import WriteResult, open_writer
from .checkpoint import trained_parts as checkpoint_parts
from .checkpoint.randomness import random_state, restore_random_state, seed_all
from .checkpoint.search import newest_of_all_ranks
from .checkpoint.trained_parts import Part
from .data import StreamSampler, batches, refuse_other_data, to_device
from .errors import CheckpointError, Refused, TrainError
from .metrics import Metrics
from .stop import Stop

_OWN = ("rng", "position", "samples", "seed")
_LOG_SECONDS = 0.5


class Training:
    """The parts of a training, its position in the data, and the checkpoints of both.

    `parts` are the model, the optimizer and everything else with a `state_dict` that the training needs to continue. If
    `folder` has a checkpoint on the disk of any rank, all ranks continue from the newest usable one. After every
    `save_every` steps, and at the end, rank 0 writes a checkpoint in the background; the newest `keep` checkpoints are
    kept. `seed` determines the order of the data. All ranks build this at the same place, after `init_process_group`.

    Raises Refused for a use that cannot work, and CheckpointError if the checkpoint does not fit the parts.
    """

    def __init__(
        self, folder: str | Path = "training", *, save_every: int = 500, keep: int = 3, seed: int = 0, **parts: Part
    ) -> None:
        if not all(isinstance(each, Real) and each >= 0 for each in (save_every, keep)):
            hint = "save_every=0 saves only at the end, keep=1 keeps only the newest checkpoint"
            raise Refused(f"muster.Training(save_every={save_every}, keep={keep})", hint)
        _check(parts)
        self.step = 0
        self._consumed = 0
        self._folder, self._parts, self._save_every, self._seed = Path(folder), parts, save_every, seed
        self._checkpoints = self._folder / "checkpoints"
        self._group = cpu_group()
        self._rank, self._world = exchange.rank_and_world(self._group)
        self._restored: dict[str, Any] = {}
        self._device = _device(parts)
        created = self._restore()
        self._writer = open_writer(self._checkpoints, keep, False, _report, parts, self._rank == 0)
        if self._writer:
            self._writer.continue_after(created)
        self._metrics = Metrics(self._folder) if self._rank == 0 else None
        self._values: tuple[int, dict[str, Any]] | None = None
        self._log_next = 0.0
        self._saved = -1
        stop = Stop()
        stop.listen()
        self._agreement = Agreement(stop, self._group)
        for part in parts.values():
            # With two ranks this is not needed: two numbers have the same sum in either order.
            if isinstance(part, DistributedDataParallel) and self._world > 2:
                ddp.settle(part)

    def batches(
        self,
        dataset: Dataset[Any],
        *,
        batch: int,
        steps: int | None = None,
        epochs: int | None = None,
        micro_batches: int = 1,
        device: torch.device | str | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
    ) -> Iterator[Any]:
        """This rank's batches, from the position of the checkpoint to optimizer step `steps`, or through `epochs`.

        `batch` counts the samples of one optimizer step on all ranks together; each rank gets a share, and the shares
        differ by at most one sample. With `micro_batches`, a rank gets its share in that many pieces: the loop's body
        runs for each piece, and steps the optimizer after the last one. Every epoch has a new order, and a batch may
        contain the end of one epoch and the start of the next. `collate` and `workers` have the DataLoader's meaning.
        Tensors are moved to `device` from memory that is not pinned, so the copy waits for the GPU's queued work.

        SIGTERM or Ctrl-C on any rank ends the loop on all ranks after the same step, with a checkpoint; then this
        raises SystemExit with code 75. Raises Refused if the ranks or the data do not fit, TrainError if the last
        checkpoint could not be written.
        """
        size = self._check_data(dataset, batch, micro_batches)
        if (steps is None) == (epochs is None):
            raise Refused("batches() needs either steps or epochs", "batches(dataset, batch=256, epochs=3)")
        # Samples that an earlier start consumed with another batch size count, too.
        last = steps if steps is not None else self.step - (self._consumed - (epochs or 0) * size) // batch
        sampler = StreamSampler(
            size,
            batch=batch,
            world=self._world,
            rank=self._rank,
            micro_batches=micro_batches,
            seed=self._seed,
            consumed=self._consumed,
        )
        seeds = (self._seed, self._rank, self.step * micro_batches)
        stream = batches(dataset, sampler, collate=collate, workers=workers, seeds=seeds)
        self._restore_randomness()
        try:
            self._finishes = False
            while self.step < last and not self._finishes:
                for _ in range(micro_batches):
                    samples = next(stream)
                    yield samples if device is None else to_device(samples, torch.device(device))
                self.step += 1
                self._consumed += batch
                if self._agreement.all_stop():
                    self._end(size)
                    _say(f"stopped at step {self.step}, with a checkpoint in {self._folder}")
                    Stop.leave()
                if self._save_every and self.step % self._save_every == 0:
                    self._save(size)
            self._end(size)
        finally:  # also after `break`
            self._finish_writes()

    def finish(self) -> None:
        """End the loop after this step, with a checkpoint: for early stopping. All ranks call it in the same step."""
        self._finishes = True

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return int(self._consumed // self._restored.get("samples", 1))

    def log(self, **values: Any) -> None:
        """Record numbers for this step, such as `loss=loss`: rank 0 writes its own numbers twice a second.

        They go to `metrics.jsonl` and TensorBoard events in the folder. A tensor on a GPU is read only when it is
        written.
        """
        self._values = (self.step + 1, values)
        if self._metrics and time.monotonic() >= self._log_next:
            self._write_values()
            self._log_next = time.monotonic() + _LOG_SECONDS

    def _restore(self) -> float:
        """Continue from the newest checkpoint; returns when it was written, or 0 if there is none."""
        looks = os.environ.get("LOCAL_RANK", "0") == "0"
        search = newest_of_all_ranks(self._checkpoints, looks=looks, group=self._group)
        for damaged in search.damaged:
            _say(f"a damaged checkpoint is skipped: {damaged.reason}")
        if not (search.path and search.state):
            return 0.0
        if not {*_OWN} <= search.state.keys() or search.state["seed"] != self._seed:
            raise CheckpointError(
                f"{search.path}: not a checkpoint of muster.Training with seed {self._seed}",
                "give it its own folder",
            )
        checkpoint_parts.apply(search.path, search.state, self._parts, search.shards)
        self.step, self._consumed = search.state["position"]["step"], search.state["position"]["consumed"]
        self._restored = {name: search.state[name] for name in ("rng", "samples")}
        _say(f"continues at step {self.step} from {search.path}")
        return search.created

    def _restore_randomness(self) -> None:
        """Restore the generators before the first batch.

        What the script draws until then is not part of the training.
        """
        saved = self._restored.pop("rng", [])
        if self._rank < len(saved):
            restore_random_state(saved[self._rank], self._device)
        elif saved:  # the world grew
            seed_all((self._seed * 1_000_003 + self.step * 1009 + self._rank) % 2**31)

    def _check_data(self, dataset: Dataset[Any], batch: int, micro_batches: int) -> int:
        if isinstance(dataset, DataLoader):
            raise Refused(
                "batches() takes the dataset, but got a DataLoader",
                "training.batches(loader.dataset, batch=..., collate=..., workers=...)",
            )
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise Refused(
                "the dataset is iterable or has no length, so there is no position in it to keep",
                "give it a map-style dataset",
            )
        size = len(dataset)
        if batch < self._world:
            raise Refused(
                f"batch={batch} for {self._world} ranks: some ranks would get no sample", f"batch={self._world}"
            )
        share = batch // self._world
        if not 1 <= micro_batches <= share:
            raise Refused(
                f"micro_batches={micro_batches}, but a rank has only {share} samples of batch={batch}",
                f"micro_batches={share} at most",
            )
        refuse_other_data(size, group=self._group)
        if not size:
            raise Refused("the dataset is empty")
        if (then := self._restored.get("samples", size)) != size:
            raise CheckpointError(
                f"{self._folder}: the dataset had {then:,} samples when it was saved and has {size:,} now: "
                "the saved position is not valid",
                "give it the same data, or another folder",
            )
        self._restored["samples"] = size
        return size

    def _save(self, size: int) -> None:
        rngs = exchange.gather(random_state(self._device), self._group)
        if self._writer:
            state = {
                **checkpoint_parts.collect(self._parts),
                "rng": rngs,
                "position": {"step": self.step, "consumed": self._consumed},
                "samples": size,
                "seed": self._seed,
            }
            try:
                self._writer.submit(self.step, state, None, {"world": self._world})
            except TypeError as error:
                raise TrainError(
                    f"muster.Training: {error}", "give it parts whose state consists of tensors and plain values"
                ) from error
        self._saved = self.step

    def _end(self, size: int) -> None:
        """Save the last step if it is not saved yet; all ranks wait until the checkpoint is on the disk."""
        self._agreement.settle()
        if self._saved != self.step:
            self._save(size)
        if fault := exchange.broadcast(self._finish_writes(), group=self._group):
            raise TrainError(f"the last checkpoint is not on the disk: {fault}")

    def _finish_writes(self) -> str:
        """Wait for checkpoints and write the last numbers; returns the last checkpoint's error, or an empty text."""
        self._write_values()
        if self._metrics:
            self._metrics.flush()
        try:
            if self._writer:
                self._writer.wait()
        except TrainError as error:
            return error.message
        return ""

    def _write_values(self) -> None:
        if self._metrics and self._values:
            step, values = self._values
            numbers = {
                name: float(value.detach() if isinstance(value, torch.Tensor) else value)
                for name, value in values.items()
            }
            self._metrics.add(step, **numbers)
            self._values = None


def _check(parts: dict[str, Part]) -> None:
    if not parts:
        raise Refused("muster.Training has no parts", "muster.Training(model=model, optimizer=optimizer)")
    for name, part in parts.items():
        if name in _OWN or not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise Refused(
                f"muster.Training({name}=...): {'that name is taken' if name in _OWN else 'it has no state_dict'}",
                "give it the model, the optimizer, and whatever else has a state",
            )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        raise Refused("muster.Training before init_process_group", "build it after dist.init_process_group()")
    if any(_is_tensor_parallel(part) for part in parts.values() if isinstance(part, torch.nn.Module)):
        warnings.warn(
            "muster.Training: the model is tensor parallel; batches() gives each rank its own samples, but the "
            "ranks of a tensor-parallel group need the same ones: gather them before the forward pass",
            stacklevel=3,
        )


def _is_tensor_parallel(model: torch.nn.Module) -> bool:
    """Whether a weight is split in more ways than by FSDP2, which splits it along one dimension of a mesh."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # its import takes time, and a script that uses it has imported it
    cuts = 1 if fsdp and any(isinstance(module, fsdp.FSDPModule) for module in model.modules()) else 0
    weights = (weight for weight in model.parameters() if isinstance(weight, DTensor))
    return any(sum(not place.is_replicate() for place in weight.placements) > cuts for weight in weights)


def _device(parts: dict[str, Part]) -> torch.device:
    """The device of the model; the state of that device's random generator is saved."""
    models = (part for part in parts.values() if isinstance(part, torch.nn.Module))
    return next((parameter.device for model in models for parameter in model.parameters()), torch.device("cpu"))


def _report(written: WriteResult) -> None:
    if written.error:
        _say(f"there is no checkpoint of step {written.step}, but the previous one is intact: {written.error.message}")


def _say(words: str) -> None:
    if exchange.rank_and_world()[0] == 0:
        print(f"muster: {words}", file=sys.stderr)
