"""Compare step rates of the trainer, bare DDP, Lightning Fabric and Accelerate, in turns, with the same recipe.

All use the same layout and options.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from ..bench import Bench
from ..finding import Finding, untried
from ..nodes import RECIPES, Run
from ..turns import Contender, compare_rates, in_turns

TITLE, LIMIT_S = "the trainer beside bare torch", 150
TURNS, LEAST_RATIO = 6, 0.95
OURS = "Muster"
# For the package that each rival needs: its name and its module.
RIVALS = {
    "torch": ("bare DDP", "bare"),
    "lightning": ("Lightning Fabric", "fabric_loop"),
    "accelerate": ("Accelerate", "accelerate_loop"),
}


def run(bench: Bench) -> Iterator[Finding]:
    """A small net that waits for kernel launches; on GPUs also one that keeps them busy."""
    for recipe in ("digits", "wide") if bench.gpus else ("digits",):
        with ExitStack() as stack:
            ours = _run(bench, stack, recipe, "ours", "--eval-every", "0", "--checkpoint-every", "100")
            contenders = {OURS: Contender(ours, ours.metrics)}
            for package, (name, module) in RIVALS.items():
                if package == "torch" or bench.has(package):
                    rival = _run(bench, stack, recipe, module, module=f"benchmarks.rivals.{module}")
                    contenders[name] = Contender(rival, rival.console_lines)
                elif recipe == "digits":
                    yield untried(f"beside {name}", f"{package} is not installed")
            bench.say(f"{recipe}: {', '.join(contenders)} in turns")
            taken = in_turns(contenders, TURNS)
        for name in list(contenders)[1:]:
            what = f"{recipe}: steps/s beside {name}"
            yield compare_rates(what, taken[OURS], taken[name], TURNS, LEAST_RATIO)


def _run(bench: Bench, stack: ExitStack, recipe: str, name: str, *more: str, module: str = "") -> Run:
    """A run without an end."""
    chosen = recipe if recipe == "digits" else str(RECIPES / f"{recipe}.py")
    arguments = ["--recipe", chosen, "--steps", "1000000", *more]
    return stack.enter_context(bench.node(f"{recipe}-{name}", arguments, module=module))
