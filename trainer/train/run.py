"""One rank's run, from its checked arguments to its exit code: seed, group, folder, data, training, verdict."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from muster import exchange
from muster.checkpoint import randomness
from muster.errors import FAILED, TrainError
from muster.files import read_lines, replace
from muster.reserve import note
from muster.stop import Stop

from .. import recipe as recipes
from .. import verdict
from ..config import Config
from ..node.agent import handover
from ..node.ending.peer_errors import error_reports_lost_peer
from ..node.rank.failure import masked
from ..node.variables import WRITTEN_DOWN
from ..run_dir import RankFolder
from ..verdict import Verdict, VerdictStore
from .ending.stack_samples import stack_samples
from .ending.stuck import ended_when_stuck
from .environment import Ranks
from .loop import Training
from .process_group import Group, joined

_FRUITLESS_STARTS = 5


@dataclass
class Console:
    """Prints lines for a person to the console; its descriptor stays open when the output is redirected to the log."""

    rank: int
    descriptor: int = 2

    def say(self, line: str) -> None:
        """Print a line on rank 0 only."""
        if self.rank == 0:
            self.say_on_any_rank(line)

    def say_on_any_rank(self, line: str) -> None:
        """Print a line on every rank that calls this."""
        with suppress(OSError):  # the reader is gone, or the disk is full
            os.write(self.descriptor, (line + "\n").encode(errors="replace"))


def run(config: Config, ranks: Ranks) -> int:
    """Join the other ranks, train, and agree on the verdict. Returns an exit code from contract.md.

    If another rank crashed and left no reason, this rank ends with code 1 and no verdict, so that torchrun may start
    the ranks again. Every other end is final.
    """
    console = Console(ranks.rank)
    try:
        with joined(config, ranks) as group:
            verdicts = VerdictStore(group.store, ranks.rank, ranks.world)
            try:
                folder = _open_folder(config, ranks, group, console)
            except OSError as fault:  # a failed write's error has no file name
                raise TrainError(f"{fault.filename or 'the run folder'}: {fault.strerror}") from fault
            try:
                end = _train(config, ranks, group, folder, console)
            except Exception as fault:
                verdict_of_fault = _judge(fault, ranks, verdicts, folder)
                if verdict_of_fault is None:
                    raise
                end = verdict_of_fault
            Stop.ignore_signals()
            end = verdicts.publish(end)
            verdict.record(end, folder, ranks.local_rank)
        verdicts.linger()
    except Exception as fault:
        if error_reports_lost_peer(fault):
            _end_without_verdict(fault)
        known = fault if isinstance(fault, TrainError) else TrainError(f"{type(fault).__name__}: {fault}")
        if known is not fault:
            console.say_on_any_rank(traceback.format_exc())
        end = verdict.publish_before_training(known, ranks.rank, str(ranks.local_rank))
    _print_end(end, console)
    # An agent reads the verdict itself; another exit code would only make torchrun start this rank again.
    return 0 if os.environ.get("MUSTER_OUTCOME_DIR") else end.code


def _end_without_verdict(fault: Exception) -> NoReturn:
    words = str(fault).strip()
    # The message does not name the error's type: a victim's error may be read before anybody reports the cause.
    print(f"another rank was lost: {words}", file=sys.stderr)
    if agent := os.environ.get("MUSTER_OUTCOME_DIR"):
        note(Path(agent), pid=os.getpid(), error=words, victim=True)
    # All files are written. A normal exit would spend another second in torch's teardown, and torchrun waits for the
    # exit before it starts the ranks again.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(FAILED)


def _train(config: Config, ranks: Ranks, group: Group, folder: RankFolder, console: Console) -> Verdict:
    stop = Stop()
    stop.listen()
    attempt = _count_starts(folder)
    folder.event(
        "started",
        attempt=attempt,
        pid=os.getpid(),
        host=socket.gethostname(),
        world=ranks.world,
        device=str(group.device),
        backend=group.backend,
    )
    randomness.seed_all(config.seed)  # so that every rank has the same weights at any world size
    training: Training | None = None
    with stack_samples(ranks.local_rank, lambda: training.position.step if training else 0):
        recipe = recipes.load(config.recipe)
        data = recipes.build_datasets(recipe, Path(config.data) if config.data else None)
        training = Training(
            config, recipe, data, group, ranks, folder, console.say, console.say_on_any_rank, lambda: stop.asked
        )
        stop.before_restart = partial(_before_restart, training)
        try:
            with ended_when_stuck(stop, partial(_end_stuck, training)):
                return training.run()
        except Exception as fault:
            if error_reports_lost_peer(fault):
                training.rescue()
            raise
        finally:
            training.close()


def _before_restart(training: Training) -> bool:
    """Whether torchrun's SIGTERM may end this rank now: not between an update and the count of its step."""
    if training.puts_off_end():
        return False
    training.rescue()
    return True


