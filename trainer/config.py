"""The trainer's options, and which of them exclude each other.

Read without torch, so that an error costs only 0.1 s.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from muster.errors import DONE, Refused

from . import NAME, mesh, recipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """All options of a training run. Counts of samples are global (over all ranks) unless the name says otherwise."""

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
    recompute: bool = False
    mesh: str = ""
    trust_plan: bool = False
    backend: str = "auto"
    data_workers: int = 0
    log_every: int = 10
    eval_every: int = 100
    checkpoint_every: int = 100
    keep: int = 3
    resume: str | None = None
    join_timeout: float = 300.0
    timeout: float = 60.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message, f"see every option with `python -m {NAME} --help`")


def _number(kind: type, low: float, high: float = 1e300) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"not a {'whole ' if kind is int else ''}number: {text!r}") from None
        if not low <= value <= high:  # this also excludes NaN and infinity
            limit = f"at most {high:g}" if value > high else f"at least {low:g}"
            raise argparse.ArgumentTypeError(f"must be {limit}, got {text}")
        return value

    return parse


def parser() -> argparse.ArgumentParser:
    """The command line. It sets no defaults, because a recipe may set its own."""
    command = _Parser(
        prog="trainer",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Train a recipe on the ranks that torchrun started. A recipe may set other defaults.",
        epilog=f"example: torchrun --nproc-per-node 2 -m {NAME} --recipe digits --steps 300. "
        "Exit codes: 0 done, 1 failed, 2 refused, 75 stopped with a checkpoint.",
    )
    what = command.add_argument_group("what to train")
    _add(
        what,
        "--recipe",
        "digits, text, or a Python file of yours (muster docs train-with-a-recipe)",
        metavar="NAME|FILE",
    )
    _add(what, "--data", "the folder that is passed to the recipe's datasets()", metavar="FOLDER")
    _add(what, "--steps", "total number of optimizer steps", type=_number(int, 1))
    _add(what, "--batch", "samples in a step, over all ranks", type=_number(int, 1))
    _add(
        what,
        "--micro-batch",
        "the most samples in one forward pass of a rank; 0: the rank's whole share",
        type=_number(int, 0),
    )
    _add(what, "--seed", "seed of the weights and of the data order", type=_number(int, 0, 2**31 - 1))
    how = command.add_argument_group("how to train")
    _add(how, "--lr", "peak learning rate", type=_number(float, 0.0))
    _add(how, "--warmup", "steps of linear warm-up, before a cosine decay to 0", type=_number(int, 0))
    _add(how, "--clip", "clip gradients to this norm; 0: no clipping", type=_number(float, 0.0))
    _add(how, "--precision", "of the forward pass", choices=["fp32", "bf16", "fp16"])
    _add(how, "--compile", "compile the model with torch.compile", action="store_true")
    _add(
        how,
        "--recompute",
        "keep no activations inside blocks; the backward pass computes them again",
        action="store_true",
    )
    _add(
        how,
        "--mesh",
        "how the ranks share the model, such as dp_shard=-1; without it DDP (muster docs which-mesh)",
        metavar="AXES",
    )
    _add(how, "--trust-plan", "do not check the recipe's tensor_plan before the first step", action="store_true")
    _add(how, "--backend", "auto: nccl on GPUs, gloo on CPUs", choices=["auto", "gloo", "nccl"])
    _add(how, "--data-workers", "loader processes for each rank", type=_number(int, 0, 256))
    record = command.add_argument_group("what to record")
    _add(record, "--log-every", "steps between metrics", type=_number(int, 1))
    _add(record, "--eval-every", "steps between evaluations; 0: only at the end", type=_number(int, 0))
    _add(record, "--checkpoint-every", "steps between checkpoints; 0: only at the end", type=_number(int, 0))
    _add(
        record,
        "--keep",
        "how many of the newest checkpoints to keep, in addition to the best one",
        type=_number(int, 1),
    )
    _add(record, "--resume", "start from a checkpoint or from the folder of another run", metavar="PATH")
    timeouts = command.add_argument_group("timeouts")
    _add(timeouts, "--join-timeout", "seconds for the ranks to find each other", type=_number(float, 1.0))
    _add(timeouts, "--timeout", "seconds for a collective after the first step", type=_number(float, 1.0))
    return command


def _add(group: Any, option: str, text: str, **arguments: Any) -> None:
    """Add `option` to `group`; its help is `text` and the default in Config."""
    default = getattr(Config, option[2:].replace("-", "_"))
    no_default = default in (None, False, "")
    group.add_argument(option, help=text if no_default else f"{text} (default {default})", **arguments)


def parse(arguments: Sequence[str]) -> Config:
    """The configuration: the command line, then the recipe's DEFAULTS, then the defaults of Config.

    This imports no torch and runs no code of the recipe. Raises Refused with the name of the option, or with the
    recipe's fault.
    """
    options = vars(parser().parse_args(list(arguments)))
    name = options.get("recipe", Config.recipe)
    recipe.check(name)
    defaults = recipe.defaults(name)
    unknown = sorted(
        set(defaults) - {field.name for field in dataclasses.fields(Config)} | (defaults.keys() & {"recipe"})
    )
    if unknown:
        known = ", ".join(field.name for field in dataclasses.fields(Config) if field.name != "recipe")
        raise Refused(f"{name}: DEFAULTS sets unknown option {', '.join(unknown)}", f"the options are: {known}")
    config = Config(**{**_check_defaults(defaults, name), **options})
    _check_together(config)
    return config


def _check_defaults(defaults: dict[str, Any], name: str) -> dict[str, Any]:
    """The recipe's DEFAULTS, checked by the command-line parser."""
    arguments: list[str] = []
    for key, value in defaults.items():
        option = "--" + key.replace("_", "-")
        if value is None or value is False:  # it is left out, as on the command line
            continue
        arguments.append(option if value is True else f"{option}={value}")
    try:
        return vars(parser().parse_args(arguments))
    except Refused as fault:
        raise Refused(f"{name}: DEFAULTS: {fault.message}", fault.hint) from None


