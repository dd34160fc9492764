"""The name of a run, a host or a file that a user may have meant."""

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


def near(typed: str, names: Iterable[str], alike: float = 0.7) -> str:
    """The name most like what was typed; empty if none is. `alike`: how much at least, 1 for all of it."""
    return next(iter(difflib.get_close_matches(typed, sorted(names), 1, alike)), "")


def hint_of(typed: str, names: Iterable[str]) -> str:
    """The name that may be meant, as a hint; all of them if none is."""
    meant = near(typed, names)
    return f"did you mean {meant}?" if meant else f"there are {', '.join(names)}"


def near_file(folder: Path, path: str, ending: str) -> str:
    """The file with this ending beside `path` in the folder that may be meant; empty if none is."""
    above = PurePosixPath(path).parent
    with suppress(OSError):
        names = [name for name in sorted(os.listdir(folder / above))[:1000] if name.endswith(ending)]
        return near(path, [(above / name).as_posix() for name in names])
    return ""


def near_path(typed: str, usual: Iterable[str] = (), folder: bool = False) -> str:
    """The file of this machine that a path may mean, or the `folder`; empty if none is there.

    That is the folder of a file, one of the `usual` names in a folder or beside the path, or the name most like it.
    """
    path = Path(os.path.expanduser(typed))
    if folder and os.path.isfile(path):
        return str(path.parent)
    place = path if os.path.isdir(path) else path.parent
    with suppress(OSError, ValueError):
        names = [entry.name for entry in sorted(os.scandir(place), key=lambda entry: entry.name)[:1000]
                 if (entry.is_dir() if folder else entry.is_file())]  # fmt: skip
        alike = {Path(name).stem: name for name in names if Path(name).suffix == path.suffix}
        meant = alike.get(near(path.stem, alike, 0.6)) or next((name for name in usual if name in names), "")
        return str(place / meant) if meant else ""
    return ""


def refuse_no_path(flag: str, text: str, instead: str, usual: Iterable[str] = (), folder: bool = False) -> NoReturn:
    """Raise UsageError for an option's path that is no file, or no `folder`. `instead`: the hint if none is like it."""
    meant = near_path(text, usual, folder)
    is_other, other, none = (os.path.isfile, "a file", "folder") if folder else (os.path.isdir, "a folder", "file")
    what = other if is_other(os.path.expanduser(text)) else f"no such {none}"
    raise UsageError(f"{flag} {text}: {what}", f"{flag} {shlex.quote(meant)}" if meant else instead)


def near_program(folder: Path, typed: str) -> str:
    """The program of the folder's pyproject.toml that may be meant; empty if none is, or `typed` is one."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # it may hold anything
        content = plain_file.read(folder / "pyproject.toml", _MOST, folder).decode()
        names = set(toml_text.loads(content)["project"]["scripts"].keys())
        return "" if typed in names else near(typed, names, 0.8)
    return ""
