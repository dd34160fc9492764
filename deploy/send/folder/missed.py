"""Finds out what a failed script missed: a file that Muster did not send, a package or a variable; and what helps."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath

from ...core import plain_file, toml_text
from ...core.errors import DeployError, UsageError
from ...core.suggest import near_file
from ...explain import libraries
from ...job.option_words import include_of
from ...job.secrets import read_env_file
from . import content, credentials, folder_look, left_out, named_paths, selection
from .credentials import SendChoice

_MODULE = re.compile(r"No module named '?([A-Za-z_][\w.]{0,200})")
# A script of the run in a traceback.
_SCRIPT = re.compile(r'File "(?:[^"\n]{0,400}/)?work/([^"\n]{1,200}\.py)"')
_VARIABLE = re.compile(r"KeyError: '([A-Za-z_]\w{0,200})'")
# Where a folder has its modules: the places where Python and most packages look for them.
_ROOTS = ("", "src/")
# What the user must edit, if one of these files lists the packages.
_LISTS = {"uv.lock": "pyproject.toml, and run uv lock", "pyproject.toml": "`dependencies` in pyproject.toml"}
# Paths that a script may expect on its hosts; and top folders that belong to the image or the run.
_ON_HOSTS = re.compile(r"/[\w./@+-]{1,200}")
_OF_IMAGES = re.compile("bin|boot|dev|etc|lib|lib64|muster|opt|proc|root|run|sbin|sys|tmp|usr|var|venv|workspace")
_MOST_OF_A_LIST = 1 << 20  # bytes of a file that lists packages
_FILES = 8  # the most files that one hint lists


def hint(
    words: str,
    folder: Path,
    choice: SendChoice,
    needs: str = "",
    run: str = "",
    host_paths: Collection[str] = (),
) -> str:
    """What the user can do about the file, module or variable that these last `words` miss; empty if unknown.

    `needs`: the file of the folder that lists its packages, if it has one. `run`: the run's id. `host_paths`: the paths
    in the words that exist on the rank's host.
    """
    modules = _MODULE.findall(words)[-1:]
    paths = [path for path in named_paths.missing(words, run) if path.startswith(named_paths.WORK)]
    # A folder may exist because the rank made it: what should be in it may still be missing.
    inside = [path.removeprefix(named_paths.WORK) for path in paths]
    missing = [path for path in inside if f"{named_paths.WORK}{path}" not in host_paths or (folder / path).is_dir()]
    here = [path for path in missing if os.path.exists(folder / path)]
    here += [path for module in modules for path in _files_of(module) if _is_code(folder / path)]
    for path in here:
        if how := selection.beyond_link(folder, path):
            return how
    if here and (how := _not_sent(here, folder, choice)):
        return how
    if how := _around(named_paths.outside(words, run), folder, os.path.lexists):
        return how
    if modules:
        scripts = [path for path in _SCRIPT.findall(words) if path != needs]
        return _of_module(modules[0], folder, needs, scripts)
    return _of_typo(missing, folder) or _of_variable(words, folder, choice)


def _of_typo(paths: Sequence[str], folder: Path) -> str:
    """The file of the folder whose name is close to a missing path."""
    for path in map(PurePosixPath, paths):
        is_file = path.suffix and not os.path.exists(folder / path)
        if meant := near_file(folder / path.parent, path.name, path.suffix) if is_file else "":
            return f"the folder has no {path}: did you mean {path.parent / meant}?"
    return ""


def _not_sent(here: Sequence[str], folder: Path, choice: SendChoice) -> str:
    """How to send the first of these paths of the folder that was not sent."""
    with suppress(DeployError):  # the folder may have changed
        sent = {entry.path for entry in folder_look.look_at(folder, choice).entries}
        for path in here:
            if path not in sent:
                return _how(path, folder, choice, selection.select(folder, choice.include))
    return ""


def _of_module(module: str, folder: Path, needs: str, scripts: Iterable[str]) -> str:
    """What to do about a missing module that is not a file kept back from the folder. `scripts`: they ran."""
    top = module.partition(".")[0]
    if top == "muster":  # each run has it: the script imports another module, and the rank's node says which
        return ""
    root = next((root for root in _ROOTS if _has(folder, f"{root}{top}")), None)
    if root is None:
        package = libraries.OF_MODULES.get(top, top)
        if how := not_installed(folder, needs, package):
            return how
        if script := next((path for path in scripts if _in_block(folder, path, package)), ""):
            return f"its `# /// script` block lists it: put --requirements {shlex.quote(script)} before the script"
        if needs in _LISTS and (extra := _extra_of(folder / "pyproject.toml", package)):
            how = f"--requirements FILE, with the line -e .[{extra}] in it"
            return f"pyproject.toml lists it in the extra {extra}, which is not installed: {how}"
        if how := _around(_files_of(module), folder, _is_code):
            return how
        package = package if top in libraries.OF_MODULES else f"the package that has {top}"
        place = _LISTS.get(PurePosixPath(needs).name, needs or f"a requirements.txt in {_shown(folder)}")
        return f"add {package} to {place}"
    path = f"{root}{module.replace('.', '/')}"
    if _has(folder, path):
        return f"the folder has {root}{top}, but Python does not look there: -e PYTHONPATH={root.rstrip('/') or '.'}"
    meant = near_file(folder, f"{path}.py", ".py")
    missing = f"{root}{top} has no {path.removeprefix(f'{root}{top}/')}.py"
    name = meant.removeprefix(root).removesuffix(".py").replace("/", ".")
    return f"{missing}: did you mean {name}?" if meant else missing


def not_installed(folder: Path, needs: str, package: str) -> str:
    """Why a package is missing although the file `needs` lists it; empty if the file does not list it."""
    # A lock file also lists packages that the project does not ask for itself, in another format.
    asks = needs.replace("uv.lock", "pyproject.toml")
    line = _line_of(folder / asks, package) if needs else ""
    how = f"--requirements {shlex.quote(needs)} installs it, or says why it cannot"
    return f"{needs} lists {line}, but it is not installed: {how}" if line else ""


def _around(paths: Iterable[str], folder: Path, is_it: Callable[[Path], bool]) -> str:
    """How to send the first of these paths that is outside the folder but in its repository; empty if none is.

    A host chooses the text: so Muster never suggests to send more than the repository.
    """
    top = folder.resolve()
    repository = next((place for place in (top, *top.parents) if os.path.lexists(place / ".git")), top)
    ups = ["../" * up for up in range(len(top.relative_to(repository).parts) + 1)]
    for place in (Path(os.path.normpath(top / up / path)) for path in paths for up in ups):
        if is_it(place) and place.is_relative_to(repository) and not place.is_relative_to(top):
            return selection.outside(top, place)
    return ""


def _line_of(needs: Path, package: str) -> str:
    """The package as this file spells it; empty if the file does not list it."""
    with suppress(OSError, ValueError, KeyError, TypeError):  # the file has no such table, or is not as expected
        text = plain_file.read(needs, _MOST_OF_A_LIST).decode()
        if needs.name == "pyproject.toml":
            text = "\n".join(toml_text.loads(text)["project"]["dependencies"])
        if match := re.search(rf"(?m)(?:^[ \t]*[\"']?|[#&]egg=){_named(package)}", text):
            return match[1]
    return ""


def _in_block(folder: Path, script: str, package: str) -> bool:
    """Whether a script's own block lists the package."""
    with suppress(OSError, ValueError, TypeError, KeyError):  # no such block, or another one
        text = plain_file.read(folder / script, _MOST_OF_A_LIST, folder).decode()
        return any(re.match(_named(package), need) for need in toml_text.of_script(text)["dependencies"])
    return False


