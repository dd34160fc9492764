"""The trainer's options: parsed and checked before torch is imported, so that a slip costs a tenth of a second."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from muster.errors import Refused

from . import recipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that shapes a training run. Counts of samples are global (over all ranks) unless named otherwise."""

    recipe: str = "digits"
    data: str | None = None
    steps: int = 600
    batch: int = 96
    micro_batch: int = 0
    lr: float = 3e-3
    warmup: int = 50
    clip: float = 1.0
    seed: int = 0
    precision: str = "fp32"
    compile: bool = False
    backend: str = "auto"
    data_workers: int = 0
    log_every: int = 10
    eval_every: int = 100
    checkpoint_every: int = 100
    keep: int = 3
    resume: str | None = None
    join_timeout: float = 300.0
    timeout: float = 60.0

    def replace(self, **changes: Any) -> Config:
        """This configuration with `changes`, checked again by the parser's rules only where they were parsed."""
        return dataclasses.replace(self, **changes)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message, "see every option with `python -m trainer --help`")


def _number(kind: type, low: float, high: float = math.inf) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"not a {'whole ' if kind is int else ''}number: {text!r}") from None
        if not (low <= value <= high) or not math.isfinite(value):
            limit = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise argparse.ArgumentTypeError(f"must be {limit}, got {text}")
        return value

    return parse


def parser() -> argparse.ArgumentParser:
    """The command line; defaults are left out here, because a recipe may set its own."""
    command = _Parser(prog="trainer", allow_abbrev=False, argument_default=argparse.SUPPRESS, description=__doc__)
    what = command.add_argument_group("what to train")
    what.add_argument("--recipe", metavar="NAME|FILE", help="digits, text, or a Python file of yours (docs/recipes.md)")
    what.add_argument("--data", metavar="FOLDER", help="given to the recipe's datasets()")
    what.add_argument("--steps", type=_number(int, 1), help="optimizer steps in all")
    what.add_argument(
        "--batch", type=_number(int, 1), help="samples a step, over all ranks; kept when their number changes"
    )
    what.add_argument(
        "--micro-batch", type=_number(int, 0), help="most samples a rank takes at once; 0: its whole share"
    )
    what.add_argument("--seed", type=_number(int, 0, 2**31 - 1))
    how = command.add_argument_group("how")
    how.add_argument("--lr", type=_number(float, 0.0), help="peak learning rate")
    how.add_argument("--warmup", type=_number(int, 0), help="steps of linear warm-up; cosine decay to 0 follows")
    how.add_argument("--clip", type=_number(float, 0.0), help="largest gradient norm; 0: no clipping")
    how.add_argument("--precision", choices=["fp32", "bf16", "fp16"])
    how.add_argument("--compile", action="store_true", help="torch.compile the model")
    how.add_argument("--backend", choices=["auto", "gloo", "nccl"], help="auto: nccl on GPUs, gloo on CPUs")
    how.add_argument("--data-workers", type=_number(int, 0, 256), help="loader processes a rank")
    keep = command.add_argument_group("what is kept")
    keep.add_argument("--log-every", type=_number(int, 1), help="steps")
    keep.add_argument("--eval-every", type=_number(int, 0), help="steps; 0: only at the end")
    keep.add_argument("--checkpoint-every", type=_number(int, 0), help="steps; 0: only at the end")
    keep.add_argument("--keep", type=_number(int, 1), help="newest checkpoints kept, besides the best")
    keep.add_argument("--resume", metavar="PATH", help="start from a checkpoint or run folder of another run")
    wait = command.add_argument_group("patience")
    wait.add_argument("--join-timeout", type=_number(float, 1.0), help="seconds for the ranks to find each other")
    wait.add_argument("--timeout", type=_number(float, 1.0), help="seconds a collective may take after the first step")
    return command


def parse(arguments: Sequence[str]) -> Config:
    """The configuration that `arguments` ask for: the command line over the recipe's DEFAULTS over ours.

    Imports no torch and runs no code of the recipe. Raises Refused, naming the option or the recipe's fault.
    """
    given = vars(parser().parse_args(list(arguments)))
    name = given.get("recipe", Config.recipe)
    recipe.check(name)
    defaults = recipe.defaults(name)
    unknown = sorted(
        set(defaults) - {field.name for field in dataclasses.fields(Config)} | (defaults.keys() & {"recipe"})
    )
    if unknown:
        known = ", ".join(field.name for field in dataclasses.fields(Config) if field.name != "recipe")
        raise Refused(f"{name}: DEFAULTS sets unknown option {', '.join(unknown)}", f"known are: {known}")
    config = Config(**{**_reparsed(defaults, name), **given})
    _check_together(config)
    return config


def _reparsed(defaults: dict[str, Any], name: str) -> dict[str, Any]:
    """A recipe's defaults through the command line's own checks, so that both are held to one rule."""
    words: list[str] = []
    for key, value in defaults.items():
        option = "--" + key.replace("_", "-")
        words += ([option] if value else []) if isinstance(value, bool) else [f"{option}={value}"]
    try:
        return vars(parser().parse_args(words))
    except Refused as fault:
        raise Refused(f"{name}: DEFAULTS: {fault.message}", fault.hint) from None


def _check_together(config: Config) -> None:
    if config.data is not None:
        folder = Path(config.data)
        if not folder.is_dir():
            raise Refused(f"--data: no such folder: {folder}", "give a folder that every node can read")
        if not any(folder.iterdir()):
            raise Refused(f"--data: the folder is empty: {folder}", "put the training files there, or leave --data out")
    if config.resume is not None and not Path(config.resume).exists():
        raise Refused(f"--resume: no such checkpoint: {config.resume}", "`make runs` lists what there is")
