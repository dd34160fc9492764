"""A file that a failed script did not have because Muster left it out of the folder, or a package that nothing has."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ...core.errors import DeployError, UsageError
from ...core.near import near_file
from ...job.secrets import read_env_file
from . import content, credentials, folder_look, folder_walk, left_out, named_paths, selection
from .credentials import Choice

_MODULE = re.compile(r"No module named '?([A-Za-z_][\w.]{0,200})")
_VARIABLE = re.compile(r"KeyError: '([A-Za-z_]\w{0,200})'")
# Where a folder has its modules, as Python and most packages look for them.
_ROOTS = ("", "src/")
# What to write into, where one of these names the packages.
_LISTS = {"uv.lock": "pyproject.toml, and run uv lock", "pyproject.toml": "`dependencies` in pyproject.toml"}
# Paths that a script may mean on its hosts, and folders that are an image's own or the run's.
_ON_HOSTS = re.compile(r"/[\w./@+-]{1,200}")
_OF_IMAGES = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib64", "muster", "opt", "proc", "root", "run", "sbin", "sys", "tmp", "usr"}
    | {"var", "venv", "workspace"}
)
_FILES = 8  # that one hint names
_MOST_SEEN = 10_000  # of a folder's files


def hint(
    words: str,
    folder: Path,
    choice: Choice,
    needs: str = "",
    run: str = "",
    host_paths: Collection[str] | None = None,
    open_end: bool = True,
) -> str:
    """What brings the file, the module or the variable that these last `words` miss; empty if no word of them is known.

    `needs`: the file of the folder that names its packages, if it has one. `run`: the run's id. `host_paths`: of the
    paths that the words name, those that the rank's host has (named_paths.py); None: unknown. `open_end`: the run's
    end has no other cause, so that any path in the words may be what it misses.
    """
    modules = _MODULE.findall(words)[-1:]
    sure = named_paths.sure(words, run)
    named = _of_folder([*sure])
    alike = frozenset(_of_folder([path for path, is_like in sure.items() if is_like]))
    if host_paths is not None and open_end:
        maybe = _of_folder(named_paths.maybe(words, run))
        named += [path for path in maybe if not _is_on(named_paths.within(path)[0], host_paths)]
    missing = _Missing(named, alike, [path for module in modules for path in _files_of(module)], host_paths)
    if how := _not_sent(missing, folder, choice):
        return how
    if modules:
        return _of_module(modules[0], folder, needs)
    return _of_typo(_of_folder([*sure]), folder, host_paths) or _of_variable(words, folder, choice)


def _of_folder(paths: Sequence[str]) -> list[str]:
    """Return the paths that lie in the script's folder, relative to it."""
    top = named_paths.WORK
    return [path.removeprefix(top) for path in paths if path.startswith(top)]


def _is_on(path: str, host_paths: Collection[str] | None) -> bool:
    return host_paths is not None and f"{named_paths.WORK}{path}" in host_paths


def _of_typo(paths: Sequence[str], folder: Path, host_paths: Collection[str] | None) -> str:
    """The file of the folder that a missing path may mean."""
    for path in (PurePosixPath(path) for path in paths if not named_paths.within(path)[1]):
        if path.suffix and not os.path.exists(folder / path) and not _is_on(str(path), host_paths):
            meant = near_file(folder / path.parent, path.name, path.suffix)
            if meant:
                return f"the folder has no {path}: did you mean {path.parent / meant}?"
    return ""


@dataclass(frozen=True)
class _Missing:
    """What an error message names, and what the host has.

    `named`: paths. `alike`: those among them that look like a path and not like a bare word. `of_modules`: files of the
    modules that the message names. `there`: the named paths that the host has; None: unknown."""

    named: Sequence[str]
    alike: Collection[str]
    of_modules: Sequence[str]
    host_paths: Collection[str] | None


def _not_sent(missing: _Missing, folder: Path, choice: Choice) -> str:
    """The option for the first of these paths that stayed here, or of whose folder something did."""
    wanted = {name: named_paths.within(name) for name in dict.fromkeys(missing.named)}
    paths = [*(path for path, _ in wanted.values()), *missing.of_modules]
    if not any(os.path.exists(folder / path) for path in paths):
        return ""
    try:
        selected = selection.select(folder, choice.include)
        sent = {entry.path for entry in folder_look.entries_of(folder, choice)}
        for name, (path, pattern) in wanted.items():
            # The rank may have made the folder itself, and miss what should be in it.
            if not os.path.isdir(folder / path) and _is_on(path, missing.host_paths):
                continue
            stayed = path if path and path not in sent else ""
            if not stayed and name in missing.alike:
                stayed = _inside(path, pattern, folder, sent)
            if stayed and os.path.exists(folder / stayed):
                return _how(stayed, folder, choice, selected)
        for path in missing.of_modules:
            if path not in sent and os.path.exists(folder / path):
                return _how(path, folder, choice, selected)
    except DeployError:
        pass  # the folder has changed since
    return ""


