"""Run git on a repository's objects, from a git folder that Muster makes: with no user's settings, and within limits.

git sees the objects, a copy of the index and, for comparisons, the work tree. It starts no other program, because only
settings could name one.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from ...core import plain_file
from ...core.scripts import Scripts
from .git import Repository

# Limits: bytes of an index, bytes of git's list of its paths, the number of paths, and the number of repositories
# inside.
MOST, MOST_NAMES, MOST_ENTRIES, _MOST_WITHIN = 32 << 20, 24 << 20, 300_000, 200
_GITLINK, _LONGEST = "160000", 4096
# Limits for git: its own memory in kB, processor seconds, bytes of all its output, and bytes of one blob.
_MEMORY, _SECONDS, _MOST, MOST_BLOB = 256 << 10, 20, 64 << 20, 1 << 20
_MOST_LISTED = 8 << 20  # bytes of the list of all files of a commit
_PATIENCE_S = 60.0
_SETTINGS = (
    *("core.commitGraph=false", "core.multiPackIndex=false", "core.attributesFile=/dev/null"),
    *("core.hooksPath=/dev/null", "core.packedGitLimit=64m", "core.bigFileThreshold=8m"),
    # Files that differ only in line endings that git itself would convert count as unchanged.
    *("core.autocrlf=input", "core.safecrlf=false"),
)
_COMPARE = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
# Files that git opens in a work tree, whatever kind of file they are.
_OPENED = (".gitattributes", ".gitmodules")
_SCRIPT = Scripts(__file__)


class Objects:
    """Objects, seen from a git folder that Muster made. `repository`: where they are from, to compare its work tree."""

    def __init__(self, place: Path, objects: Path, repository: Repository | None = None) -> None:
        self._place, self._repository = place, repository
        tree = {"GIT_WORK_TREE": str(repository.top)} if repository else {}
        self._environment = {**_environment(place), **tree, "GIT_OBJECT_DIRECTORY": str(objects)}

    def changes(self, commit: str, below: str = "") -> tuple[dict[str, str], dict[str, str]]:
        """The paths in which the work tree differs from a commit, and the repositories inside the work tree.

        Each path is relative to the folder `below` (`a/b/`), and comes with its object in the commit; empty if the
        commit does not have the path. Raises OSError, SubprocessError, ValueError.
        """
        kinds = _paths(self._ask(["ls-files", "--stage", "-z"], most=MOST_NAMES))
        within = [path for path, kind in kinds.items() if kind == _GITLINK]
        if len(within) > _MOST_WITHIN:
            raise ValueError(f"it contains more than {_MOST_WITHIN} repositories")
        assert self._repository
        _check_opened(self._repository.top, kinds)
        if within:  # git would look into each of these with its own settings, so this index drops them
            gone = "".join(f"0 {'0' * 40}\t{path}\0" for path in within)
            self._ask(["update-index", "-z", "--index-info"], gone)
        fields = self._compare(commit, below, "--raw", "--no-abbrev", "-z").split(b"\0")
        objects = (about.decode().split()[2] for about in fields[:-1:2])
        was = {os.fsdecode(path): was.strip("0") and was for path, was in zip(fields[1::2], objects, strict=True)}
        inner = {path.removeprefix(below) for path in within if path.startswith(below)}
        return {path: was[path] for path in was.keys() - inner}, {path: was.get(path, "") for path in inner}

    def diff(self, commit: str, below: str, paths: Sequence[str]) -> list[bytes]:
        """git's diff of each of these files. `below`, and the errors raised: as in `changes`."""
        text = self._compare(commit, below, "--unified=3", "--", *(f"{below}{path}" for path in paths))
        return re.split(rb"^(?=diff --git )", text, flags=re.MULTILINE)[1:]

    def _compare(self, commit: str, below: str, how: str, *words: str) -> bytes:
        modes = [] if self._repository and self._repository.minds_modes else ["-c", "core.fileMode=false"]
        return self._ask([*modes, *_COMPARE, *([f"--relative={below}"] if below else []), how, commit, *words])

    def contents(self, names: Sequence[str]) -> dict[str, bytes]:
        """The blobs with these object names, without those larger than 1 MiB."""
        sizes = self._ask(["cat-file", "--batch-check"], "\n".join(names)).decode().splitlines()
        small = [row.split()[0] for row in sizes if row.split()[1:2] == ["blob"] and int(row.split()[2]) <= MOST_BLOB]
        answer, at, blobs = self._ask(["cat-file", "--batch"], "\n".join(small)) if small else b"", 0, {}
        for name in small:
            end = answer.index(b"\n", at)
            size = int(answer[at:end].split()[2])
            blobs[name], at = answer[end + 1 : end + 1 + size], end + size + 2
        return blobs

    def sizes(self, commit: str) -> list[int]:
        """The size of each file in a commit. Raises OSError, SubprocessError."""
        rows = self._ask(["ls-tree", "-r", "-z", "-l", "--full-tree", commit], most=_MOST_LISTED).split(b"\0")
        matches = (re.match(rb"[0-7]+ blob [0-9a-f]+ +([0-9]+)\t", row) for row in rows)
        return [int(row[1]) for row in matches if row]

    def commit(self, name: str) -> str:
        """The full name of the commit that `name` refers to. Raises OSError, SubprocessError."""
        return (
            self._ask(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]).decode().strip()
        )

    def archive(self, commit: str, most: int) -> mmap.mmap:
        """The files of a commit, as a tar file of at most `most` bytes. Raises OSError, SubprocessError."""
        with TemporaryFile() as answer:
            self._run(["archive", "--format=tar", commit], answer, most)
            return mmap.mmap(answer.fileno(), 0, access=mmap.ACCESS_READ)

    def _ask(self, words: Sequence[str], order: str = "", most: int = _MOST) -> bytes:
        """Run git and return its output. Raises OSError, SubprocessError."""
        with TemporaryFile() as answer:
            self._run(words, answer, most, order)
            answer.seek(0)
            return answer.read()

    def _run(self, words: Sequence[str], answer: IO[bytes], most: int, order: str = "") -> None:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        subprocess.run(
            limited(["git", *settings, *words], _SECONDS, most),
            env=self._environment,
            cwd=self._place,
            input=os.fsencode(order),
            stdout=answer,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=True,
        )


