"""The file that lists which packages a project needs: find it, read it with all that it refers to, compute its key.

Its lines are read as pip and uv read them, so what is checked is what is used. resolve.py pins the packages. Pure,
except for reading files in the folder.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import mmap
import os
import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from ...core import plain_file, toml_text
from ...core.errors import UsageError
from ...core.suggest import near_path
from ...core.text import amount
from ...job.consent import Wish
from ..folder import credentials
from . import project_file
from .inside.tools import NAME, normal
from .origins import Origins
from .settings import BEST, LOGIN, Settings, drop_logins, with_own_login, without_logins
from .store import Content

NO = "no"
# The order in which Muster looks for them. A pyproject.toml counts only if it is a project's.
DEFAULT_FILES = ("uv.lock", "requirements.txt", "pyproject.toml")
# Files that list packages but that Muster does not read, and how to get those packages into a run.
_NOT_READ = {
    **dict.fromkeys(
        ("pyproject.toml", "setup.py"), "a requirements.txt with the line `-e .` installs what the file lists"
    ),
    **dict.fromkeys(("environment.yml", "environment.yaml"), "list what pip can install in a requirements.txt"),
    "Pipfile": "pipenv requirements > requirements.txt",
}
_OF_POETRY = ("pyproject.toml", "tool", "poetry", "dependencies")
# pip also accepts -e. and -rbase.txt, without a space.
_CLOSE = re.compile(r"^(-[cefir])(?=[^\s=])")
_FILE = re.compile(r"(?:-r|--requirement|-c|--constraint)(?:\s+|=)(\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(\S.*)")
_OWN_OPTIONS = re.compile(r"(?:--index-url|--extra-index-url|--find-links|-i|-f)(?:\s+|=)(\S.*)")
# Options that mean the same on each machine, and read no file.
_PLAIN = re.compile(
    r"--(?:no-index|pre|prefer-binary|require-hashes)|--(?:trusted-host|no-binary|only-binary|use-feature)(?:\s+|=)\S+"
)
_MOST, _MOST_IN_ALL = 1 << 20, 16 << 20  # bytes of one file, and of all files
# Bytes of one archive, of all archives, and of one file that a package is built from.
_MOST_ARCHIVE, _MOST_ARCHIVES, _MOST_PACKAGE = 256 << 20, 4 << 30, 4 << 30
_MOST_FILES, _DEEPEST = 200, 50
_INDEX = re.compile(r"(--index-url|-i|--extra-index-url|--find-links|-f)(?:\s+|=)[\"']?([^\s\"']+)[\"']?")
_VARIABLES = {"--index-url": "UV_DEFAULT_INDEX", "-i": "UV_DEFAULT_INDEX", "--extra-index-url": "UV_INDEX"}
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_COMMENT = re.compile(r"(^|\s)#.*$")
# Characters that end a line for one reader and not for another, and characters that a terminal would act on.
_ODD = re.compile(r"[^\t\n\r\x20-\x7e\u00a0-\u2027\u202f-\U0010ffff]")
# Limits of one file: its lines without and with empty lines and comments, and the characters of one line. A lock has
# 5,000 lines, and the 500 hashes of one package are 40 kB.
_MOST_LINES, _MOST_WITH_EMPTY, _LONGEST = 20_000, 200_000, 100_000
# Files that a build may read to learn what a package needs: requirements/base.txt, pkg/requirements.txt.
_LISTS = re.compile(r"(?:^|/)require[^/]*(?:/|$)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{[^}]*\}?")
# `torch = [` in a TOML file gives no version; a uv.lock has name and version on two lines.
_KEY = re.compile(r"\s*[\w.-]+\s*=(?!=)")
_LOCKED = re.compile(r'name = "([\w.-]+)"\nversion = "([\w.+!-]+)"')


@dataclass(frozen=True)
class Requirements:
    """What a project needs.

    `path`: the path of the file in the folder. `kind`: how uv reads it; `project`: a pyproject.toml whose project is
    itself installed. `files`: all files that are read, by path; the first one is `path`.
    `packages`: folders of the project that are packages to build, each with whether it is editable. `git`, `remote`:
    git sources and archives that this machine fetches; the archives come with the SHA-256 digests that are pinned.
    `indexes`: addresses that are asked for packages. `digests`: the SHA-256 digest of each file that decides how a
    package in the folder is built, by path. `archives`: archives in the folder that are installed, by path, mapped from
    the disk. `by_itself`: Muster found the file, and the user did not ask for it.
    """

    path: str
    kind: str
    files: tuple[tuple[str, bytes], ...]
    packages: tuple[tuple[str, bool], ...] = ()
    git: tuple[str, ...] = ()
    remote: tuple[tuple[str, tuple[str, ...]], ...] = ()
    indexes: tuple[str, ...] = ()
    digests: tuple[tuple[str, str], ...] = ()
    archives: tuple[tuple[str, mmap.mmap], ...] = ()
    by_itself: bool = False

    def wishes(self, own: Collection[str]) -> list[Wish]:
        """What the user must allow: addresses that are contacted. `own`: the addresses of the user's own indexes."""
        known = set(map(_same, own))
        with_login = {address for address in self.indexes if with_own_login(address) != address}
        others = (address for address in (*self.indexes, *dict(self.remote)) if _same(address) not in known)
        return [
            *(
                Wish(f"packages from{', with your login there' * (address in with_login)}:", without_logins(address))
                for address in others
            ),
            *(
                Wish("git source, fetched here with your git's keys and passwords:", without_logins(word))
                for word in self.git
            ),
        ]

    def key(self, *more: object) -> str:
        """A digest of all this and of `more`: equal needs on equal bases have the same packages."""
        contents: Iterable[tuple[str, Content]] = chain(self.files, self.archives)
        files = [(path, hashlib.sha256(content).hexdigest()) for path, content in contents]
        text = json.dumps([self.path, self.kind, files, self.packages, self.digests, *more], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _same(address: str) -> str:
    """An address in a form in which two addresses with the same meaning are equal."""
    return drop_logins(address).rstrip("/")


def find(folder: Path, asked: str, sent: Collection[str]) -> tuple[str, bool]:
    """The path of the file in the folder, and whether Muster found it without being told.

    The path is empty if there is no such file, or if `asked` is "no". `sent`: the paths of the folder that are sent.
    Raises UsageError for a file that does not exist or is not sent.
    """
    if asked == NO:
        return "", False
    if asked:
        above = os.path.realpath(folder / posixpath.dirname(asked))  # the path may lead through a link
        path = posixpath.relpath(posixpath.join(above, posixpath.basename(asked)), folder.resolve().as_posix())
        if path not in sent:
            why = "Muster does not send it" if (folder / path).is_file() else f"no such file in {folder.resolve()}"
            meant = near_path(str(folder / path), [name for name in DEFAULT_FILES if name in sent])
            meant = posixpath.relpath(meant, folder) if meant else ""
            named = (
                f"--requirements {shlex.quote(meant)}" if meant in sent else f"without packages: --requirements {NO}"
            )
            raise UsageError(f"--requirements {asked}: {why}", named)
        return path, False
    for name in DEFAULT_FILES:
        if name in sent and (name != "pyproject.toml" or project_file.has_needs(Origins(folder, sent), name)):
            return name, True
    return "", False


def not_read(folder: Path, sent: Collection[str]) -> dict[str, str]:
    """If `find` finds no file: the files that list packages for other tools, and what to do about each."""
    poetry = "pyproject.toml" in sent and project_file.of_project(Origins(folder, sent), *_OF_POETRY)
    return {name: how for name, how in _NOT_READ.items() if name in sent and (poetry or name != "pyproject.toml")}


def has_block(folder: Path, script: str, sent: Collection[str]) -> bool:
    """Whether a script of the folder lists packages in its own block: it is read only if the user names the script."""
    try:
        return script in sent and bool(
            toml_text.of_script(_decoded(Origins(folder, sent).read(script, _MOST), script)).get("dependencies")
        )
    except ValueError:  # the user learns why by naming it
        return True
    except UsageError:
        return False


def read(folder: Path, path: str, sent: Collection[str]) -> Requirements:
    """Read the file and all that it refers to. Raises UsageError for what cannot work on a host, with file and line."""
    origins = Origins(folder, sent)
    if posixpath.basename(path) in ("uv.lock", "pyproject.toml"):
        kind, files = project_file.read(origins, path)
    else:
        kind, files = "file", _read_all(origins, path)
    packages, git = tuple(origins.packages.items()), tuple(origins.git)
    remote, indexes = tuple(origins.remote.items()), tuple(origins.indexes)
    digests = tuple(_digests(origins))
    archives = tuple(_archives(origins))
    return Requirements(path, kind, tuple(files.items()), packages, git, remote, indexes, digests, archives)


def _read_all(origins: Origins, first: str) -> dict[str, bytes]:
    """The file and the files that it refers to, by path."""
    files, waiting, size = dict[str, bytes](), [(first, 0, first)], 0
    named = {first}  # a file may refer to another one ten thousand times
    while waiting:
        path, deep, where = waiting.pop()
        if len(named) > _MOST_FILES or deep > _DEEPEST:
            raise UsageError(
                f"{where}: more than {_MOST_FILES} files, or a chain of {_DEEPEST} that include each other",
                "put them into one file",
            )
        own = origins.read(path, _MOST)
        content = _decode_lines(_of_script(own, path) if path.endswith(".py") else own, path)
        rows, size = content.decode().split("\n"), size + len(content)
        if size > _MOST_IN_ALL:
            raise UsageError(f"{where}: more than {amount(_MOST_IN_ALL)} in all", "shorten the files")
        more = []
        for number, line in _numbered(rows):
            where = f"{path}:{number}: {without_logins(line)}"
            inner, rows[number - 1] = _take(origins, line, posixpath.dirname(path), where)
            if inner and inner not in named:
                named.add(inner)
                more.append((inner, deep + 1, f"{path}:{number}: {line}"))
        files[path] = "\n".join(rows).encode()
        waiting += reversed(more)
    return files


def asked_in(texts: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Each requirement in these files: its place (`path:number`), its line, its text, and its package's name."""
    for path, text in texts.items():
        for number, (before, line) in enumerate(pairwise(["", *text.splitlines()]), 1):
            asked = _asked(before, line)
            if word := NAME.match(asked):
                yield f"{path}:{number}", line.strip(), asked, normal(word[1])


def _asked(before: str, line: str) -> str:
    """The requirement in a line of the user's files, if it is one. In a uv.lock, the name is on the line before."""
    if locked := _LOCKED.fullmatch(f"{before}\n{line}"):
        return f"{locked[1]}=={locked[2]}"
    return "" if _KEY.match(line) else line.strip().strip("\"',")


def _of_script(content: bytes, path: str) -> bytes:
    """The packages in a script's own block, as lines. Raises UsageError if it has no such block, or one of uv's."""
    how = "list the packages in a requirements.txt: --requirements FILE"
    text = _decoded(content, path)
    try:
        block = toml_text.of_script(text)
    except ValueError as fault:
        raise UsageError(f"{path}: its `# /// script` block: {fault}", how) from fault
    needs: Any = block.get("dependencies")
    why = ""
    if "tool" in block:
        why = "has a [tool] table, which Muster does not read"
    elif not isinstance(needs, list) or not all(isinstance(need, str) for need in needs):
        why = "lists no dependencies"
    elif option := next((need for need in needs if need.lstrip().startswith("-")), ""):
        why = f"lists {option}, an option of pip, which is no package"
    if why:
        raise UsageError(f"{path}: its `# /// script` block {why}", how)
    rows, place = list[str](), 0
    for need in needs:  # on its own line, which messages quote
        place = max(place, text.find(need, place))  # -1 if the text has it in another way of writing
        rows += [*[""] * (text.count("\n", 0, place) - len(rows)), " ".join(need.split())]
    return "\n".join(rows).encode()


def _archives(origins: Origins) -> Iterator[tuple[str, mmap.mmap]]:
    """The archives in the folder that are installed. Raises UsageError."""
    size = 0
    for name in origins.archives:
        yield name, (content := origins.map(name, _MOST_ARCHIVE))
        size += len(content)
        if size > _MOST_ARCHIVES:
            raise UsageError(f"{name}: more than {amount(_MOST_ARCHIVES)} of archives in all", "name fewer of them")


def _take(origins: Origins, line: str, here: str, where: str) -> tuple[str, str]:
    """Take one line: returns the path of the file that it refers to, if any, and the line as it is used.

    Raises UsageError.
    """
    line = _CLOSE.sub(r"\1 ", line)
    if match := _FILE.fullmatch(line):
        return origins.file(match[1].strip("\"'"), here, where), line
    if match := _EDITABLE.fullmatch(line):
        line = "-e " + origins.requirement(match[1].strip("\"'"), here, where, editable=True)
    elif match := _OWN_OPTIONS.fullmatch(line):
        origins.index(match[1].strip("\"'"), here, where)
    elif not line.startswith("-"):
        line = origins.requirement(line, here, where)
    elif not _PLAIN.fullmatch(line):
        raise UsageError(f"{where}: Muster does not know this option in a requirements file", "take it out of the file")
    return "", line


def _digests(origins: Origins) -> Iterator[tuple[str, str]]:
    """The digests that decide how local packages are built: all files, or only those that describe an editable one."""
    for package, editable in origins.packages.items():
        start = "" if package == "." else f"{package}/"
        for path in sorted(path for path in origins.sent if path.startswith(start)):
            inner = path.removeprefix(start)
            described = "/" not in inner and (not inner.endswith(".py") or inner == "setup.py")
            if not editable or described or _LISTS.search(inner):
                yield path, _digest(origins.folder, path)


def _digest(folder: Path, path: str) -> str:
    """The SHA-256 digest of a file's bytes, or of a link's target name."""
    try:
        if (folder / path).is_symlink():
            return hashlib.sha256(os.fsencode(os.readlink(folder / path))).hexdigest()
        with os.fdopen(plain_file.open_plain(folder / path), "rb") as file:
            if os.fstat(file.fileno()).st_size > _MOST_PACKAGE:
                raise UsageError(f"{path}: more than {amount(_MOST_PACKAGE)} in a package", "mount data: --mount")
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        raise UsageError(f"{path}: cannot be read: {fault.strerror}") from fault


def take_out_logins(needs: Requirements, own: Settings) -> tuple[Requirements, Settings]:
    """The requirements without indexes and passwords, and the settings with these indexes added.

    The indexes travel with the user's own settings, which hosts get on standard input: so hosts install from the
    indexes that were used to resolve. A file with a password stays on this machine (send/folder/credentials.py); a git
    source is fetched on this machine. Raises UsageError for any other address with a password, with file and line.
    """
    paths = {
        path
        for path, content in needs.files
        if credentials.credential_in(path, content, {}) == credentials.IN_AN_ADDRESS
    }
    variables, files = dict(own.variables), list[tuple[str, bytes]]()
    for path, content in needs.files:
        for source in needs.git:  # even if it has only a user name: the fetched source is named without it
            content = content.replace(source.encode(), drop_logins(source).encode())
        files.append((path, _without(path, content, variables) if path in paths or _may_name(path) else content))
    if not _may_name(needs.path):  # a project file does not have its indexes on lines
        more = " ".join([*filter(None, [variables.get("UV_INDEX")]), *map(with_own_login, needs.indexes)])
        variables |= {"UV_INDEX": more} if needs.indexes else {}
    return replace(needs, files=tuple(files)), replace(own, variables=variables)


def _may_name(path: str) -> bool:
    return path.endswith((".txt", ".in", ".py"))


def _without(path: str, content: bytes, variables: dict[str, str]) -> bytes:
    """The text without these lines; adds their indexes to the variables."""
    text = content.decode().split("\n")
    before = list(text)
    for number, line in _numbered(before):
        index = _INDEX.fullmatch(line)
        name = _VARIABLES.get(index[1], "") if index else ""
        if not LOGIN.search(line) and not (name and index and index[2].startswith(("http:", "https:"))):
            continue
        if index and name:
            more = name == "UV_INDEX" and variables.get(name)
            address = with_own_login(index[2])
            variables[name] = f"{variables[name]} {address}" if more else address
            if name == "UV_INDEX":  # PyTorch's extra index has old versions of a hundred other packages
                variables.setdefault("UV_INDEX_STRATEGY", BEST)
            text[number - 1] = ""
        else:
            raise UsageError(
                f"{path}:{number}: {without_logins(line)}: the hosts would get this password in a file",
                "give an index this password, or put it into pip's settings: pip config",
            )
    return "\n".join(text).encode()


def _decode_lines(content: bytes, path: str) -> bytes:
    """The file as UTF-8, each statement on the line where it begins, without comments.

    Raises UsageError if it is not text, if it is too long, and for a variable, because uv would insert the shell's
    value.
    """
    text = _decoded(content, path).replace("\r\n", "\n").replace("\r", "\n")
    if text.count("\n") > _MOST_WITH_EMPTY:
        raise UsageError(f"{path}:{_MOST_WITH_EMPTY + 1}: more than {_MOST_WITH_EMPTY:,} lines", "shorten the file")
    written = []
    begun, waiting, count = "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        if odd := _ODD.search(line):
            raise UsageError(f"{path}:{number}: a line has the character {odd[0]!a}", "save it as plain UTF-8 text")
        stripped = _COMMENT.sub("", line).strip()
        is_comment = line.lstrip().startswith("#")
        if stripped.endswith("\\") and not is_comment:
            begun, waiting = f"{begun}{stripped[:-1]} " if begun else f"{stripped[:-1]} ", waiting + 1
            continue
        whole = " ".join(f"{begun}{stripped}".split())
        count += bool(whole)
        if count > _MOST_LINES or len(whole) > _LONGEST:
            most = f"{_MOST_LINES:,} lines, or one of more than {_LONGEST:,} characters"
            raise UsageError(f"{path}:{number - waiting}: more than {most}", "shorten the file")
        if variable := _VARIABLE.search(whole):
            raise UsageError(
                f"{path}:{number - waiting}: {variable[0]}: Muster puts no variable of this shell into the file",
                "an index with a password: pip config set global.extra-index-url https://...",
            )
        written += [whole, *([""] * waiting)]
        begun, waiting = "", 0
    if begun:
        written.append(begun.strip())
    return "\n".join([*written, ""]).encode()


def _numbered(rows: Sequence[str]) -> list[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    return [(number, line) for number, line in enumerate(rows, 1) if line]


def _decoded(content: bytes, path: str) -> str:
    mark, name = next((each for each in _MARKS if content.startswith(each[0])), (b"", "utf-8"))
    try:
        return content.removeprefix(mark).decode(name)
    except UnicodeDecodeError as fault:
        raise UsageError(f"{path}: not UTF-8 text (byte {fault.start + len(mark)})", "save it as UTF-8") from fault
