"""Packages without a wheel in an index: packages in the folder, git sources, source archives. Each host builds them.

This machine only reads what such a package needs, if its own files tell; and it rewrites the files that refer to the
package, so that they refer to a stub. No code of such a package runs here.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....core import toml_text
from ....core.errors import DeployError, UsageError
from ....core.program import hosts_as_typed
from .. import project_file
from ..inside.tools import FROM_BASE, NEED, normal
from ..requirements import Requirements
from ..settings import drop_logins
from ..store import NAME, VERSION, Content, Source
from . import archives

_DYNAMIC = {"name", "version", "dependencies", "optional-dependencies"}
_MOST = 1 << 20
_LINE = re.compile(
    r"^(\s*)(?:(?:-e|--editable)(?:\s+|=))?([\w.-]+(?:\[[^\]]*\])?\s*@\s*)?([^\s;]+?)(\[[^\]]*\])?(\s*;.*)?$"
)


def of_folder(needs: Requirements, folder: Path) -> list[Source]:
    """The packages in the folder, with what their pyproject.toml declares. Raises UsageError."""
    own = []
    for package, editable in needs.packages:
        start = "" if package == "." else f"{package}/"
        rows = [(path, digest) for path, digest in needs.digests if path.startswith(start)]
        key = _key("folder", package, editable, rows)
        path = posixpath.normpath(f"{package}/pyproject.toml")
        content = _of_file(folder / path, [digest for name, digest in rows if name == path])
        own.append(_described(Source(key, "folder", package, editable=editable), content, path))
    packed = [(path, content) for path, content in needs.archives if not archives.is_wheel(path)]
    own += [Source(_key("folder", path, content), "folder", path) for path, content in packed]
    return own


def of_git(words: Mapping[str, Content]) -> list[Source]:
    """The fetched git sources, keyed by address, in this order. Raises UsageError."""
    own = []
    for number, (word, content) in enumerate(words.items()):
        inner = re.search(r"[#&]subdirectory=([^&]+)", word)
        inside = posixpath.normpath(inner[1]) if inner else ""
        if inside.startswith(("/", "..")):
            raise UsageError(f"{drop_logins(word)}: subdirectory={inside} is outside the source")
        name = f"git-{number}.tar"
        source = Source(_key("git", content, inside), "git", name, subdirectory=inside)
        path = posixpath.normpath(posixpath.join(inside, "pyproject.toml"))
        own.append(_described(source, _of_tar(content, path), f"{drop_logins(word)}: {path}"))
    return own


def of_archives(contents: Mapping[str, Content]) -> list[Source]:
    """The fetched source archives, keyed by address, in this order."""
    rows = enumerate(contents.values())
    return [Source(_key("archive", content), "archive", f"archive-{number}.tar") for number, content in rows]


def of_index(line: str, name: str, version: str, url: str) -> Source:
    """A package for which an index has only a source archive. `line`: its line in a lock."""
    return Source(_key("index", line), "index", line, name, version, url=url)


def with_stubs(text: str, path: str, local: Mapping[str, Path], far: Mapping[str, Path]) -> str:
    """Requirement lines that refer to stubs in place of packages in the folder, git sources and archives.

    text: one requirement a line, without comments. path: the file's own path. local: stubs by path in the folder. far:
    stubs by address. Raises UsageError for a requirement that would still lead elsewhere.
    """
    return "\n".join([*(_with_stub(row, path, local, far) for row in text.split("\n")), ""])


def _with_stub(row: str, path: str, local: Mapping[str, Path], far: Mapping[str, Path]) -> str:
    if not row.strip() or (row.lstrip().startswith("-") and not re.match(r"\s*(-e|--editable)\b", row)):
        return row
    plain = re.split(r"\s+(?=--hash[\s=])", row)[0]
    match = _LINE.match(plain)
    word = match[3] if match else ""
    inner = re.sub(r"^file:(//(?=/))?", "", word)
    is_path = "/" in inner or inner.startswith(".")
    own = _of_address(word, far) or (
        local.get(posixpath.normpath(posixpath.join(posixpath.dirname(path), inner))) if is_path else None
    )
    if not own and NEED.fullmatch(plain.strip()):
        return row
    if not match or not own:
        raise UsageError(
            f"{path}: {plain.strip()[:300]}: not a requirement that Muster understands",
            "NAME==VERSION, or NAME @ https://...",
        )
    name = match[2] or f"{own.name.split('-')[0]}{match[4] or ''} @ "
    return f"{match[1]}{name}{own.as_uri()}{match[5] or ''}"  # without hashes: those are of the package itself


def known_need(need: str, far: Mapping[str, Path], who: str) -> str:
    """A package's requirement in the form that uv may read: a name with versions, or the stub of what the user allowed.

    far: stubs by address. who: the package, for a message. Raises UsageError for any other requirement: the user was
    not asked about it.
    """
    if NEED.fullmatch(need):
        return need
    name, _, rest = need.partition("@")
    address, gap, marker = rest.strip().partition(" ;")
    stub = _of_address(address.strip(), far)
    if not stub or not NEED.fullmatch(name.strip()) or not NEED.fullmatch(f"x;{marker}"):
        raise UsageError(
            f"{who} needs {drop_logins(need)[:300]!r}, which you were not asked about",
            "if you trust it, list it in the requirements file too: NAME @ https://...",
        )
    return f"{name.strip()} @ {stub.as_uri()}{gap}{marker}"


def _of_address(word: str, far: Mapping[str, Path]) -> Path | None:
    """The stub for an address, which may be followed by a hash or another name."""
    plain = drop_logins(word)
    return far.get(plain) or far.get(plain.partition("#")[0])


def refuse_elsewhere(own: Sequence[Source], names: Sequence[str]) -> None:
    """Raise UsageError for a package whose [tool.uv.sources] takes a package from a place where Muster does not look.

    An index could have something else under that name. `names`: packages that come with the folder.
    """
    known = set(map(normal, names))
    for source in own:
        if unknown := [name for name in source.taken if normal(name) not in known]:
            raise UsageError(
                f"{shown(source)}: its [tool.uv.sources] takes {unknown[0][:100]} from a place of its own",
                "uv lock records the source; or list that package in the requirements file too",
            )


def agree(rows: Mapping[str, Mapping[str, Any]], source: Source) -> Source:
    """The source, with what all hosts report about their own builds of it. Raises Differ, which lists the odd hosts.

    What the source's own files declare is kept: then the build only makes the wheel.
    """
    answers = {
        host: (normal(row["name"]), row["version"], tuple(row["requires"]), tuple(row["extras"]))
        for host, row in rows.items()
    }
    for host, (name, version, *_) in answers.items():
        other = source.kind == "index" and source.version not in ("", version)
        if source.name and (name != normal(source.name) or other):
            raise DeployError(f"{host}: its build of {shown(source)} made {name} {version}", "correct the package")
    if source.name and not source.described:
        return source
    counts = list(answers.values())
    usual = max(counts, key=counts.count)
    if odd := [host for host, what in answers.items() if what != usual]:
        raise Differ(shown(source), odd, [host for host in answers if host not in odd])
    name, version, requires, extras = usual
    return replace(source, name=name, version=version, requires=requires, extras=extras, described=True)


class Differ(DeployError):
    """Raised if hosts report different things about a package that each of them built."""

    def __init__(self, what: str, odd: Sequence[str], others: Sequence[str]) -> None:
        super().__init__(
            f"{', '.join(odd)}: its build of {what} needs something other than that of {', '.join(others)}",
            f"leave the host out: --hosts {hosts_as_typed(','.join(others))}; "
            "or let its pyproject.toml say what it needs",
        )


def shown(source: Source) -> str:
    """A source's name in messages."""
    return source.place.split(" --hash")[0] if source.kind != "git" else source.name or "a git source"


