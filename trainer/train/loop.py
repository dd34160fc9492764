"""The training loop: restore, step, log, evaluate, checkpoint, stop."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Dataset

from muster import exchange
from muster.checkpoint.randomness import seed_step
from muster.data import StreamSampler, cuts, refuse_other_data, share
from muster.errors import Refused, TrainError

from .. import mesh
from ..config import Config
from ..node.agent.limit import start_of, why_stopped
from ..recipe import Recipe, take_batches
from ..run_dir import RankFolder
from ..verdict import Verdict, done, stopped
from . import state
from .checkpoints import Checkpoints
from .environment import Ranks
from .evaluate import evaluate
from .metrics import Meter
from .process_group import Group
from .state import Position
from .step import Step, Stepper
from .weights import Audit, digest


class Training:
    """The training of a run on one rank.

    `say` prints a line on rank 0's console, `say_on_any_rank` on this rank's; `stop_asked` is true after SIGTERM.
    """

    def __init__(
        self,
        config: Config,
        recipe: Recipe,
        data: tuple[Dataset[Any], Dataset[Any]],
        group: Group,
        ranks: Ranks,
        folder: RankFolder,
        say: Callable[[str], None],
        say_on_any_rank: Callable[[str], None],
        stop_asked: Callable[[], bool],
    ) -> None:
        self.config, self.recipe, self.group, self.ranks, self.folder = config, recipe, group, ranks, folder
        self.say, self.stop_asked = say, stop_asked
        self.train_set, self.held_out = data
        self.mesh = mesh.parse(config.mesh, ranks.world)
        refuse_other_data(*map(len, data))  # type: ignore[arg-type]
        self.samples = check_sizes(config, self.mesh.data_world, *data)
        self.micro_batch_sizes = self._micro_batch_sizes()
        self.stepper = Stepper(config, recipe, group, self.mesh, self._any_micro_batch())
        self.position, self.audit = Position(), Audit()
        self.meter = Meter(folder, config.batch, self.samples, config.steps)
        self.checkpoints = Checkpoints(config, self.stepper, group, ranks, folder, say, say_on_any_rank)
        self._sound, self._end_put_off = False, False
        self.evaluated_at = -1
        self.say_next = 0.0

    def run(self) -> Verdict:
        """Train to the last step, or until a stop is requested. Raises TrainError for a fault that the user can fix."""
        config = self.config
        self._restore()
        self._report_plan()
        start = self.position.step
        if self.position.unevaluated:
            self.position = dataclasses.replace(self.position, unevaluated=False)
            self._evaluate_and_save(start == config.steps)
        while self.position.step < config.steps:
            lr = self.stepper.optimizer.param_groups[0]["lr"]
            self._seed()
            result = self.stepper.step(self.stream, self.micro_batch_sizes, self.stop_asked())
            if result.not_finite:
                self._end_not_finite(result)
            self._count_step()
            step = self.position.step
            if step == start + 1:
                self.group.set_timeout(config.timeout)
            self.meter.add(result)
            last = step == config.steps
            if last or step == start + 1 or step % config.log_every == 0:
                self._log(result, lr)
            if result.stop_asked and not last:
                return self._stop()
            self._evaluate_and_save(last)
        return self._finish()

    def rescue(self) -> None:
        """Save the last finished step of a run that breaks off, if this rank has its whole state.

        The rank then ends.
        """
        if self._sound and not self.stepper.updating:
            self.checkpoints.rescue(self.position.step, self._take_after_break)

    def puts_off_end(self) -> bool:
        """Whether a signal came during an update: the loop then ends this rank after the update, with a whole state."""
        self._end_put_off = self.stepper.updating
        return self._end_put_off

    def close(self) -> None:
        """Finish all writes, whether the run succeeded or not."""
        self.checkpoints.close()
        self.meter.close()

    def _restore(self) -> None:
        """Continue from the newest checkpoint, or from step 0."""
        self.position, created = state.restore(self.stepper, self.config, self.ranks, self.folder, self.samples)
        self.checkpoints.continue_after(self.position.step, created)
        self._sound = True
        self.stream = self._stream()
        self.meter.resume()

    def _take(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state of the run at this step, and its summary."""
        return self._state_at(self.position)

    def _take_after_break(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state after the last finished step, if a later step failed, and its summary."""
        self.stepper.undo()
        step = self.position.step
        due = self._is_evaluation_due(step == self.config.steps) and self.evaluated_at != step
        return self._state_at(dataclasses.replace(self.position, unevaluated=due))

    def _state_at(self, position: Position) -> tuple[dict[str, Any], dict[str, Any]]:
        summary = {
            "run": self.folder.path.name,
            "recipe": self.config.recipe,
            "world": self.ranks.world,
            "seed": self.config.seed,
        }
        return state.collect(self.stepper, position, self.config, self.samples), summary

    def _is_evaluation_due(self, last: bool) -> bool:
        every = self.config.eval_every
        return last or bool(every and self.position.step % every == 0)

    def _seed(self) -> None:
        share = self.mesh.data_rank(self.ranks.rank)
        seed_step(self.config.seed, self.position.step, share, self.group.device)

    def _count_step(self) -> None:
        self.position = Position(self.position.step + 1, self.position.consumed + self.config.batch)
        self.stepper.updating = False
        if self._end_put_off:
            os.kill(os.getpid(), signal.SIGTERM)

    def _micro_batch_sizes(self) -> list[int]:
        """The number of samples in each of this rank's micro-batches of a step."""
        low, high = share(self.config.batch, self.mesh.data_world, self.mesh.data_rank(self.ranks.rank))
        # If the model is sharded, the ranks compute each pass together: all of them need as many as the rank with most
        # samples.
        most = high - low if self.mesh.copies else math.ceil(self.config.batch / self.mesh.data_world)
        count = math.ceil(most / self.config.micro_batch) if self.config.micro_batch else 1
        least = self.config.batch // self.mesh.data_world
        if count > least and not self.mesh.copies:
            raise Refused(
                f"--micro-batch {self.config.micro_batch}: on mesh {self.mesh} one rank has {least} samples of "
                f"a step, another has {most}: one of them would have an empty pass",
                f"make --batch a multiple of {self.mesh.data_world}",
            )
        return [end - begin for begin, end in cuts(low, high, count)]

    def _any_micro_batch(self) -> Any:
        indices = [index % self.samples for index in range(self.micro_batch_sizes[-1])]
        return next(take_batches(self.recipe, self.train_set, [indices], self.group.device))

    def _stream(self) -> Iterator[Any]:
        config, share = self.config, self.mesh.data_rank(self.ranks.rank)
        lists = StreamSampler(
            self.samples,
            batch=config.batch,
            micro_batches=len(self.micro_batch_sizes),
            world=self.mesh.data_world,
            rank=share,
            seed=config.seed,
            consumed=self.position.consumed,
        )
        seeds = (config.seed, share, self.position.step * len(self.micro_batch_sizes))
        return take_batches(self.recipe, self.train_set, lists, self.group.device, config.data_workers, seeds)

    def _report_plan(self) -> None:
        config, shares = self.config, self.mesh.data_world
        if not self.ranks.first:
            return
        self.folder.event(
            "plan",
            recipe=config.recipe,
            steps=config.steps,
            start_step=self.position.step,
            batch=config.batch,
            samples=self.samples,
            precision=config.precision,
            mesh=str(self.mesh),
        )
        held_out = len(self.held_out)  # type: ignore[arg-type]
        self.say(
            f"{config.recipe}: {self.samples:,} training and {held_out:,} held-out samples, "
            f"{self.ranks.world} ranks{f' as {self.mesh}' if config.mesh else ''}, {self.group.backend}, "
            f"{config.precision}; global batch {config.batch} = {shares} x {config.batch / shares:g}; "
            f"steps {self.position.step} to {config.steps}"
        )

    def _log(self, result: Step, lr: float) -> None:
        self.meter.write(self.position.step, lr)
        if time.monotonic() >= self.say_next:  # for a person; metrics.jsonl has every line
            self.say(f"step {self.position.step}/{self.config.steps}   loss {result.loss:.4f}")
            self.say_next = time.monotonic() + 2.0

    def _evaluate_and_save(self, last: bool) -> None:
        step, config = self.position.step, self.config
        to_evaluate = self._is_evaluation_due(last)
        to_save = last or (config.checkpoint_every and step % config.checkpoint_every == 0)
        if to_save and self.mesh.copies:
            mine = digest(self.stepper.model.parameters())
            self.folder.event("weights", step=step, digest=mine)  # the control side reports which ranks differ
            if self.audit.spoiled(step, mine):
                self._go_back()
                return
        metric = self._evaluate() if to_evaluate else None
        if to_save:
            self.checkpoints.save(step, metric, self._take)
        if to_evaluate or to_save:
            self.meter.resume()

    def _go_back(self) -> None:
        """Continue from the previous checkpoint.

        A spoiled replica's gradients have since reached all ranks' weights.
        """
        step, self._sound = self.position.step, False
        self.checkpoints.wait()
        self._restore()
        if not self.position.step:
            raise TrainError(
                f"the replicas have different weights at step {step}, and there is no earlier checkpoint on disk",
                "train again: if Muster could tell whose weights were changed, the line above names that rank",
            )
        self.group.set_timeout(self.config.timeout)
        self.say(f"the replicas have different weights at step {step}: all ranks go back to step {self.position.step}")

    def _evaluate(self) -> float:
        self._seed()
        values, samples = evaluate(self.stepper, self.held_out, self.ranks.rank)
        self.evaluated_at = self.position.step
        self.meter.evaluated(self.position.step, values, samples)
        self.say(
            f"step {self.position.step}   held-out "
            + "   ".join(f"{k} {v:.4f}" for k, v in values.items())
            + f"   ({samples} samples)"
        )
        return values.get("accuracy", -values["loss"])

    def _finish(self) -> Verdict:
        if self.evaluated_at != self.position.step:  # resumed with no step left to train
            self._evaluate()
        self._settle("trained to the end, but the last checkpoint is not on disk")
        return done(self.ranks.rank, self.ranks.node, self.position.step)

    def _stop(self) -> Verdict:
        self.folder.event("stopping", step=self.position.step, message="asked to stop: writing a checkpoint")
        self.say(f"asked to stop: writing a checkpoint at step {self.position.step}")
        self.checkpoints.save(self.position.step, None, self._take)
        at = f"stopped at step {self.position.step}"
        words = f"{at}, checkpoint: {self._settle(f'{at}, but its checkpoint failed')}"
        end = stopped(self.ranks.rank, self.ranks.node, self.position.step, words, self.folder.path)
        if why := why_stopped(self.folder.path, start_of(os.environ)):
            return dataclasses.replace(end, message=f"{why}: {words}", cause="")
        return end

    def _settle(self, failed: str) -> str:
        """Wait for the last checkpoint, and return the newest good one. Raises TrainError, starting with `failed`."""
        last = self.checkpoints.settle()
        if last.fault:
            hint = f"the newest good checkpoint: {last.good}"
            raise TrainError(f"{failed}: {last.fault}", hint, culprit=(0, last.node))
        return last.good

    def _end_not_finite(self, result: Step) -> None:
        mine = self.stepper.bad_loss
        bad_losses = exchange.all_of(None if mine is None else (mine, self.ranks.node))
        last_good = self.checkpoints.settle().good
        mean = (result.loss, self.ranks.node)  # if every loss is finite, but their sum is not
        culprits = ((rank, bad) for rank, bad in enumerate(bad_losses) if bad is not None)
        rank, (loss, node) = next(culprits, (self.ranks.rank, mean))
        raise TrainError(
            f"the loss is {loss} on rank {rank} ({node}) at step {self.position.step + 1}; the optimizer did "
            "not take that step",
            f"lower --lr, raise --warmup, or check that rank's data; last good checkpoint: {last_good}",
            culprit=(rank, node),
        )


def check_sizes(config: Config, world: int, train_set: Dataset[Any], held_out: Dataset[Any]) -> int:
    """The number of training samples. Raises Refused if a rank would have no sample, or if no sample is held out."""
    samples, samples_held_out = len(train_set), len(held_out)  # type: ignore[arg-type]
    if samples < world:
        raise Refused(
            f"{samples} training samples for {world} ranks: some ranks would have none",
            "start fewer ranks, or give more data",
        )
    if config.batch < world:
        raise Refused(
            f"--batch {config.batch} for {world} ranks: some ranks would have no sample", f"--batch {world} or more"
        )
    if samples_held_out < 1:
        raise Refused(
            "the recipe's held-out set is empty: nothing would show whether training works", "hold out some samples"
        )
    return samples
