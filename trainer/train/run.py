"""One rank's run between its arguments and its exit code: group, folder, data, training, verdict."""

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
from typing import Any

import torch

from muster.checkpoint import randomness
from muster.errors import FAILED, TrainError
from muster.files import read_lines, replace, surely
from muster.stop import Stop

from .. import recipe as recipes
from .. import verdict
from ..config import Config
from ..node import handover
from ..node.peer_errors import lost_peer
from ..run_dir import RankFolder
from ..verdict import Court, Verdict
from . import exchange
from .environment import Ranks
from .loop import Training
from .process_group import Group, joined

_FRUITLESS_STARTS = 5


@dataclass
class Console:
    """Where a line for a person goes: the descriptor that was the console before the log took it over."""

    rank: int
    descriptor: int = 2

    def say(self, line: str) -> None:
        """One line from rank 0."""
        if self.rank == 0:
            self.always(line)

    def always(self, line: str) -> None:
        """One line from any rank: an error."""
        with suppress(OSError):  # nobody reads on, or the disk takes no more
            os.write(self.descriptor, (line + "\n").encode(errors="replace"))


def run(config: Config, ranks: Ranks) -> int:
    """Join the others, train, and agree on how it ended. Returns the exit code of docs/contract.md.

    A crash of another rank, of which nobody knows the reason, ends this one with code 1 and no verdict: it may be
    tried again. Everything else is final.
    """
    console = Console(ranks.rank)
    try:
        with joined(config, ranks) as group:
            court = Court(group.store, ranks.rank, ranks.world)
            folder = _open_folder(config, ranks, group, console)
            try:
                found = _train(config, ranks, group, folder, console)
            except Exception as fault:
                judged = _judge(fault, ranks, court, folder)
                if judged is None:
                    raise
                found = judged
            Stop.deafen()
            found = court.post(found)
            verdict.record(found, folder, ranks.local_rank)
        court.leave()
    except Exception as fault:
        if lost_peer(fault):
            words = str(fault).strip()
            console.always(f"rank {ranks.rank} ({ranks.node}): another rank went away: {words}")
            if agent := os.environ.get("MUSTER_OUTCOME_DIR"):
                surely(partial(replace, Path(agent) / f"{ranks.local_rank}.lost", words), Path(agent))
            # Everything is written. Python would take another second to take torch down, and torchrun waits for
            # that before it brings the ranks back.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(FAILED)
        known = fault if isinstance(fault, TrainError) else TrainError(f"{type(fault).__name__}: {fault}")
        if known is not fault:
            console.always(traceback.format_exc())
        found = verdict.failed(ranks.rank, ranks.node, 0, known)
        named = os.environ.get("MUSTER_RUN_DIR")
        verdict.publish(found, Path(named) if named else None, f"{ranks.node}-{ranks.local_rank}")
    _tell(found, console)
    # Under an agent the verdict is told already; a bad exit code would only make torchrun start this rank again.
    return 0 if os.environ.get("MUSTER_OUTCOME_DIR") else found.code


def _train(config: Config, ranks: Ranks, group: Group, folder: RankFolder, console: Console) -> Verdict:
    stop = Stop()
    stop.listen(ranks.local_rank)
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
    randomness.seed_all(config.seed)  # the same weights on every rank at any world size
    recipe = recipes.load(config.recipe)
    data = recipes.build_datasets(recipe, Path(config.data) if config.data else None)
    training = Training(config, recipe, data, group, ranks, folder, console.say, lambda: stop.asked)
    try:
        return training.run()
    finally:
        training.close()


def _open_folder(config: Config, ranks: Ranks, group: Group, console: Console) -> RankFolder:
    """The run folder, the same on all ranks, named by rank 0 if need be; this rank prints into it from now on."""
    named = os.environ.get("MUSTER_RUN_DIR") or (_new_folder(config) if ranks.first else "")
    folder = RankFolder(Path(exchange.broadcast(named)), ranks.rank, ranks.node)
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
        return str(path)
    raise TrainError(f"runs/{stem}: 999 folders of that name exist", "remove some")


def _environment(group: Group) -> dict[str, Any]:
    shown = os.environ.keys() - handover.names(os.environ)
    prefixes = ("PET_", "MUSTER_", "NCCL_", "GLOO_", "OMP_", "CUDA_", "TORCH_", "MASTER_", "WORLD_SIZE")
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name(group.device) if group.device.type == "cuda" else None,
        "system": platform.platform(),
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "variables": {name: os.environ[name] for name in sorted(shown) if name.startswith(prefixes)},
    }


def _count_starts(folder: RankFolder) -> int:
    """How often this rank began before. Raises TrainError when the last starts did not bring a single step."""
    kinds = [line.get("kind") for line in read_lines(folder.path / "ranks" / f"rank-{folder.rank}.jsonl")]
    last_step = max((i for i, kind in enumerate(kinds) if kind == "step"), default=-1)
    fruitless = kinds[last_step + 1 :].count("started")
    if fruitless >= _FRUITLESS_STARTS:
        raise TrainError(
            f"started {fruitless} times without a single step: giving up",
            f"{folder.path}/logs has what each rank said last",
        )
    return kinds.count("started")


def _judge(fault: Exception, ranks: Ranks, court: Court, folder: RankFolder) -> Verdict | None:
    """What `fault` means for the run; None: another rank was lost and nobody said why."""
    if isinstance(fault, TrainError):
        traceback.print_exc()  # into this rank's log; the console gets the sentence
        return verdict.failed(ranks.rank, ranks.node, _last_step(folder), fault)
    if lost_peer(fault):
        print(f"another rank went away: {fault}", file=sys.stderr)
        return court.heard()
    traceback.print_exc()
    kind = type(fault).__name__
    hint = f"the traceback is in {folder.path}/logs/rank-{ranks.rank}.log"
    if isinstance(fault, torch.OutOfMemoryError):
        hint = f"lower --micro-batch (the global batch stays); {hint}"
    return verdict.failed(ranks.rank, ranks.node, _last_step(folder), TrainError(f"{kind}: {fault}", hint))


def _last_step(folder: RankFolder) -> int:
    lines = read_lines(folder.path / "ranks" / f"rank-{folder.rank}.jsonl")
    return max((int(line["step"]) for line in lines if line.get("kind") == "step"), default=0)


def _tell(found: Verdict, console: Console) -> None:
    if not found.message:
        console.say(f"{found.verdict} at step {found.step}")
        return
    word = "stopped" if found.verdict == "stopped" else "error"
    console.say(f"{word}: {found.node} (rank {found.rank}): {found.message}")
    if found.hint:
        console.say(f"hint: {found.hint}")