def _inside(path: str, pattern: str, folder: Path, sent: Collection[str]) -> str:
    """A file that stayed here in a folder of which a part was sent: one that the pattern means, if there is one."""
    if not (path or pattern):
        return ""
    for name in itertools.islice(_files_in(folder, path), _MOST_SEEN):
        below = name.removeprefix(f"{path}/")
        meant = not pattern or fnmatch.fnmatchcase(below, pattern.replace("**/", "*"))
        if meant and name not in sent and not credentials.place_of(name):
            return name
    return ""


def _files_in(folder: Path, path: str) -> Iterator[str]:
    """The files below a path, in order, but for caches."""
    for place, folders, files in os.walk(folder / path):
        inside = Path(place).relative_to(folder)
        folders[:] = sorted(name for name in folders if not folder_walk.is_usual((inside / name).as_posix()))
        names = ((inside / name).as_posix() for name in sorted(files))
        yield from (name for name in names if not folder_walk.is_usual(name))


def _of_module(module: str, folder: Path, needs: str) -> str:
    """What to do about a module that the folder does not keep back."""
    top = module.partition(".")[0]
    if top == "muster":  # each run has it: the script imports another one, which its rank's node names
        return ""
    root = next((root for root in _ROOTS if _has(folder, f"{root}{top}")), None)
    if root is None:
        return (
            f"add the package that has {top} to {_LISTS.get(needs, needs or f'a requirements.txt in {_shown(folder)}')}"
        )
    path = f"{root}{module.replace('.', '/')}"
    if _has(folder, path):
        return ""
    meant = near_file(folder, f"{path}.py", ".py")
    missing = f"{root}{top} has no {path.removeprefix(f'{root}{top}/')}.py"
    name = meant.removeprefix(root).removesuffix(".py").replace("/", ".")
    return f"{missing}: did you mean {name}?" if meant else missing


def _of_variable(words: str, folder: Path, choice: Choice) -> str:
    """The option that gives a variable whose .env stayed here."""
    wanted = _VARIABLE.findall(words)[-1:]
    path = folder / ".env"
    if not wanted or ".env" in choice.include or wanted[0] in choice.values or path.is_symlink() or not path.is_file():
        return ""
    try:
        has = wanted[0] in read_env_file(path)
    except UsageError:
        return ""
    return f"{wanted[0]} is in .env, which stayed here: --env-file .env gives its variables to the ranks" if has else ""


def of_hosts(words: str, options: str) -> str:
    """The option that mounts what these `words` of a run on hosts miss; empty if it lies in the image or a mount.

    `options`: those of the deploy, as typed.
    """
    for word in named_paths.in_lines(words):
        parts = PurePosixPath(os.path.normpath(word)).parts
        if not _ON_HOSTS.fullmatch(word) or len(parts) < 3 or parts[1] in _OF_IMAGES:
            continue
        # /data/imagenet/train is part of /data/imagenet; /home/me is not the data of /home/me/data.
        top = "/" + "/".join(parts[1 : min(len(parts) - 1, 4 if parts[1] == "home" else 3)])
        if f":{top}" not in options:
            return f"the container has no {word}; if the hosts have it: --mount {top}:{top}"
    return ""


def _is_data_beside(name: str, path: str) -> bool:
    """Whether it lies in the same folder, below the top, and is not a credential."""
    beside = PurePosixPath(path).parent
    alike = name != path and beside != PurePosixPath() and PurePosixPath(name).parent == beside
    return alike and not credentials.place_of(name)


def _files_of(module: str) -> Iterator[str]:
    """Where the folder may have the module, the innermost first: `data.text` is data/text.py, data/text, or data."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        for root in _ROOTS:
            path = root + "/".join(parts[:end])
            yield from (f"{path}.py", path)


def _has(folder: Path, path: str) -> bool:
    return (folder / path).is_dir() or (folder / f"{path}.py").is_file()


def _shown(folder: Path) -> str:
    return "the folder" if folder == Path() else shlex.quote(str(folder))


def _how(path: str, folder: Path, choice: Choice, selected: selection.Selection) -> str:
    entry = content.read_entry(folder, path)
    if entry is None:
        return ""
    if left_out.find(folder, {path: entry}, replace(choice, include=frozenset())):
        how = f"--env-file {path}" if PurePosixPath(path).name == ".env" else f"--secret-file NAME={shlex.quote(path)}"
        return f"{path} was not sent, because it looks like a credential: {how}"
    by_rule = selected.rule == ".dockerignore" or left_out.is_below(path, selected.ignored)
    why = f" ({selected.rule} names it)" if by_rule else ""
    # The folder around it, if that is named as a whole; else what else of it stayed here. The script reads that too.
    above = [parent for parent in selected.ignored if path.startswith(f"{parent}/")]
    beside = [name for name in selected.ignored if _is_data_beside(name, path)]
    wanted = [min(above, key=len)] if above else [path, *beside] if len(beside) < _FILES else [path]
    named = [name for name in sorted(choice.include) if not any(name.startswith(f"{each}/") for each in wanted)]
    options = " ".join(f"--include {shlex.quote(name)}" for name in dict.fromkeys([*named, *wanted]))
    return f"{path} was not sent{why}: {options}"