def _end_stuck(training: Training) -> None:
    if _before_restart(training):
        _end_without_verdict(RuntimeError("torch is still waiting for it in a call"))


def _open_folder(config: Config, ranks: Ranks, group: Group, console: Console) -> RankFolder:
    """Open the run folder, the same on all ranks, and redirect the output to it.

    Without MUSTER_RUN_DIR, rank 0 makes a new one.
    """
    path = os.environ.get("MUSTER_RUN_DIR") or (_new_folder(config) if ranks.first else "")
    folder = RankFolder(Path(exchange.broadcast(path)), ranks.rank, ranks.node, ranks.file, masked)
    console.descriptor = folder.take_output()
    if ranks.first:
        replace(folder.path / "config.json", json.dumps(asdict(config), indent=1))
        replace(folder.path / "environment.json", json.dumps(_environment(group), indent=1))
    return folder


def _new_folder(config: Config) -> str:
    stem = f"{time.strftime('%Y-%m-%d-%H%M')}-{re.sub(r'[^A-Za-z0-9_-]', '-', Path(config.recipe).stem)}"
    for name in (stem, *(f"{stem}-{n}" for n in range(2, 1000))):
        path = Path("runs") / name
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as fault:  # another user's folder, or a read-only one
            raise TrainError(
                f"{fault.filename}: {fault.strerror}", "go to a folder in which you can write: runs/ is created there"
            ) from fault
        return str(path)
    raise TrainError(f"runs/{stem}: there are 999 folders with this name", "remove some of them")


def _environment(group: Group) -> dict[str, Any]:
    no_secrets = os.environ.keys() - handover.secret_names(os.environ)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name(group.device) if group.device.type == "cuda" else None,
        "system": platform.platform(),
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "variables": {name: os.environ[name] for name in sorted(no_secrets) if name.startswith(WRITTEN_DOWN)},
    }


def _count_starts(folder: RankFolder) -> int:
    """How often this rank started before. Raises TrainError if its last five starts died without a single step."""
    kinds = [line.get("kind") for line in read_lines(folder.events)]
    # A start that ended with a verdict did not die: a person has read the verdict since, and started the run again.
    last = max((i for i, kind in enumerate(kinds) if kind in ("step", "outcome")), default=-1)
    fruitless = kinds[last + 1 :].count("started")
    if fruitless >= _FRUITLESS_STARTS:
        raise TrainError(
            f"the ranks started {fruitless} times without a single step: Muster gives up",
            f"{folder.path}/logs has the last output of each rank",
        )
    return kinds.count("started")


def _judge(fault: Exception, ranks: Ranks, verdicts: VerdictStore, folder: RankFolder) -> Verdict | None:
    """The verdict that `fault` means for the run; None if another rank was lost and published no reason."""
    known = fault
    if not isinstance(known, TrainError):
        if error_reports_lost_peer(fault):
            print(f"another rank was lost: {fault}", file=sys.stderr)
            return verdicts.poll()
        hint = f"the traceback is in {folder.path}/logs/rank-{folder.file}.log"
        if isinstance(fault, torch.OutOfMemoryError):
            hint = f"lower --micro-batch (the global batch stays); {hint}"
        known = TrainError(f"{type(fault).__name__}: {fault}", hint)
    traceback.print_exc()  # the traceback goes to the rank's log, and the console gets the message
    return verdict.failed(ranks.rank, ranks.node, _last_step(folder), known)


def _last_step(folder: RankFolder) -> int:
    return max((int(line["step"]) for line in read_lines(folder.events) if line.get("kind") == "step"), default=0)


def _print_end(end: Verdict, console: Console) -> None:
    if not end.message:
        console.say(f"{end.verdict} at step {end.step}")
        return
    label = "stopped" if end.verdict == "stopped" else "error"
    console.say(f"{label}: {end.node} (rank {end.rank}): {end.message}")
    if end.hint:
        console.say(f"hint: {end.hint}")
