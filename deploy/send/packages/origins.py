"""Where packages come from, according to files of a folder: an index, an address, a git repository, or the folder.

Somebody else may have written those files, and what reads them later runs as this user. So everything that Muster does
not know is refused here, with file and line; and no file may refer to a place on this machine outside the folder.
"""

from __future__ import annotations

import mmap
import os
import posixpath
import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...core import plain_file
from ...core.errors import UsageError
from ...core.text import amount
from ...job.option_words import include_of
from . import addresses
from .settings import without_logins

MOST_PACKAGES, MOST_SOURCES = 200, 100
_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_REQUIREMENT = re.compile(rf"({_NAME})\s*(?:\[[\w\s,.-]*\])?\s*(?:@\s*(?P<url>\S.*)|(?:[<>=!~(;,].*)?)", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ARCHIVES = (".whl", ".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tar.xz")
_EXTRAS = re.compile(r"\[[^\]]*\]$")
_HASH = re.compile(r"sha256[:=]([0-9a-f]{64})(?![0-9a-f])")
_HOST = re.compile(r"(?:[^@/\s]+@)?\[?[\w.:%-]*\]?(?::\d+)?")


@dataclass
class Origins:
    """What the files of `folder` refer to.

    `sent`: the paths that hosts get. `packages`: folders to build, and whether each is editable. `archives`: files in
    the folder. `git`: repositories that this machine fetches. `remote`: archives that this machine fetches, each with
    the SHA-256 digests that it may have (none: any). `indexes`: addresses that are asked for packages.
    """

    folder: Path
    sent: Collection[str]
    packages: dict[str, bool] = field(default_factory=dict)
    archives: dict[str, None] = field(default_factory=dict)
    git: dict[str, None] = field(default_factory=dict)
    remote: dict[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: dict[str, None] = field(default_factory=dict)
    # Paths that were already checked: a file may repeat a path ten thousand times.
    _inside: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def _top(self) -> Path:
        return self.folder.resolve()

    def requirement(self, text: str, here: str, where: str, editable: bool = False) -> str:
        """Take one requirement; return it with its path, if it has one, as `./PATH` relative to `here`.

        `here`: the folder of its file. `where`: file, line and text, for a message. Raises UsageError.
        """
        spec, *options = re.split(r"\s--(?:hash|config-settings?)[\s=]", text)
        spec, pins = spec.strip(), _HASH.findall(" ".join(options))
        match = _REQUIREMENT.fullmatch(spec)
        at = match.start("url") if match and match["url"] else 0
        if match and not at and not editable and not spec.endswith(_ARCHIVES):
            return text
        word = re.split(r"\s;", spec[at:])[0].strip()
        return f"{text[:at]}{self._address(word, here, where, editable, pins)}{text[at + len(word) :]}"

    def index(self, text: str, here: str, where: str) -> None:
        """Take an index, or a page of links. Raises UsageError."""
        self.check(text, here, where)
        if not addresses.is_web(text):
            raise UsageError(f"{where}: Muster searches no folder for wheels", "list each wheel: ./FOLDER/NAME.whl")
        self.indexes[text] = None
        _bound(self.indexes, MOST_SOURCES, "indexes", where)

    def archive(self, text: str, where: str, pins: Collection[str] = ()) -> None:
        """Take an archive by its address, with the SHA-256 digests that it may have. Raises UsageError."""
        addresses.check(text, where)
        address, _, more = text.partition("#")
        if "--hash" in where and not pins:
            raise UsageError(f"{without_logins(where)}: it has no sha256", "pin it with --hash=sha256:...")
        if not urlsplit(address).path.endswith(_ARCHIVES) or "subdirectory=" in more:
            hint = "its path ends with .whl or .tar.gz; of a subdirectory: build a wheel of it, and name that"
            raise UsageError(f"{without_logins(where)}: this is not a package archive", hint)
        own = {*pins, *_HASH.findall(more), *self.remote.get(address, ())}
        self.remote[address] = tuple(sorted(own))
        _bound(self.remote, MOST_SOURCES, "archives elsewhere", where)

    def check(self, text: str, here: str, where: str) -> None:
        """Check an address or a path that a file mentions but that is not used. Raises UsageError."""
        if addresses.is_web(text):
            addresses.check(text, where)
        else:
            self.check_inside(_path_of(text, where), here, where)

    def path(self, text: str, here: str, where: str, editable: bool = False) -> str:
        """Take a folder with a package, or an archive of one; return its path in the folder. Raises UsageError."""
        path = self.check_inside(text, here, where)
        if path.endswith(_ARCHIVES):
            if path not in self.sent:
                raise UsageError(
                    f"{where}: no such file in {self.folder.resolve()}, or it is not sent",
                    f"if a .gitignore names it: {include_of(path)}",
                )
            self.archives[path] = None
        elif not self._has(path):
            raise UsageError(
                f"{where}: {path} is not a package among the sent files: it has no pyproject.toml or setup.py"
            )
        else:
            self.packages[path] = editable or self.packages.get(path, False)
        _bound(self.packages, MOST_PACKAGES, "packages of the folder", where)
        _bound(self.archives, MOST_PACKAGES, "archives", where)
        return path

    def repository(self, word: str, where: str) -> None:
        """Take a git repository, as `git+https://...` or `git+ssh://...`. Raises UsageError."""
        self.check_repository(word, where)
        self.git[word] = None
        _bound(self.git, MOST_SOURCES, "git sources", where)

    def check_repository(self, word: str, where: str) -> None:
        """Raise UsageError for an address that git could read as something other than an https or ssh server."""
        try:
            address = urlsplit(word.removeprefix("git+"))
        except ValueError as fault:
            raise UsageError(f"{where}: {fault}", "NAME @ git+https://HOST/PATH") from fault
        host = address.netloc.rpartition("@")[2]
        known = address.scheme in ("https", "ssh") and _HOST.fullmatch(address.netloc)
        if not known or not host or host.startswith("-") or address.netloc.startswith("-") or ".." in address.path:
            hint = "NAME @ git+https://HOST/PATH or git+ssh://USER@HOST/PATH; of this folder: ./PATH"
            raise UsageError(f"{where}: Muster cannot fetch this kind of source", hint)
        addresses.check_host(address.hostname or "", where)

    def file(self, text: str, here: str, where: str) -> str:
        """The path of a file that another one refers to (`-r more.txt`). Raises UsageError if it is not sent."""
        if _SCHEME.match(text):
            raise UsageError(f"{where}: Muster only reads files in the folder", "save it in the folder")
        path = self.check_inside(text, here, where)
        if path not in self.sent:
            raise UsageError(f"{where}: no such file in {self.folder.resolve()}, or it is not sent")
        return path

    def read(self, path: str, most: int) -> bytes:
        """Read a file in the folder; a link is followed if its target is sent. Raises UsageError."""
        with _readable(path):
            return plain_file.read(self._real(path), most)

    def map(self, path: str, most: int) -> mmap.mmap:
        """Map a file in the folder; for links, as `read`. Raises UsageError, also for an empty file."""
        with _readable(path), os.fdopen(plain_file.open_plain(self._real(path)), "rb") as file:
            if not 0 < os.fstat(file.fileno()).st_size <= most:
                raise UsageError(f"{path}: it is empty, or has more than {amount(most)}", "take it out of the file")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _real(self, path: str) -> Path:
        """The file at that path. Raises OSError, or UsageError for a link to a file that is not sent."""
        real = plain_file.inside(self.folder / path, self.folder)
        if real.relative_to(self._top).as_posix() not in self.sent:
            raise UsageError(f"{path}: it is a link to {real}, which is not sent", "list that file itself")
        return real

    def _address(self, text: str, here: str, where: str, editable: bool, pins: Collection[str]) -> str:
        if re.match(r"[a-z]+\+", text):
            self.repository(re.split(r"[\s;]", text)[0], where)
        elif addresses.is_web(text):
            self.archive(text, where, pins)
        else:
            plain = text.strip("\"'")
            extras = _EXTRAS.search(plain)
            path = _EXTRAS.sub("", _path_of(plain, where))
            # For pip and uv, paths start at the folder in which they are called, whichever file has the line.
            start = "" if self._has(posixpath.normpath(path)) else here
            path = posixpath.relpath(self.path(path, start, where, editable), here or ".")
            return f"./{path}{extras[0] if extras else ''}"
        return text

    def _has(self, path: str) -> bool:
        """Whether there is a package or an archive at that path of the folder."""
        return path in self.sent or any(posixpath.normpath(f"{path}/{name}") in self.sent for name in _PROJECTS)

    def check_inside(self, text: str, here: str, where: str) -> str:
        """The path as it is in the list of sent files. Raises UsageError for a path that leads outside."""
        top = self._top
        path = posixpath.relpath(text, top.as_posix()) if posixpath.isabs(text) else posixpath.join(here, text)
        normal = posixpath.normpath(path)
        if "\0" in text or normal.split("/")[0] == ".." or text.startswith("~"):
            raise UsageError(f"{where}: it is outside the folder that is sent ({top})", self._from_outside(text, where))
        if normal in self._inside:
            return normal
        try:
            plain_file.inside(self.folder / normal, self.folder)
        except FileNotFoundError:
            pass
        except OSError as fault:
            raise UsageError(
                f"{where}: it is outside the folder that is sent ({top}): {fault.strerror}", "give a path in the folder"
            ) from fault
        self._inside.add(normal)
        return normal

    def _from_outside(self, text: str, where: str) -> str:
        """What helps with a path outside the folder: it is from another machine, or is next to the folder."""
        file = shlex.quote(where.partition(":")[0])
        if " @ file:" in where and ".toml" not in file:
            # Written by conda: the path where conda built the package, which no longer exists. sed keeps only the name,
            # so any version will do.
            gone = "a path on the machine that built it, which does not exist any more"
            return f"{gone}: sed -i 's/ @ file:.*//' {file}; or with versions: pip list --format=freeze > {file}"
        if posixpath.isabs(text) or text.startswith("~"):
            return f"copy it into the folder, and list it as ./{posixpath.basename(text.rstrip('/')) or 'PATH'}"
        above = posixpath.normpath(posixpath.join(self.folder.as_posix(), *[".."] * text.count("..")))
        seen = posixpath.relpath(self._top.as_posix(), posixpath.realpath(above))
        both = f"--folder {shlex.quote(above)} --requirements {shlex.quote(f'{seen}/{file}')}"
        return f"send the folder above both: {both} -- {seen}/SCRIPT"


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn an OSError into a UsageError."""
    try:
        yield
    except OSError as fault:
        raise UsageError(f"{path}: cannot be read: {fault.strerror}", "--requirements no") from fault


_PROJECTS = ("pyproject.toml", "setup.py")


def _path_of(text: str, where: str) -> str:
    """The path that a `file:` address or a plain path means, as uv reads it. Raises UsageError for another scheme."""
    text = text.strip("\"'")
    match = _SCHEME.match(text)
    if not match:
        return text.partition("#")[0]
    if match[1].lower() != "file":
        raise UsageError(
            f"{where}: Muster does not know this kind of source: {match[1]}:", "use an https address, or ./PATH"
        )
    rest = text[match.end() :].partition("#")[0].partition("?")[0]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise UsageError(f"{where}: it is on another machine: {host}", "give a path in the folder: ./PATH")
        rest = slash + path
    return unquote(rest)


def _bound(named: Collection[str], most: int, what: str, where: str) -> None:
    if len(named) > most:
        raise UsageError(f"{without_logins(where)}: more than {most} {what}", "name an index, or one package of all")
