"""Read a pyproject.toml or a uv.lock, and check all that it refers to, as for a requirements file (origins.py)."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from ...core import toml_text
from ...core.errors import UsageError
from .inside.tools import FROM_BASE, NEED, normal, read_name
from .origins import MOST_PACKAGES, Origins

# One part of a `requires-python`; `^` is poetry's.
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<|\^)\s*([0-9]{1,4}(?:\.[0-9]{1,4}){0,2})(\.\*)?")
# A requirement's name and extras; and the character with which its versions, address or marker begin.
_NAMES, _REST = re.compile(r"[\w.-]+"), re.compile(r"[\]<>=!~(;@]")
MOST = 1 << 20  # the most bytes of one file
_NEEDS = ("constraint-dependencies", "override-dependencies", "build-constraint-dependencies", "dev-dependencies")
# Settings that tell uv where to look for packages: an index, more indexes, or a page of links.
_INDEXES = ("index-url", "extra-index-url", "find-links")


def has_needs(origins: Origins, path: str) -> bool:
    """Whether a pyproject.toml lists what a project needs. Raises UsageError if it is not TOML."""
    table = of_project(origins, path, "project")
    dynamic = table.get("dynamic", ())
    return "dependencies" in table or (isinstance(dynamic, list) and "dependencies" in dynamic)


def of_project(origins: Origins, path: str, *names: str) -> Mapping[str, Any]:
    """A table in a pyproject.toml; empty if it has none. Raises UsageError if it is not TOML."""
    return _table(_toml(origins.read(path, MOST), path), *names)


def other_python(text: str, python: str) -> str:
    """The Python range that a pyproject.toml requires, if `python` (3.11.7) is outside it; empty if it is inside.

    A part that cannot be read excludes nothing.
    """
    try:
        table = toml_text.loads(text)
    except ValueError:
        return ""
    asked = _table(table, "project").get("requires-python") or _table(table, "tool", "poetry", "dependencies").get(
        "python"
    )
    clauses = asked.split(",") if isinstance(asked, str) else []
    return "" if all(_allows(clause.strip(), python) for clause in clauses) else str(asked)


def _allows(clause: str, python: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    have = tuple(int(part) for part in python.split(".") if part.isdecimal())
    if not match or not have:
        return True
    want = tuple(map(int, match[2].split(".")))
    whole = (*want, *(0,) * (len(have) - len(want)))
    order = (have > whole) - (have < whole)
    same = have[: len(want)] == want if match[3] else order == 0
    holds = {
        ">=": order >= 0, ">": order > 0, "<=": order <= 0, "<": order < 0, "==": same, "!=": not same,
        "~=": order >= 0 and have[: len(want) - 1] == want[:-1], "^": order >= 0 and have[0] == want[0],
    }  # fmt: skip
    return holds[match[1]]


def read(origins: Origins, path: str) -> tuple[str, dict[str, bytes]]:
    """How uv reads the file, and the files it reads. Adds to `origins` all that they refer to. Raises UsageError."""
    here, is_lock = posixpath.dirname(path), posixpath.basename(path) == "uv.lock"
    project = posixpath.join(here, "pyproject.toml")
    if is_lock and project not in origins.sent:
        raise UsageError(
            f"{path}: there is no pyproject.toml next to it", "uv.lock belongs to a project: uv init creates one"
        )
    if not is_lock and not has_needs(origins, project):
        raise UsageError(
            f"{path}: it has no [project] with dependencies", "give a requirements.txt: --requirements FILE"
        )
    files = {name: _text(origins.read(name, MOST), name) for name in dict.fromkeys((path, project))}
    table = _toml(files[project], project)
    # Only a build tells the dynamic fields; without a [build-system], setuptools builds the project.
    dynamic = "dependencies" not in _table(table, "project") and not is_lock
    packaged = dynamic or bool(_table(table, "tool", "uv").get("package", "build-system" in table))
    if packaged:
        origins.packages[here or "."] = True
    _project(origins, table, here, project, is_lock)
    if is_lock:
        lock = _toml(files[path], path)
        _refuse_stale(origins, lock, here, path)
        _lock(origins, lock, here, path)
    return "uv.lock" if is_lock else "project" if packaged else "file", files


def _project(origins: Origins, table: Mapping[str, Any], here: str, path: str, is_locked: bool) -> None:
    own, tool = _table(table, "project"), _table(table, "tool", "uv")
    used = [own.get("dependencies"), *_table(own, "optional-dependencies").values()]
    named = [_table(table, "build-system").get("requires"), *(tool.get(name) for name in _NEEDS)]
    aside = Origins(origins.folder, origins.sent)  # only checked; nothing is fetched for them
    for takes, lists in ((aside if is_locked else origins, used), (aside, named)):
        for text in _plain_strings(lists, path):
            takes.requirement(text, here, f"{path}: {text[:200]}")
    known, count = {index.get("name") for index in _indexes(table)}, Counter(name for name, _ in _sources(table))
    for name, inner in _sources(table):
        where = f"{path}: the source of {name[:100]}"
        _source(origins, inner, here, where, is_locked)
        alone = {"path", "git", "url"} & set(inner) and count[name] == 1
        if not is_locked and not alone and inner.get("index") not in known and not FROM_BASE.fullmatch(normal(name)):
            raise UsageError(f"{where} is not supported when uv resolves the packages", "lock it first: uv lock")
    for text in texts(_table(tool, "workspace").values()):
        if posixpath.isabs(text) or ".." in text.split("/") or text.startswith("~"):
            raise UsageError(
                f"{path}: [tool.uv.workspace]: {text[:200]}: it is outside the folder", "name a path of it"
            )
    addresses = [index.get("url") for index in _indexes(table)]
    for scope in (tool, _table(tool, "pip")):
        addresses += [scope.get(name) for name in _INDEXES]
    for text in _plain_strings(addresses, path):
        origins.check(text, here, f"{path}: {text[:200]}")
    for index in [] if is_locked else _asked_indexes(table):
        origins.index(str(index.get("url")), here, f"{path}: {str(index.get('url'))[:200]}")


def _plain_strings(values: Any, path: str) -> Iterator[str]:
    """The strings in `values`, which may be lists of strings. Raises UsageError for a variable in one."""
    for text in texts(values):
        if "${" in text or len(text) > 4096:
            raise UsageError(f"{path}: {text[:100]}: Muster puts no variable of this shell into it", "write it out")
        yield text


def _source(origins: Origins, entry: Mapping[str, Any], here: str, where: str, is_locked: bool) -> None:
    if "git" in entry and not is_locked:
        raise UsageError(f"{where} is a git repository", "lock it first: uv lock")
    if isinstance(entry.get("git"), str):
        origins.check_repository(f"git+{entry['git']}", where)
    if isinstance(entry.get("path"), str):
        origins.path(entry["path"], here, f"{where}: {entry['path'][:200]}", bool(entry.get("editable")))
    if isinstance(entry.get("url"), str):
        origins.check(entry["url"], here, where) if is_locked else origins.archive(entry["url"], where)


def _refuse_stale(origins: Origins, lock: Mapping[str, Any], here: str, path: str) -> None:
    """Raise UsageError if the lock is older than a project's request for a package, or for one of its extras."""
    projects = dict[str, Mapping[str, Any]]()
    for row in _tables(lock, "package"):
        place = next(texts(map(_table(row, "source").get, ("virtual", "editable", "directory"))), "")
        project = posixpath.normpath(posixpath.join(here, place, "pyproject.toml"))
        if place and project in origins.sent and len(projects) < MOST_PACKAGES:
            projects.setdefault(project, row)
    for project, row in projects.items():
        needs = [*_tables(_table(row, "metadata"), "requires-dist"), *_tables(row, "dependencies")]
        locked = {(str(need.get("name")), extra) for need in needs for extra in texts(["", need.get("extras")])}
        for text in texts([of_project(origins, project, "project").get("dependencies")]):
            name, *extras = map(normal, _NAMES.findall(_REST.split(text, maxsplit=1)[0]) or [text])
            if not locked.issuperset((name, extra) for extra in ("", *extras)):
                raise UsageError(f"{path}: it was written before {project} asked for {text[:200]}", "uv lock")