def _described(source: Source, content: bytes, where: str) -> Source:
    """The source with its pyproject.toml's data; unchanged if only a build can tell them. Raises UsageError."""
    try:
        table = toml_text.loads(content.decode("utf-8-sig"))
        project, own = table.get("project", {}), table.get("tool", {}).get("uv", {}).get("sources", {})
    except (ValueError, AttributeError, RecursionError) as fault:
        raise UsageError(f"{where}: {fault}", "correct the file, or: --requirements no") from fault
    if not isinstance(project, dict) or not isinstance(own, dict):
        raise UsageError(f"{where}: [project] and [tool.uv.sources] are tables", "correct the file")
    source = replace(source, taken=tuple(name for name in own if not FROM_BASE.fullmatch(normal(name))))
    name, version = project.get("name"), project.get("version")
    if (
        not isinstance(name, str)
        or not isinstance(version, str)
        or _DYNAMIC & set(project_file.texts([project.get("dynamic")]))
    ):
        return source
    if not re.fullmatch(NAME, name) or not re.fullmatch(VERSION, version):
        raise UsageError(f"{where}: {name[:100]!r} {version[:100]!r} is not the name and version of a package")
    optional = project.get("optional-dependencies", {})
    needs = [*_needs(project.get("dependencies", []), where)]
    for extra, rows in optional.items() if isinstance(optional, dict) else ():
        if not re.fullmatch(NAME, extra):
            raise UsageError(f"{where}: {extra[:100]!r} is not the name of an extra")
        for need in _needs(rows, where):
            head, _, marker = need.partition(";" if "@" not in need else " ;")
            needs.append(f"{head.strip()} ; {f'({marker.strip()}) and ' if marker else ''}extra == '{normal(extra)}'")
    extras = tuple(optional) if isinstance(optional, dict) else ()
    return replace(source, name=name, version=version, requires=tuple(needs), extras=extras)


def _needs(rows: object, where: str) -> Iterable[str]:
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise UsageError(f"{where}: dependencies are a list of texts", "correct the file")
    for row in rows:
        need = drop_logins(" ".join(row.split()))
        if not is_need(need):
            raise UsageError(f"{where}: {need[:200]!r} is not a requirement that Muster can install")
        yield need


def is_need(text: str) -> bool:
    """Whether a package may have this requirement: from an index, or from an address that hosts reach too."""
    name, at, address = text.partition("@")
    address = address.strip()
    reached = re.match(r"(git\+)?(https?|ssh)://", address)
    return bool(NEED.fullmatch(text) or (at and NEED.fullmatch(name.strip()) and reached)) and text.isprintable()


def _of_file(path: Path, digests: list[str]) -> bytes:
    """The file's content, if its digest is one of these: no other file on this machine may be read in its place."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST)
    except OSError:
        return b""
    return content if hashlib.sha256(content).hexdigest() in digests else b""


def _of_tar(content: Content, path: str) -> bytes:
    with tarfile.open(fileobj=archives.opened(content)) as tar:
        for entry in tar:
            if entry.name == path and entry.isreg() and (file := tar.extractfile(entry)):
                return file.read(_MOST)
    return b""


def _key(*parts: object) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, Content) else repr(part).encode())
        whole.update(b"\0")
    return whole.hexdigest()[:32]