def tracked(repository: Repository, most: int) -> tuple[frozenset[str], int]:
    """The paths in a repository's index, and its size in bytes. Raises OSError; ValueError if it is no index."""
    with TemporaryDirectory(prefix="muster-git-") as name:
        if not (size := _make_with_index(Path(name), repository, most)):
            return frozenset(), 0
        own = Objects(Path(name), Path(name) / "objects")
        try:
            return frozenset(_paths(own._ask(["ls-files", "--stage", "-z"], most=MOST_NAMES))), size
        except subprocess.SubprocessError as fault:
            raise ValueError("git is not installed here, or cannot read it") from fault


def _paths(answer: bytes) -> dict[str, str]:
    """The paths of an index, each with its mode as git writes it. Raises ValueError."""
    rows = (row.split(b"\t", 1) for row in answer.split(b"\0") if row)
    kinds = {_plain(path): about[:6].decode() for about, path in rows}
    if len(kinds) > MOST_ENTRIES:
        raise ValueError(f"it has more than {MOST_ENTRIES:,} paths")
    return kinds


def _plain(path: bytes) -> str:
    """The path as text. Raises ValueError for a path that git would refuse because it leads out of the folder."""
    text = os.fsdecode(path)
    # Do the cheap tests first: an index may have very many paths.
    if path[:1] in b"./" or b"/." in path or b"//" in path or len(path) > _LONGEST:
        parts = text.lower().removesuffix("/").split("/")
        if len(path) > _LONGEST or not {"", ".", "..", ".git"}.isdisjoint(parts):
            raise ValueError(f"not a path in a folder: {text[:100]!r}")
    return text


def limited(command: Sequence[str], seconds: int, most: int) -> list[str]:
    """The command, limited in memory, in processor seconds, and in the bytes of each file that it writes."""
    return list(_SCRIPT("run-limited", str(_MEMORY), str(seconds), str(most >> 9), *command))


@contextmanager
def borrowed(repository: Repository) -> Iterator[Objects]:
    """The objects of that repository, and its index. Raises OSError if some of the objects are stored elsewhere."""
    objects = repository.common / "objects"
    _check(objects)
    with TemporaryDirectory(prefix="muster-git-") as name:
        _make_with_index(Path(name), repository, MOST)
        yield Objects(Path(name), objects.resolve(), repository)


def make(place: Path, hash_bytes: int = 20) -> None:
    """Make an empty git folder, without settings and without a template."""
    for name in ("refs", "objects"):
        (place / name).mkdir()
    (place / "HEAD").write_text("ref: refs/heads/none\n")
    form = "1\n[extensions]\n\tobjectFormat = sha256" if hash_bytes == 32 else "0"
    (place / "config").write_text(f"[core]\n\tbare = true\n\trepositoryFormatVersion = {form}\n")


def _make_with_index(place: Path, repository: Repository, most: int) -> int:
    """Make a git folder with a copy of a repository's index; return the copy's size. Raises OSError, ValueError."""
    make(place, repository.hash_bytes)
    index = repository.folder / "index"
    try:
        data, written = plain_file.read(index, most), os.lstat(index).st_mtime_ns
    except FileNotFoundError:
        return 0
    (place / "index").write_bytes(data)
    size = len(data)
    for shared in repository.folder.glob("sharedindex.*"):  # it has most of a split index, which refers to it by digest
        if re.fullmatch(r"\.([0-9a-f]{40}|[0-9a-f]{64})", shared.suffix) and bytes.fromhex(shared.suffix[1:]) in data:
            size += (place / shared.name).write_bytes(plain_file.read(shared, most - size))
    # Keep the index's time: git compares again any file that is not older than the index.
    os.utime(place / "index", ns=(written, written))
    return size


def _environment(place: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(place),
        "LC_ALL": "C",
        "GIT_DIR": str(place),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }


def _check(folder: Path, deep: int = 0) -> None:
    """Raise OSError if a folder of objects has anything but files and folders, or refers to another such folder."""
    if os.path.lexists(folder / "info/alternates") and not deep:
        raise OSError("some of its objects are elsewhere (objects/info/alternates)")
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if deep < 3:
                _check(Path(entry.path), deep + 1)
        elif not entry.is_file(follow_symlinks=False):
            raise OSError(f"{entry.path} is not a plain file")


def _check_opened(top: Path, kinds: Mapping[str, str]) -> None:
    """Raise OSError if a file that git would open in a work tree is no plain file, or if a file became a repository."""
    for folder in {str(PurePosixPath(path).parent) for path in kinds} | {"."}:
        for name in _OPENED:
            if _mode(f"{top}/{folder}/{name}") not in (0, stat.S_IFREG):
                raise OSError(f"{folder}/{name} is not a plain file")
    for path, kind in kinds.items():
        if kind != _GITLINK and _mode(f"{top}/{path}") == stat.S_IFDIR and _mode(f"{top}/{path}/.git"):
            raise OSError(f"{path} is now a repository, but was a file")


def _mode(path: str) -> int:
    """The type of the file at this path; 0 if there is none."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0
