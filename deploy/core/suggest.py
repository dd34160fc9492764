"""Guess which run, host or file a user meant by a mistyped name."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NoReturn

from . import plain_file, toml_text
from .errors import UsageError

_MOST = 1 << 20  # bytes of a pyproject.toml


def near_match(typed: str, names: Iterable[str], alike: float = 0.7) -> str:
    """The name most similar to what was typed; empty if none is. `alike`: the least similarity, 1 for equal names."""
    return next(iter(difflib.get_close_matches(typed, sorted(names), 1, alike)), "")


def hint_of(typed: str, names: Iterable[str]) -> str:
    """A hint with the name that the user may have meant, or with all names if none is similar."""
    meant = near_match(typed, names)
    return f"did you mean {meant}?" if meant else f"there are {', '.join(names)}"


def near_file(folder: Path, path: str, ending: str) -> str:
    """The file next to `path` in the folder, with this ending, that may be meant; empty if none is similar."""
    typed = PurePosixPath(path)
    with suppress(OSError):
        names = (name for name in sorted(os.listdir(folder / typed.parent))[:1000] if name.endswith(ending))
        alike = near_match(typed.name.removesuffix(ending), [name.removesuffix(ending) for name in names], 0.6)
        return (typed.parent / f"{alike}{ending}").as_posix() if alike else ""
    return ""


def near_path(typed: str, usual: Iterable[str] = (), folder: bool = False) -> str:
    """The file (with `folder`, the folder) that the user may have meant by a path; empty if there is none.

    For a file where a folder is wanted, that is the file's folder. Else it is the most similar name, or one of the
    `usual` names: in the path if it is a folder, otherwise next to it.
    """
    path = Path(os.path.expanduser(typed))
    if folder and os.path.isfile(path):
        return str(path.parent)
    place = path if os.path.isdir(path) else path.parent
    with suppress(OSError, ValueError):
        names = [entry.name for entry in sorted(os.scandir(place), key=lambda entry: entry.name)[:1000]
                 if (entry.is_dir() if folder else entry.is_file())]  # fmt: skip
        alike = {Path(name).stem: name for name in names if Path(name).suffix == path.suffix}
        meant = alike.get(near_match(path.stem, alike, 0.6)) or next((name for name in usual if name in names), "")
        return str(place / meant) if meant else ""
    return ""


def refuse_no_path(flag: str, text: str, instead: str, usual: Iterable[str] = (), folder: bool = False) -> NoReturn:
    """Raise UsageError for an option's path that is not a file (or not a folder, if `folder`).

    `instead`: the hint if no similar path exists.
    """
    meant = near_path(text, usual, folder)
    is_other, other, none = (os.path.isfile, "a file", "folder") if folder else (os.path.isdir, "a folder", "file")
    what = other if is_other(os.path.expanduser(text)) else f"no such {none}"
    raise UsageError(f"{flag} {text}: {what}", f"{flag} {shlex.quote(meant)}" if meant else instead)


def near_program(folder: Path, typed: str) -> str:
    """The program in the folder's pyproject.toml that may be meant; empty if none is similar, or `typed` is one."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # it may hold anything
        content = plain_file.read(folder / "pyproject.toml", _MOST, folder).decode()
        names = set(toml_text.loads(content)["project"]["scripts"].keys())
        return "" if typed in names else near_match(typed, names, 0.8)
    return ""
