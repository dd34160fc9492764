"""The file that says which packages a project needs: chosen, read with all that it names, and made into a key. Pure but
for the reading of files of the folder."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from .settings import without_logins

NO = "no"
# In this order; a pyproject.toml only if it is a project's.
DEFAULT_FILES = ("uv.lock", "requirements.txt", "pyproject.toml")
_INCLUDE = re.compile(r"(?:-r|--requirement|-c|--constraint)(?:\s+|=)(\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(\S.*)")
_LOCAL = re.compile(r"(?:[\w.-]+(?:\[[^\]]*\])?\s*@\s*)?(?:file:)?(\.{1,2}(?:/.*)?|/.*)")
SOURCE = re.compile(r"\bgit\+(?:https?|ssh|file)://[^\s;\"']+")
_OTHERSOURCE = re.compile(r"\bgit\+|\bhg\+|\bsvn\+|\bbzr\+")
_OWN_OPTIONS = re.compile(r"--(?:index-url|extra-index-url|find-links|trusted-host)|-i\s|-f\s")
_MOST = 1 << 20  # bytes of one file


@dataclass(frozen=True)
class Requirements:
    """What a project needs. `path` in the folder. `files`: all that are read, by their paths, the first one `path`.

    `kind`: how uv reads it; `project`: a pyproject.toml whose project is itself installed. `packages`: folders of the
    project that are packages to build, each with whether it is editable. `git`: sources that this machine fetches.
    `unsent`: those of the files that the hosts do not have.
    """

    path: str
    kind: str
    files: tuple[tuple[str, bytes], ...]
    packages: tuple[tuple[str, bool], ...] = ()
    git: tuple[str, ...] = ()
    unsent: tuple[str, ...] = ()

    def key(self, *more: object) -> str:
        """A digest of all this and of `more`: the same needs on the same base have the same packages."""
        files = [(path, hashlib.sha256(content).hexdigest()) for path, content in self.files]
        text = json.dumps([self.path, self.kind, files, self.packages, *more], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def find(folder: Path, asked: str, sent: Collection[str]) -> tuple[str, bool]:
    """The path of the file in the folder, and whether Muster found it by itself; "" if there is none, or `asked` is no.

    `sent`: the paths of the folder that are sent. Raises UsageError for a file that is not there, or is not sent.
    """
    if asked == NO:
        return "", False
    if asked:
        path = _inside(folder, asked)
        if path not in sent:
            why = "Muster does not send it" if (folder / path).is_file() else f"no such file in {folder.resolve()}"
            raise UsageError(
                f"--requirements {asked}: {why}", "name it as seen from --folder: --requirements requirements.txt"
            )
        return path, False
    for name in DEFAULT_FILES:
        if name in sent and (name != "pyproject.toml" or _is_project(folder / name)):
            return name, True
    return "", False


def read(folder: Path, path: str, sent: Collection[str]) -> Requirements:
    """The file and all that it names. Raises UsageError for what cannot work on a host, with file and line."""
    name = posixpath.basename(path)
    here = posixpath.dirname(path)
    if name in ("uv.lock", "pyproject.toml"):
        return _project(folder, path, name, here, sent)
    files, packages = dict[str, bytes](), dict[str, bool]()
    _read_into(folder, path, sent, files, packages)
    git = [word for path, content in files.items() for _, line in lines(content) for word in SOURCE.findall(line)]
    contents = (*files.items(), *_contents(folder, packages, sent))
    return Requirements(path, "file", contents, tuple(packages.items()), tuple(dict.fromkeys(git)))


def _project(folder: Path, path: str, name: str, here: str, sent: Collection[str]) -> Requirements:
    project = posixpath.join(here, "pyproject.toml")
    if name == "uv.lock" and project not in sent:
        raise UsageError(
            f"{path}: there is no pyproject.toml beside it", "uv.lock belongs to a project: uv init makes one"
        )
    table = _toml(folder / project, project)
    if name != "uv.lock" and not _is_project(folder / project):
        raise UsageError(
            f"{path}: it has no [project] with dependencies", "name a requirements.txt: --requirements FILE"
        )
    packaged = "build-system" in table or bool(table.get("tool", {}).get("uv", {}).get("package"))
    packages = {here or ".": True} if packaged else {}
    for entry in table.get("tool", {}).get("uv", {}).get("sources", {}).values():
        if isinstance(entry, dict) and isinstance(entry.get("path"), str):
            packages[_inside(folder, posixpath.join(here, entry["path"]), f"{path}: {entry['path']}")] = bool(
                entry.get("editable")
            )
    text = (folder / path).read_text(errors="replace") if name == "uv.lock" else ""
    for match in re.finditer(r'source = \{ (editable|directory|virtual) = "([^"]+)" \}', text):
        local = _inside(folder, posixpath.join(here, match[2]))
        if match[1] != "virtual":
            packages[local] = match[1] == "editable"
    git = [
        f"git+{url}@{commit}" for url, commit in re.findall(r'source = \{ git = "([^"?#]+)[^"#]*#([0-9a-f]+)"', text)
    ]
    git += SOURCE.findall(project_text := _content(folder, project).decode(errors="replace"))
    if name != "uv.lock" and re.search(r"\bgit\s*=\s*[\"']", project_text):
        raise UsageError(f"{path}: [tool.uv.sources] names a git repository", "lock it first: uv lock")
    files = {file: _content(folder, file) for file in dict.fromkeys((path, project))}
    kind = "uv.lock" if name == "uv.lock" else "project" if packaged else "file"
    contents = (*files.items(), *_contents(folder, packages, sent))
    return Requirements(path, kind, contents, tuple(packages.items()), tuple(dict.fromkeys(git)))


def _read_into(
    folder: Path, path: str, sent: Collection[str], files: dict[str, bytes], packages: dict[str, bool]
) -> None:
    if path in files:
        return
    files[path] = _content(folder, path)
    here = posixpath.dirname(path)
    for number, line in lines(files[path]):
        if match := _INCLUDE.match(line):
            inner = _inside(folder, posixpath.join(here, match[1].strip("\"'")), f"{path}:{number}: {line}")
            if inner not in sent:
                raise UsageError(f"{path}:{number}: {line}: no such file in {folder.resolve()}, or it is not sent")
            _read_into(folder, inner, sent, files, packages)
        elif SOURCE.search(line):
            continue
        elif _OTHERSOURCE.search(line):
            raise UsageError(
                f"{path}:{number}: {without_logins(line)}: no source that Muster can fetch",
                "NAME @ git+https://... or git+ssh://...",
            )
        elif match := _EDITABLE.match(line):
            packages[_package(folder, here, match[1], f"{path}:{number}: {line}", sent)] = True
        elif match := _LOCAL.fullmatch(line.split(" ;")[0].split(" #")[0].strip()):
            if not match[1].endswith((".whl", ".tar.gz", ".zip")):
                packages.setdefault(_package(folder, here, match[1], f"{path}:{number}: {line}", sent), False)
            else:
                inner = _inside(folder, posixpath.join(here, match[1]), f"{path}:{number}: {line}")
                if inner not in sent:
                    raise UsageError(
                        f"{path}:{number}: {line}: no such file in {folder.resolve()}, or it is not sent",
                        f"if a .gitignore names it: --include {inner}",
                    )
                files[inner] = _content(folder, inner, 256 << 20)


def lines(content: bytes) -> Iterator[tuple[int, str]]:
    """The lines of a requirements file with their numbers, without comments and blank ones."""
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        text = re.sub(r"(^|\s)#.*$", "", line).strip().rstrip("\\").strip()
        if text:
            yield number, text


def own_indexes(requirements: Requirements) -> Iterator[str]:
    """Each line that names an index of its own, with file and number."""
    for path, content in requirements.files:
        if path.endswith((".txt", ".in")):
            for number, line in lines(content):
                if _OWN_OPTIONS.match(line):
                    yield f"{path}:{number}"


def _package(folder: Path, here: str, text: str, where: str, sent: Collection[str]) -> str:
    path = _inside(folder, posixpath.join(here, re.sub(r"\[[^\]]*\]$", "", text.strip("\"'"))), where)
    if not any(posixpath.normpath(posixpath.join(path, name)) in sent for name in ("pyproject.toml", "setup.py")):
        raise UsageError(f"{where}: {path} is not a package among the sent files: it has no pyproject.toml or setup.py")
    return path


def _contents(folder: Path, packages: dict[str, bool], sent: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """What decides how local packages are built: all their files; of an editable one what describes it."""
    for package, editable in packages.items():
        start = "" if package == "." else f"{package}/"
        for path in sorted(path for path in sent if path.startswith(start)):
            inner = path.removeprefix(start)
            described = "/" not in inner and (not inner.endswith(".py") or inner == "setup.py")
            if not editable or described:
                yield path, hashlib.sha256(_content(folder, path, 256 << 20)).digest()


def _inside(folder: Path, path: str, where: str = "") -> str:
    """The path as the list of sent files has it."""
    if posixpath.isabs(path):
        path = posixpath.relpath(path, folder.resolve().as_posix())
    normal = posixpath.normpath(path)
    if normal.startswith(".."):
        raise UsageError(
            f"{where or f'--requirements {path}'}: it is outside the folder that is sent ({folder.resolve()})",
            "send the folder above both: --folder ..",
        )
    return normal


def _is_project(path: Path) -> bool:
    table = _toml(path, path.name).get("project", {})
    return isinstance(table, dict) and ("dependencies" in table or "dependencies" in table.get("dynamic", ()))


def _toml(path: Path, shown: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as fault:
        raise UsageError(f"{shown}: {fault}", "correct the file, or: --requirements no") from fault


def _content(folder: Path, path: str, most: int = _MOST) -> bytes:
    try:
        content = (folder / path).read_bytes()
    except OSError as fault:
        raise UsageError(f"{path}: cannot be read: {fault.strerror}") from fault
    if len(content) > most:
        raise UsageError(f"{path}: {len(content)} bytes are more than a requirements file has")
    return content


def reasons(paths: Sequence[str]) -> str:
    """Paths in a message: at most three."""
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