def _check_together(config: Config) -> None:
    mesh.sizes(config.mesh)
    try:
        _check_places(config)
    except OSError as fault:
        what = f"--data or --resume: {fault.filename}: {fault.strerror}"
        raise Refused(what, "give a path that this user can read on every node") from fault
    if config.compile and config.recompute:
        raise Refused(
            "--compile with --recompute: the trainer supports only one of the two at a time", "leave out one of the two"
        )


def _check_places(config: Config) -> None:
    if config.data is not None:
        folder = Path(config.data)
        if not folder.is_dir():
            raise Refused(f"--data: no such folder: {folder}", "give a folder that every node can read")
        if not any(folder.iterdir()):
            raise Refused(f"--data: the folder is empty: {folder}", "put the training files there, or leave out --data")
    if config.resume is not None and not Path(config.resume).exists():
        raise Refused(f"--resume: no such checkpoint: {config.resume}", "give a run folder, or a checkpoint in one")


def refuse_on(config: Config, ranks: mesh.Mesh, device: str) -> None:
    """Raise Refused for options that cannot be combined on this mesh, or on this type of device."""
    if config.precision == "fp16" and ranks.tp > 1:
        raise Refused(
            f"--precision fp16 on mesh {ranks}: torch cannot scale gradients of two kinds", "--precision bf16"
        )
    if config.compile and not ranks.copies:
        raise Refused(f"--compile on mesh {ranks}: the trainer compiles only whole models", "leave out one of the two")
    compilers = (os.environ.get("CXX", "g++"), "clang++")
    if config.compile and device != "cuda" and not any(map(shutil.which, compilers)):
        raise Refused("--compile: on CPUs torch.compile needs a C++ compiler, and there is none here", "install g++")


def main() -> int:
    """Check the options on the command line; prints what is wrong and what to do, on one line each."""
    try:
        parse(sys.argv[1:])
    except Refused as fault:
        print(fault.message, fault.hint, sep="\n")
        return fault.code
    return DONE


if __name__ == "__main__":
    sys.exit(main())
