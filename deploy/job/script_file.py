"""The file that a script's command needs: check that the folder to send has it, with an error for each way it fails."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NoReturn

from ..core.errors import UsageError
from ..core.program import COMMAND, script_option
from ..core.suggest import near_file
from .option_words import retyped, typed_again, without_values
from .options import FLAG

# The mark in front of a command that runs once per node, and starts that node's ranks itself.
PER_NODE = "--per-node"
_SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
# The option that starts Muster's own trainer.
DEMO = f'{FLAG.args}="--recipe digits"'
_NO_SCRIPT = re.compile(r"(?:__.*__|setup|conftest|fabfile|noxfile|test_.*|.*_test)\.py")
# Files that people type in place of the script that reads or writes them.
_NO_PROGRAM = (".yaml", ".yml", ".json", ".toml", ".md", ".txt", ".csv", ".pt", ".pth", ".ckpt", ".safetensors")
_MOST_NAMES, _MOST_SHOWN = 1000, 3
_CHECKOUT = Path(__file__).resolve().parents[2]  # nothing in it is a user's script


def file_of(words: Sequence[str]) -> str:
    """The file in the folder that a command needs; empty for a module, an option, or a program of the image."""
    if words[:1] == (PER_NODE,):
        is_shell = len(words) > 2 and words[1].rpartition("/")[2] in _SHELLS
        first = words[2] if is_shell else words[1]
        return first if first.endswith((".sh", ".sbatch", ".slurm", ".py")) else ""
    return words[0] if words and not words[0].startswith("-") else ""


def in_folder(words: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The words; an absolute path of the command's file in the folder, or one with `..`, starts in the folder.

    The hosts have the folder at another place.
    """
    name = file_of(words)
    if words[:1] == (PER_NODE,):
        name = name or next((word for word in words[2:] if word.endswith((".py", ".sh"))), "")
    elif words[:1] == ("--no-python",):
        name = words[1]
    above, last = os.path.split(folder / name)  # the file itself may be a link
    path = os.path.relpath(os.path.join(os.path.realpath(above), last), os.path.realpath(folder))
    if not (name.startswith("/") or os.pardir in name.split("/")) or path.split("/")[0] == os.pardir:
        return words
    at = words.index(name)
    is_started = at == 1 and "/" not in path
    return (*words[:at], f"./{path}" if is_started else path, *words[at + 1 :])


def refuse_missing(path: str, folder: Path, hint: str = f"give its path relative to {FLAG.folder}") -> NoReturn:
    """Raise UsageError for a script that is not in the folder."""
    meant = near_file(folder, path, PurePosixPath(path).suffix or ".py")
    if not meant and " " in path.strip():
        is_line = re.search(r"[;&|<>]", path)  # without quotes, the user's own shell would act on a part of it
        typed = f"bash -c {shlex.quote(path)}" if is_line else path
        option, how = script_option(), "as a line of a shell" if is_line else "without the quotes"
        hint = f"{how if option == '--' else 'with one pair of quotes'}: {typed_again(typed, option)}"
    raise UsageError(f"{path}: no such file in {folder.resolve()}", f"did you mean {meant}?" if meant else hint)


def refuse_no_program(words: Sequence[str], folder: Path) -> None:
    """Raise UsageError for a file that is not a program: a notebook, or a file that a script reads."""
    ending = PurePosixPath(words[0]).suffix
    if ending == ".ipynb":
        hint = f"to make a script of its cells: jupyter nbconvert --to script {shlex.quote(words[0])}"
        raise UsageError(f"{words[0]}: this is a notebook, but ranks can only start a script", hint)
    if ending in _NO_PROGRAM:
        reads = next(iter(scripts_in(folder)), "train.py")
        again = retyped((reads, *words), script_option())
        raise UsageError(f"{words[0]}: this is not a program", f"name the script that reads this file: {again}")


def refuse_folder(path: str, folder: Path) -> None:
    """Raise UsageError for a folder in the place of a script; the hint shows a script in it."""
    if not os.path.isdir(folder / path):
        return
    inside = [shlex.quote(os.path.normpath(os.path.join(path, name))) for name in scripts_in(folder / path)]
    hint = f"did you mean {inside[0]}?" if inside else "name the script in that folder"
    raise UsageError(f"{path}: this is a folder, but ranks can only start a script", hint)


def refuse_outside(path: str, folder: Path) -> None:
    """Raise UsageError for a script outside the folder: only the folder is sent."""
    whole = os.path.normpath(folder / path)
    if Path(os.path.relpath(whole, folder)).parts[:1] == (os.pardir,):
        above = os.path.commonpath([os.path.abspath(whole), folder.resolve()])
        name = os.path.relpath(os.path.abspath(whole), above)
        hint = f"{FLAG.folder} {shlex.quote(os.path.relpath(above))} sends the folder above; the script is then {name}"
        if Path.home().is_relative_to(above):  # that would be far too much
            own, name = map(shlex.quote, os.path.split(os.path.abspath(whole)))
            hint = f"{FLAG.folder} {own} sends the script's folder; the script is then {name}"
        if os.path.isdir(whole):
            hint = f"{FLAG.folder} {shlex.quote(path)} sends that folder: name a script in it"
        raise UsageError(f"{path}: it is outside {folder.resolve()}, the folder that Muster sends", hint)


def refuse_no_script(folder: str) -> NoReturn:
    """Raise UsageError for a command that does not say what to train; the hint shows the scripts in its folder."""
    place = Path(folder or ".")
    first, *others = (scripts_in(place) if place.resolve() != _CHECKOUT else []) or [""]
    beside = f" ({', '.join(others[:_MOST_SHOWN])} {'lie' if len(others) > 1 else 'lies'} beside it)" * bool(others)
    command = f"{'bash ' * first.endswith('.sh')}{shlex.quote(first)}"
    hint = f"did you mean `{_typed_again(command)}`?{beside}"
    if not first:
        hint = (
            f"{place.resolve()} has no script: run this command in your script's folder, with "
            f"{_typed_again('train.py')}"
        )
    raise UsageError(f"{COMMAND}: the script is missing", f"{hint}; for Muster's own trainer: `{_typed_again(DEMO)}`")


def scripts_in(folder: Path) -> list[str]:
    """The programs at a folder's top level, or else one level below; names that sound like training come first."""
    for pattern in ("*", "*/*"):
        names = []
        with suppress(OSError):
            paths = (path for path in sorted(folder.glob(pattern))[:_MOST_NAMES] if path.suffix in (".py", ".sh"))
            names = [path.relative_to(folder).as_posix() for path in paths if path.is_file()]
        names = [name for name in names if not _NO_SCRIPT.fullmatch(PurePosixPath(name).name) and name[0] not in ".-"]
        if names:
            return sorted(names, key=_rank)
    return []


def _rank(name: str) -> tuple[int, str]:
    stem = PurePosixPath(name).stem.lower()
    sounds = ("train", "main", "run", "finetune", "fit")
    return next((at for at, word in enumerate(sounds) if stem.startswith(word)), len(sounds)), name


def _typed_again(more: str) -> str:
    """The command line as it was typed, with the words `more`; `...` for a program that uses the Python API."""
    typed = sys.argv[sys.argv.index(COMMAND) :] if COMMAND in sys.argv else [COMMAND, "..."]
    return f"muster {shlex.join(without_values(typed[:-1] if typed[-1] == '--' else typed))} {more}"
