"""The steps of the trainer, bare DDP, Lightning Fabric and Accelerate, in turns: same recipe, layout, options."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from benchmarks.figure import spread

from ..bench import Bench
from ..finding import Finding, judge, untried
from ..nodes import RECIPES
from ..turns import Contender, clearly_below, in_turns

TITLE, LIMIT_S = "the trainer beside bare torch", 150
TURNS, LEAST_RATIO = 6, 0.95
OURS = "Muster"
# By the package that each rival needs: its name and its module.
RIVALS = {
    "torch": ("bare DDP", "bare"),
    "lightning": ("Lightning Fabric", "fabric_loop"),
    "accelerate": ("Accelerate", "accelerate_loop"),
}
_FOREVER = ("--steps", "1000000")


def run(bench: Bench) -> Iterator[Finding]:
    """A small net that waits for kernel launches, and on GPUs one that keeps them busy."""
    for recipe in ("digits", "wide") if bench.gpus else ("digits",):
        with ExitStack() as stack:
            contenders = {OURS: _ours(bench, stack, recipe)}
            for package, (name, module) in RIVALS.items():
                if package == "torch" or bench.has(package):
                    contenders[name] = _rival(bench, stack, recipe, module)
                elif recipe == "digits":
                    yield untried(f"beside {name}", f"{package} is not installed")
            bench.say(f"{recipe}: {', '.join(contenders)} in turns")
            taken = in_turns(contenders, TURNS)
        for name in list(contenders)[1:]:
            yield compared(recipe, name, taken[OURS], taken[name])


def _ours(bench: Bench, stack: ExitStack, recipe: str) -> Contender:
    chosen = recipe if recipe == "digits" else str(RECIPES / f"{recipe}.py")
    arguments = ["--recipe", chosen, *_FOREVER, "--eval-every", "0", "--checkpoint-every", "100"]
    run = stack.enter_context(bench.node(f"{recipe}-ours", arguments))
    return Contender(run, run.metrics)


def _rival(bench: Bench, stack: ExitStack, recipe: str, module: str) -> Contender:
    chosen = recipe if recipe == "digits" else str(RECIPES / f"{recipe}.py")
    arguments = ["--recipe", chosen, *_FOREVER]
    run = stack.enter_context(bench.node(f"{recipe}-{module}", arguments, module=f"benchmarks.rivals.{module}"))
    return Contender(run, run.console_lines)


def compared(recipe: str, name: str, ours: Sequence[float], theirs: Sequence[float]) -> Finding:
    """The finding about the trainer and one rival."""
    what = f"{recipe}: steps/s beside {name}"
    if min(len(ours), len(theirs)) < TURNS // 2:
        return judge(what, False, f"{len(ours)} turns of ours, {len(theirs)} of theirs", "turns of both")
    ratios = [other / own for own, other in zip(ours, theirs, strict=False)]
    measured = f"{statistics.median(ratios):.2f}x: {spread(ours)} ms, theirs {spread(theirs)} ms"
    good = not clearly_below(ratios, LEAST_RATIO)
    return judge(what, good, measured, f">= {LEAST_RATIO}x, or not clearly less", ratios=ratios)
