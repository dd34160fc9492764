"""A file that a failed script did not have because Muster left it out of the folder, or a package that nothing has."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ..core.errors import DeployError
from . import code_layer, left_out, path_entry, selection
from .credentials import Choice
from .model import WORKSPACE

_MISSING = re.compile(r"No such file|FileNotFoundError|not found|does not exist|cannot open|[Uu]nable to (?:find|open)")
_WORDS = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"|([^\s'\":,;()]+)")
_MODULE = re.compile(r"No module named '?([A-Za-z_][\w.]{0,200})")
_MOST = 200  # words; a host chooses the text


def hint(words: str, folder: Path, choice: Choice) -> str:
    """What brings the file or the module that these last `words` miss; empty if no word of them is known."""
    modules = _MODULE.findall(words)[-1:]
    paths = [*named(words), *(path for module in modules for path in _files_of(module))]
    candidates = [path for path in dict.fromkeys(paths) if os.path.exists(folder / path)]
    package = next((module.partition(".")[0] for module in modules), "")
    if not candidates:
        return f"add the package that has {package} to requirements.txt in {_shown(folder)}" if package else ""
    try:
        selected = selection.select(folder, choice.include)
        sent = {entry.path for entry in code_layer.entries(folder, choice)}
        for path in candidates:
            if path not in sent:
                return _how(path, folder, choice, selected)
    except DeployError:
        pass  # the folder has changed since
    return ""


def named(words: str) -> Iterator[str]:
    """What may be a path in the folder, in the lines that miss a file. Pure."""
    lines = (line for line in words.splitlines() if _MISSING.search(line))
    paths = [next(filter(None, match.groups())) for line in lines for match in _WORDS.finditer(line)]
    for word in paths[:_MOST]:
        top = f"{WORKSPACE}/"
        path = word[word.rindex(top) + len(top) :] if word.startswith("/") and top in word else word
        path = os.path.normpath(path)
        if path != "." and not path.startswith(("/", "..")) and "\0" not in path:
            yield PurePosixPath(path).as_posix()


def _files_of(module: str) -> Iterator[str]:
    """Where the folder may have the module, the innermost first: `data.text` is data/text.py, data/text, or data."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end])
        yield from (f"{path}.py", path)


def _shown(folder: Path) -> str:
    return "the folder" if folder == Path() else shlex.quote(str(folder))


def _how(path: str, folder: Path, choice: Choice, selected: selection.Selection) -> str:
    entry = path_entry.read(folder, path)
    if entry is None:
        return ""
    if left_out.find(folder, {path: entry}, replace(choice, include=frozenset())):
        how = f"--env-file {path}" if PurePosixPath(path).name == ".env" else f"--secret-file NAME={shlex.quote(path)}"
        return f"{path} was not sent, because it looks like a credential: {how}"
    by_rule = selected.rule == ".dockerignore" or left_out.is_below(path, selected.ignored)
    why = f" ({selected.rule} names it)" if by_rule else ""
    # The folder around it, if that is named as a whole: the script most likely reads more of it.
    above = [parent for parent in selected.ignored if path.startswith(f"{parent}/")]
    named = dict.fromkeys([*sorted(choice.include), min(above, key=len, default=path)])
    return f"{path} was not sent{why}: {' '.join(f'--include {shlex.quote(name)}' for name in named)}"
