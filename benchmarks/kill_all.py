"""kill -9 of every process of a run at a random moment, then resume: are the final weights those of a run left alone?

    python -m benchmarks.kill_all [--quick]

A run has two nodes and a checkpoint every ten steps; it is killed and resumed, four times at most, until it is done.
Each moment is drawn evenly from the time an undisturbed run takes between the ranks' meeting and its end. Right after a
kill the newest checkpoint must verify; when the run is done every tensor of its last checkpoint must be bit-identical
to the undisturbed run's: else all its kills count as failed. The rival saves a snapshot every epoch of fourteen steps
as PyTorch's DDP tutorial does; it is judged by its weights.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from muster.checkpoint import store

STEPS, MOST_KILLS = 300, 4  # with five starts in a row without a step the trainer gives up, as it should
ARGUMENTS = ["--steps", str(STEPS), "--eval-every", "0", "--checkpoint-every", "10"]
Start = Callable[[Path, int], nodes.Run]


@dataclass
class Tally:
    """Kills, and of them how many left an unusable checkpoint and how many runs ended with the same weights."""

    kills: int = 0
    with_checkpoint: int = 0
    unreadable: int = 0
    identical: int = 0


def measure(quick: bool) -> dict[str, Any]:
    """Ours and the rival's tallies; a kill that would come after the run's end is none."""
    trials, rival_trials = (3, 1) if quick else (20, 4)
    draw = random.Random(0)
    with nodes.scratch() as scratch:
        ours = _trials(scratch, "ours", _start_ours, _ours_readable, _our_weights, trials, draw)
        theirs = _trials(scratch, "rival", _start_rival, _snapshot_readable, _their_weights, rival_trials, draw)
    rows = [
        Row(
            "bit-identical after kill -9 of everything and resume",
            f"{ours.identical} of {ours.kills}",
            f"DDP tutorial {theirs.identical} of {theirs.kills}",
            target=f"{trials} of {trials}",
            met=ours.identical == trials,
        ),
        Row(
            "... newest usable checkpoint unreadable",
            f"{ours.unreadable} of {ours.with_checkpoint}",
            f"DDP tutorial {theirs.unreadable} of {theirs.with_checkpoint}",
            target="0",
            met=ours.unreadable == 0,
        ),
    ]
    return result(rows, [f"{STEPS} steps of digits; checkpoints are counted where one was there at the kill"])


def _trials(
    scratch: Path,
    name: str,
    start: Start,
    readable: Callable[[Path], bool | None],
    weights: Callable[[Path], Any],
    trials: int,
    draw: random.Random,
) -> Tally:
    tally = Tally()
    reference = nodes.run_folder(scratch, f"{name}-reference")
    with start(reference, 1) as run:
        run.wait(lambda: _starts(reference))
        met = time.monotonic()
        run.finish()
        lasted = time.monotonic() - met
    expected = weights(reference)
    for number in itertools.count():
        if tally.kills >= trials:
            return tally
        folder = nodes.run_folder(scratch, f"{name}-{number}")
        kills = _killed_until_done(folder, start, readable, min(MOST_KILLS, trials - tally.kills), lasted, draw, tally)
        same = kills > 0 and _done(folder) and equal(weights(folder), expected)
        tally.identical += same * kills
        say(f"{name} {tally.kills}/{trials}: {kills} kills in this run, identical {same}")
    raise AssertionError("unreachable")


def _killed_until_done(
    folder: Path,
    start: Start,
    readable: Callable[[Path], bool | None],
    most: int,
    lasted: float,
    draw: random.Random,
    tally: Tally,
) -> int:
    """Kill and resume one run until it has ended by itself; how often it was killed, `most` times at most."""
    for kills in itertools.count():
        before = _starts(folder)
        with start(folder, kills + 1) as run:
            if not run.wait_or_none(lambda: _starts(folder) > before or None not in run.codes(), 60.0):  # noqa: B023
                say(f"the resumed run does not start\n{run.last_words()[-600:]}")
                return kills
            if kills < most:
                time.sleep(draw.uniform(0.0, lasted))
            if kills == most or None not in run.codes():
                run.wait_or_none(lambda: None not in run.codes() or _gave_up(run), 60.0)
                return kills
            run.kill_everything()
        tally.kills += 1
        state = readable(folder)
        tally.with_checkpoint += state is not None
        tally.unreadable += state is False
    raise AssertionError("unreachable")


def _done(folder: Path) -> bool:
    """Whether the run came to its end: our verdict, or the rival's last file."""
    return (folder / "final.pt").exists() or (folder / "checkpoints" / f"step-{STEPS:08d}").is_dir()


def _gave_up(run: nodes.Run) -> bool:
    """torchrun would try a snapshot that cannot be read a hundred times."""
    return sum(log.read_text(errors="replace").count("Traceback") for log in run.folder.glob("logs/*.log")) > 4


def _starts(folder: Path) -> int:
    """How often training has begun: our ranks' `started` events, the rival's lines."""
    begun = [event for event in nodes.lines(folder / "ranks" / "rank-0.jsonl") if event["kind"] == "started"]
    return len(begun) + len(nodes.console_lines(folder))


def _start_ours(folder: Path, start: int) -> nodes.Run:
    return nodes.ours(folder, 1, ARGUMENTS, start)


def _start_rival(folder: Path, start: int) -> nodes.Run:
    arguments = ["--steps", str(STEPS), "--folder", str(folder)]
    return nodes.rival(folder, 1, "benchmarks.rivals.snapshot", arguments, start)


def _ours_readable(folder: Path) -> bool | None:
    """None when no checkpoint was written yet; else whether the newest one verifies."""
    usable, damaged = store.newest_usable(folder / "checkpoints")
    announced = any(event["kind"] == "checkpoint" for event in nodes.lines(folder / "ranks" / "rank-0.jsonl"))
    if not announced and not usable and not damaged:
        return None
    return usable is not None and not damaged


def _snapshot_readable(folder: Path) -> bool | None:
    if not (folder / "snapshot.pt").exists():
        return None
    try:
        torch.load(folder / "snapshot.pt")
    except Exception:  # whatever is wrong with it, the tutorial's loop cannot go on from it
        return False
    return True


def _our_weights(folder: Path) -> Any:
    state, manifest = store.load(folder / "checkpoints" / f"step-{STEPS:08d}")
    assert manifest.step == STEPS
    return {name: state[name] for name in ("model", "optimizer", "scheduler", "position")}


def _their_weights(folder: Path) -> Any:
    return torch.load(folder / "final.pt")


def equal(first: Any, other: Any) -> bool:
    """Bit for bit, through dicts and lists."""
    if isinstance(first, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(first, other)
    if isinstance(first, dict):
        return (
            isinstance(other, dict) and first.keys() == other.keys() and all(equal(first[k], other[k]) for k in first)
        )
    if isinstance(first, list | tuple):
        return len(first) == len(other) and all(equal(a, b) for a, b in zip(first, other, strict=True))
    return bool(first == other)


if __name__ == "__main__":
    alone(measure, __doc__)