def _extra_of(project: Path, package: str) -> str:
    """The extra in a pyproject.toml that lists the package; empty if none does."""
    with suppress(OSError, ValueError, AttributeError, KeyError, TypeError):  # no such table, or another one
        table = toml_text.loads(plain_file.read(project, _MOST_OF_A_LIST).decode())
        for extra, needs in table["project"]["optional-dependencies"].items():
            if re.fullmatch(r"[\w.-]+", extra) and any(re.match(_named(package), need) for need in needs):
                return str(extra)
    return ""


def _named(package: str) -> str:
    """The pattern that matches a package's name in a requirement, in any spelling that an index accepts."""
    name = re.sub(r"[-_.]+", "[-_.]", package.partition("<")[0].removesuffix("-headless"))
    return rf"((?i:{name}(?:-headless)?))[ \t]*(?:[\[<>=!~;@,\"'#]|$)"


def _of_variable(words: str, folder: Path, choice: SendChoice) -> str:
    """The option that passes a missing variable, if it is in a .env file that was not sent."""
    wanted = _VARIABLE.findall(words)[-1:]
    path = folder / ".env"
    if not wanted or ".env" in choice.include or wanted[0] in choice.values or path.is_symlink() or not path.is_file():
        return ""
    try:
        has = wanted[0] in read_env_file(path)
    except UsageError:
        return ""
    return f"{wanted[0]} is in .env, which was not sent: --env-file .env gives it to the ranks" if has else ""


