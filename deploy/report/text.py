"""The output of a run as plain text: numbers, sparkline, status lines, its last line. Pure; console.py adds colour."""

from __future__ import annotations

import glob
import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, TypeVar

from ..core.text import amount, clock, duration, figure, milliseconds, percent, ranks_in_words, several, step_words
from ..job.options import FLAG
from ..run.events import gpu_use
from ..run.inquest.slow import WorkTimes
from ..run.progress import State
from ..run.state.ranks import RankView

_BARS = "▁▂▃▄▅▆▇█"
_FEWEST_BARS, _MOST_BARS = 6, 24
_MOST_DRAWN = 1e100  # sums and differences of larger numbers are not finite
_EVALUATED = re.compile(r"(?:^|[_/.-])(?:val|valid|validation|eval|test|acc|accuracy)(?:$|[_/.-])", re.IGNORECASE)
_COST = re.compile(r"runtime|per_second|samples|steps")
_MOST_OWN = 3
GAP = 3  # spaces between two cells
# The words for a node whose ranks no longer report.
_ENDED_WORDS = {"exited": "ended", "lost": "lost"}
Cell = TypeVar("Cell", bound=Sized)
Fields = Mapping[str, Any]
HEADS = ("  node", "rank", "step", "ms/step", "data", "compute", "waiting")
# A rank is marked as silent if it has reported no step for this many seconds, or for this many steps if that is longer.
_SILENT_S, _SILENT_STEPS = 10.0, 20