def _lock(origins: Origins, table: Mapping[str, Any], here: str, path: str) -> None:
    for row in _tables(table, "package"):
        source, where = _table(row, "source"), f"{path}: {str(row.get('name'))[:100]}"
        for kind in ("editable", "directory", "path"):
            if isinstance(text := source.get(kind), str):
                origins.path(text, here, f"{where}: {text[:200]}", kind == "editable")
        if isinstance(text := source.get("virtual"), str):
            origins.check_inside(text, here, f"{where}: {text[:200]}")
        # Only an archive is fetched from its address in the lock: packages from an index come from the user's own
        # index.
        if isinstance(text := source.get("url"), str):
            pins = [str(file.get("hash")).removeprefix("sha256:") for file in _rows(row)]
            origins.archive(text, f"{where}: {text[:200]}", pins)
        for text in texts([source.get("registry")]):
            origins.check(text, here, f"{where}: {text[:200]}")
        if isinstance(text := source.get("git"), str):
            address, _, commit = text.partition("#")
            if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
                raise UsageError(f"{where}: its git source has no commit", "uv lock")
            address, _, query = address.partition("?")
            inside = parse_qs(query).get("subdirectory", [""])[0]
            origins.repository(f"git+{address}@{commit}{f'#subdirectory={inside}' if inside else ''}", where)
        for file in _rows(row):
            for name in ("url", "path"):
                if isinstance(text := file.get(name), str):
                    origins.check(text, here, f"{where}: {text[:200]}")