def of_download(folder: Path, choice: SendChoice) -> str:
    """What helps a script whose host cannot reach a download: earlier downloads in this folder that were not sent."""
    ignored: tuple[str, ...] = ()
    with suppress(DeployError):  # the folder may have changed
        ignored = selection.select(folder, choice.include).ignored
    data = [name for name in ignored if not credentials.credential_path(name) and (folder / name).is_dir()][:_FILES]
    if data:
        stays = f"if it is in {', '.join(data)}, which was not sent"
        return f"its host cannot reach that address; {stays}: {include_of(*sorted(choice.include), *data)}"
    return (
        "its host cannot reach that address: download the files here once, into the folder, or use --mount /data:/data"
    )


def of_hosts(words: str, options: str) -> str:
    """The option that mounts what these `words` of a run on hosts miss; empty if the image or a mount should have it.

    `options`: the options of the deploy, as typed.
    """
    for word in named_paths.in_lines(words):
        parts = PurePosixPath(os.path.normpath(word)).parts
        # /data/imagenet for /data/imagenet/train, /data for /data/train; one folder of a home, never the whole home.
        top, least = (parts[1:4], 3) if parts[1:2] == ("home",) else (parts[1:-1][:2], 1)
        if not _ON_HOSTS.fullmatch(word) or len(top) < least or _OF_IMAGES.fullmatch(top[0]):
            continue
        folder = f"/{'/'.join(top)}"
        if f":{folder}" not in options:
            return f"the container has no {word}; if the hosts have it: --mount {folder}:{folder}"
    return ""


def _is_data_beside(name: str, path: str) -> bool:
    """Whether the file is in the same folder as `path`, not at the top, and is not a credential."""
    beside = PurePosixPath(path).parent
    alike = name != path and beside != PurePosixPath() and PurePosixPath(name).parent == beside
    return alike and not credentials.credential_path(name)


def _files_of(module: str) -> Iterator[str]:
    """Where the folder may have the module, the longest path first: `data.text` is data/text.py, data/text, or data."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        for root in _ROOTS:
            path = root + "/".join(parts[:end])
            yield from (f"{path}.py", path)


def _has(folder: Path, path: str) -> bool:
    return _is_code(folder / path) or _is_code(folder / f"{path}.py")


def _is_code(path: Path) -> bool:
    """Whether it is a module, and not a folder of data or of a library's runs (`wandb`) that has a module's name."""
    own = (path,) if path.suffix == ".py" else chain(path.glob("*.py"), path.glob("*/__init__.py"))
    return any(map(Path.is_file, own))


def _shown(folder: Path) -> str:
    return "the folder" if folder == Path() else shlex.quote(str(folder))


def _how(path: str, folder: Path, choice: SendChoice, selected: selection.Selection) -> str:
    entry = content.read_entry(folder, path)
    if entry is None:
        return ""
    if left_out.find(folder, {path: entry}, replace(choice, include=frozenset())):
        option = "--env-file " if PurePosixPath(path).name == ".env" else "--secret-file NAME="
        how = f"{option}{shlex.quote(path)}"
        return f"{path} was not sent, because it looks like a credential: {how}"
    by_rule = selected.rule == ".dockerignore" or left_out.is_below(path, selected.ignored)
    why = f" ({selected.rule} names it)" if by_rule else ""
    # Suggest the folder around the file if the rule names that folder; else also the other files next to it that were
    # not sent, because the script will read them too.
    above = [parent for parent in selected.ignored if path.startswith(f"{parent}/")]
    beside = [name for name in selected.ignored if _is_data_beside(name, path)]
    wanted = [min(above, key=len)] if above else [path, *beside] if len(beside) < _FILES else [path]
    named = [name for name in sorted(choice.include) if not any(name.startswith(f"{each}/") for each in wanted)]
    return f"{path} was not sent{why}: {include_of(*dict.fromkeys([*named, *wanted]))}"