def sparkline(values: Sequence[float], width: int) -> str:
    """`values` as `width` bars, each the mean of its share; with fewer values, bars repeat to fill the width."""
    finite = [value for value in values if abs(value) < _MOST_DRAWN]
    if not finite or width < 1:
        return ""
    edges = [index * len(finite) // width for index in range(width + 1)]
    shares = [finite[low : max(high, low + 1)] for low, high in itertools.pairwise(edges)]
    means = [sum(share) / len(share) for share in shares]
    low, high = min(means), max(means)
    span = high - low or 1.0
    return "".join(_BARS[round((mean - low) / span * (len(_BARS) - 1))] for mean in means)


NO_FILES = "the script wrote no files into its folder or its home"


def headline(state: State, recipe: str, why: str) -> list[str]:
    """The parts of the headline: `master + 2 workers`, `gloo`, `digits`, `local processes (...)`."""
    workers = len(state.names) - 1
    crew = "master" if not workers else f"master + {several(workers, 'worker')}"
    return [part for part in (crew, state.ranks.backend, recipe, why) if part]


def rank_cells(view: RankView, state: State) -> list[str]:
    """A rank's cells in the live view, below HEADS: rank, step, ms per step, data, compute, waiting."""
    cells = [f"{view.rank}"]
    if not (time := view.time):
        return [*cells, "getting ready" if not view.step else f"starting again (was at step {view.step})"]
    cells.append(f"{view.step}/{state.ranks.steps}" if state.ranks.steps else f"{view.step}")
    parts = (time.data, time.compute, time.wait)
    if (total := sum(parts)) > 0:
        cells += [figure(time.whole), *(f"{100 * value / total:.0f} %" for value in parts)]
    return cells


def marks(state: State) -> dict[int, str]:
    """The marks of ranks that stand out from the others: `slow` or `silent`."""
    seen = {rank: each.time for rank, each in state.ranks.views.items() if each.time}
    newest = max((each.t for each in seen.values()), default=0.0)
    works = WorkTimes.of(seen)
    marked = {}
    for rank, each in seen.items():
        if newest - each.t > max(_SILENT_S, _SILENT_STEPS * each.whole / 1000):
            marked[rank] = "silent"
        elif works.slow(rank):
            marked[rank] = "slow"
    return marked


def bar(state: State, width: int) -> str:
    """A bar for the steps that are done: `━━━━━╌╌╌╌╌ 50 %`; empty if the total is not known."""
    if not state.ranks.steps:
        return ""
    share = min(1.0, state.step / state.ranks.steps)
    room = max(_FEWEST_BARS, min(_MOST_BARS, width))
    return f"{'━' * round(share * room)}{'╌' * (room - round(share * room))} {100 * share:.0f} %"


def fitted(rows: Sequence[Sequence[Cell]], width: int, least: int) -> Sequence[Sequence[Cell]]:
    """The rows with as many of their first cells as fit into the terminal's width, but at least `least`."""
    if len(rows[0]) > least and sum(max(map(len, column)) + GAP for column in zip(*rows, strict=True)) - GAP > width:
        return fitted([row[:-1] for row in rows], width, least)
    return rows


def machine_cell(name: str, state: State) -> str:
    """A machine's load: `gpu 93 %  61 GB` (mean use of its GPUs, memory of the fullest); without GPUs, the CPU's.

    Empty if it is not known, and once the node has ended.
    """
    seen, node = state.nodes.telemetry.get(name, {}), state.nodes.states.get(name)
    if node and node.state in _ENDED_WORDS:
        return ""
    if (use := gpu_use(seen)) is not None:
        what, memory = "gpu", max(gpu.get("memory_bytes", 0) for gpu in seen["gpus"])
    else:
        what, use, memory = "cpu", seen.get("cpu_percent"), 0
    # A GPU that shares the machine's memory reports none, so the machine's memory is shown.
    return "" if use is None else f"{what} {use:2.0f} %  {amount(memory or seen.get('memory_bytes', 0))}"


def is_lost(name: str, state: State) -> bool:
    """Whether the node's host is lost, so that its ranks' last reports no longer hold."""
    node = state.nodes.states.get(name)
    return bool(node and node.state == "lost")


def node_word(name: str, state: State) -> str:
    """The state of a node whose ranks report nothing, in a few words."""
    node = state.nodes.states.get(name)
    if node and node.state in _ENDED_WORDS:
        return _ENDED_WORDS[node.state]
    if state.script and (ranks := state.ranks.ranks_on(name)):
        return f"runs {ranks_in_words(ranks)}"
    if name in state.nodes.up:
        return "up, waiting for the others" if len(state.nodes.up) < len(state.names) else "up, loading torch"
    return "starting"


def metric_line(state: State, width: int) -> str:
    """The line below the nodes: loss, throughput, time left, checkpoint. Its sparkline fills what `width` leaves."""
    parts = _pace_parts(state)
    if losses := state.training.losses:
        beside = state.ranks.views[0].step if 0 in state.ranks.views else state.step
        first, last = figure(losses[0][1]), _last_loss(state, beside)
        others = len("    ".join([f"  loss {first}  {last}", *parts]))
        bars = sparkline([loss for _, loss in losses], min(_MOST_BARS, max(_FEWEST_BARS, width - others)))
        parts.insert(0, f"loss {first} {bars} {last}")
    return "    ".join([*parts, *_own_parts(state)])


def progress_line(state: State) -> str:
    """One line for a log file: `step 240/600   loss 0.083   5,410 samples/s   left 0:07`."""
    parts = [f"step {state.step}/{state.ranks.steps}" if state.ranks.steps else state.ranks.step_words]
    if state.training.losses:
        parts.append(f"loss {_last_loss(state, state.step)}")
    return "   ".join([*parts, *_own_parts(state), *_pace_parts(state)])


def result_parts(outcome: Fields, known: Fields, where: str) -> list[str]:
    """The parts of the last line: `done`, the result, how long it took, where the files are.

    `outcome`: what outcome.json has; `known`: the run's record.
    """
    verdict, message, step = outcome["verdict"], outcome["message"], outcome["step"]
    parts, held_out = [verdict], f"{outcome['samples'] or 0:,} held-out samples"
    if verdict == "done" and (accuracy := outcome["accuracy"]) is not None:
        parts.append(f"{percent(accuracy)} of {held_out}")
    elif verdict == "done" and (loss := outcome.get("values", {}).get("loss")) is not None:
        parts.append(f"loss {figure(loss)} on {held_out}")
    elif verdict == "stopped":
        parts += [message.removeprefix("stopped").lstrip()] * (message != "stopped")
    elif step or (verdict != "done" and not known.get("script")):
        parts.append(f"at {step_words(step, outcome.get('repeats', False))}" if step else "before the first step")
        if verdict == "done" and (furthest := outcome.get("furthest")):
            parts[-1] += f", the furthest rank at {furthest}"
    return [*parts, duration(outcome["seconds"]), where]


def left_line(outcome: Fields, known: Fields, folder: str, fetch: str) -> str:
    """What the run left, and where. `fetch`: the command that copies it here; empty if it is in `folder`."""
    if not known.get("script"):
        return f"checkpoints, metrics and logs in {folder}/"
    remains = outcome.get("kept", {})
    left = {node: (each["files"], each["bytes"]) for node, each in remains.items() if each["files"]}
    # On hosts, each node has its own files; on this machine, all nodes share a folder.
    unsaid = [node for node in known.get("nodes", ()) if node not in remains] if fetch else []
    more = _stays(outcome.get("downloads", {})) if fetch else ""
    if not left:
        wrote = f"the files that it wrote: {fetch or f'{folder}/work'}"
        if remains and not unsaid:  # a script that found nothing to do also ends as done
            wrote = NO_FILES if outcome["step"] else f"Muster saw no training step, and {NO_FILES}"
        return f"logs in {folder}/; {wrote}{more}"
    if not fetch:
        files, size = map(max, zip(*left.values(), strict=True))
        top = next(each.get("top", "work") for each in remains.values() if each["files"])
        return f"{several(files, 'file')}, {amount(size)} in {folder}/{top}; logs in {folder}/"
    parts = [f"{several(files, 'file')}, {amount(size)} on {node}" for node, (files, size) in left.items()]
    parts += [f"there may be more on {', '.join(unsaid)}"] if unsaid else []
    return f"{'; '.join(parts)}: {fetch}{more}"


def _stays(by_node: Mapping[str, Sequence[Any]]) -> str:
    """The downloads that a fetch leaves on the hosts: their bytes, and the option that copies them."""
    if not by_node:
        return ""
    only = shlex.quote(glob.escape(next(iter(by_node.values()))[1] or "*"))
    size = amount(sum(size for size, _ in by_node.values()))
    return f"; {size} of downloads stay on {', '.join(by_node)}: to copy them, add {FLAG.only} {only}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, in columns."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in rows]