def needs_of(text: str) -> list[str]:
    """A project's requirements: all that uv gets from a pyproject.toml, without its addresses, paths and settings."""
    return [" ".join(need.split()) for need in texts([_table(toml_text.loads(text), "project").get("dependencies")])]


def limits_of(text: str, path: str) -> list[list[str]]:
    """The version limits in [tool.uv]: its constraints, and its overrides, which replace every other requirement.

    torch always comes from the base, so it is left out. Raises UsageError for an address.
    """
    tool = _table(toml_text.loads(text), "tool", "uv")
    limits = [[" ".join(need.split()) for need in texts([tool.get(name)])] for name in _NEEDS[:2]]
    for need in (need for needs in limits for need in needs):
        if not NEED.fullmatch(need):
            raise UsageError(
                f"{path}: {need[:200]} is not supported when uv resolves the packages", "lock it first: uv lock"
            )
    return [[need for need in needs if not FROM_BASE.fullmatch(read_name(need))] for needs in limits]


def _sources(table: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The entries of [tool.uv.sources]: each package's name with one table for each of its sources."""
    for name, entry in _table(table, "tool", "uv", "sources").items():
        for inner in entry if isinstance(entry, list) else [entry]:
            if isinstance(inner, dict):
                yield name, inner


def _indexes(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _tables(_table(table, "tool", "uv"), "index")


def _asked_indexes(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The indexes that [tool.uv.sources] refers to by name for some package; only these are asked."""
    names = {inner.get("index") for name, inner in _sources(table) if not FROM_BASE.fullmatch(normal(name))}
    return [index for index in _indexes(table) if isinstance(index.get("url"), str) and index.get("name") in names]


def _rows(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The files of one locked package."""
    yield from filter(None, [_table(row, "sdist"), *_tables(row, "wheels")])


def _table(table: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        inner = table.get(name)
        table = inner if isinstance(inner, dict) else {}
    return table


def _tables(table: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = table.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def texts(values: Any) -> Iterator[str]:
    """The strings in a list of strings and of lists of strings."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (text for text in value if isinstance(text, str))


def _text(content: bytes, path: str) -> bytes:
    try:
        return content.decode("utf-8-sig").encode()
    except UnicodeDecodeError as fault:
        raise UsageError(f"{path}: not UTF-8 text (byte {fault.start})", "save it as UTF-8") from fault


def _toml(content: bytes, path: str) -> dict[str, Any]:
    try:
        return toml_text.loads(_text(content, path).decode())
    except ValueError as fault:
        raise UsageError(f"{path}: {fault}", "correct the file, or: --requirements no") from fault