def indented(text: str) -> str:
    """The text of an error or a hint, with all lines but the first indented: those are from a script or a host."""
    first, *more = text.split("\n")
    return "\n".join([first, *(line if line.startswith("    ") else f"    {line}" for line in more)])


def _pace_parts(state: State) -> list[str]:
    training, parts = state.training, []
    if training.rates:
        parts.append(f"{training.rates[-1]:,.0f} samples/s")
    if left_s := training.seconds_left(state.ranks.steps):
        parts.append(f"left {clock(left_s)}")
    if training.checkpoint:
        parts.append(f"checkpoint {checkpoint_words(training.checkpoint['step'], training.checkpoint.get('pause_ms'))}")
    return parts


def checkpoint_words(step: float, pause_ms: float | None) -> str:
    """The step of the last checkpoint, and for how long the training paused for it."""
    return f"at step {step:.0f}" + ("" if pause_ms is None else f" ({milliseconds(pause_ms)} pause)")


def _own_parts(state: State) -> list[str]:
    """A script's numbers from its own files: evaluations, and a training loss if the watcher sees no loss.

    Then what the script logged with `muster.Training`, because the user wants to see that; but not its `loss`, which
    the watcher sees.
    """
    # The Hugging Face Trainer's eval_loss is called eval/loss in its TensorBoard file.
    scalars = state.training.scalars
    plain = {name.replace("/", "_"): name for name in scalars}
    names = [name for name in plain.values() if _EVALUATED.search(name) and not _COST.search(name)]
    if not state.training.losses:
        names = [*[name for name in scalars if "loss" in name.lower() and name not in names][:1], *names]
    logged = [name for name, (_, _, file) in scalars.items() if file.endswith("/metrics.jsonl")]
    names += [name for name in logged if name not in names and name != "loss"]
    return [f"{name} {figure(scalars[name][1])}" for name in names[:_MOST_OWN]]


def _last_loss(state: State, shown: int) -> str:
    """The newest loss, with its step if that is not the `shown` step.

    The watcher reads only some losses of a fast script; and the loss is rank 0's, which may be ahead of the slowest
    rank.
    """
    step, loss = state.training.losses[-1]
    return figure(loss) if step == shown else f"{figure(loss)} at step {step}"


def culprit(end: Fields) -> str:
    """The node and the rank that failed: `worker-2 (rank 2)`; empty if the message's first line has the node."""
    node, rank = end.get("node") or "", end.get("rank")
    if node in end.get("message", "").partition("\n")[0]:
        return ""
    return node if rank is None else f"{node} (rank {rank})"


def fault_text(outcome: Fields) -> str:
    """The fault, with its node and rank in front."""
    return ": ".join(filter(None, (culprit(outcome), outcome["message"])))


def without_traceback(message: str, shown: Iterable[str]) -> str:
    """The message; only its first line, if the user has just seen the traceback in the script's output."""
    head, *traceback = message.splitlines() or [""]
    last = traceback[-1].strip() if traceback else ""
    return head if last and last in head and any(line.rstrip().endswith(last) for line in shown) else message
