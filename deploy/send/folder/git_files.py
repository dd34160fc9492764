"""git, asked about a repository from a git folder of our own: with nobody's settings, and within limits.

It sees the objects, a copy of the index and, to compare, the work tree. It starts no program: settings name those.
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

# Of an index, of the paths that git lists of it, their number, and that of repositories within it.
MOST, MOST_NAMES, MOST_ENTRIES, _MOST_WITHIN = 32 << 20, 24 << 20, 300_000, 200
_GITLINK, _LONGEST = "160000", 4096
# For git: memory of its own in kB, processor seconds, bytes of an answer, and of a file in it.
_MEMORY, _SECONDS, _MOST, MOST_BLOB = 256 << 10, 20, 64 << 20, 1 << 20
_MOST_LISTED = 8 << 20  # bytes of the names of all files of a source
_PATIENCE_S = 60.0
_SETTINGS = (
    *("core.commitGraph=false", "core.multiPackIndex=false", "core.attributesFile=/dev/null"),
    *("core.hooksPath=/dev/null", "core.packedGitLimit=64m", "core.bigFileThreshold=8m"),
    # A file of which git alone would change the ends of its lines is as it was.
    *("core.autocrlf=input", "core.safecrlf=false"),
)
_COMPARE = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
# What git opens in a work tree, whatever it is.
_OPENED = (".gitattributes", ".gitmodules")
_SCRIPT = Scripts(__file__)


class Objects:
    """Objects, seen from a git folder of our own. `repository`: whose they are, where its work tree is compared."""

    def __init__(self, place: Path, objects: Path, repository: Repository | None = None) -> None:
        self._place, self._repository = place, repository
        tree = {"GIT_WORK_TREE": str(repository.top)} if repository else {}
        self._environment = {**_environment(place), **tree, "GIT_OBJECT_DIRECTORY": str(objects)}

    def changes(self, commit: str, below: str = "") -> tuple[dict[str, str], dict[str, str]]:
        """What the work tree does not have as a commit has it, and the repositories that lie within it.

        Each path is seen from the folder `below` (`a/b/`), with its object of the commit; empty if that has none.
        Raises OSError, SubprocessError, ValueError.
        """
        kinds = _paths(self._ask(["ls-files", "--stage", "-z"], most=MOST_NAMES))
        within = [path for path, kind in kinds.items() if kind == _GITLINK]
        if len(within) > _MOST_WITHIN:
            raise ValueError(f"it contains more than {_MOST_WITHIN} repositories")
        assert self._repository
        _check_opened(self._repository.top, kinds)
        if within:  # git would look into each by its own settings: this index forgets them
            gone = "".join(f"0 {'0' * 40}\t{path}\0" for path in within)
            self._ask(["update-index", "-z", "--index-info"], gone)
        fields = self._compare(commit, below, "--raw", "--no-abbrev", "-z").split(b"\0")
        objects = (about.decode().split()[2] for about in fields[:-1:2])
        was = {os.fsdecode(path): was.strip("0") and was for path, was in zip(fields[1::2], objects, strict=True)}
        inner = {path.removeprefix(below) for path in within if path.startswith(below)}
        return {path: was[path] for path in was.keys() - inner}, {path: was.get(path, "") for path in inner}

    def diff(self, commit: str, below: str, paths: Sequence[str]) -> list[bytes]:
        """git's words for how each of these files differs; `below`, and what it raises: as `changes`."""
        text = self._compare(commit, below, "--unified=3", "--", *(f"{below}{path}" for path in paths))
        return re.split(rb"^(?=diff --git )", text, flags=re.MULTILINE)[1:]

    def _compare(self, commit: str, below: str, how: str, *words: str) -> bytes:
        modes = [] if self._repository and self._repository.minds_modes else ["-c", "core.fileMode=false"]
        return self._ask([*modes, *_COMPARE, *([f"--relative={below}"] if below else []), how, commit, *words])

    def contents(self, names: Sequence[str]) -> dict[str, bytes]:
        """The blobs of these names; those of more than 1 MiB are left out."""
        sizes = self._ask(["cat-file", "--batch-check"], "\n".join(names)).decode().splitlines()
        small = [row.split()[0] for row in sizes if row.split()[1:2] == ["blob"] and int(row.split()[2]) <= MOST_BLOB]
        answer, at, blobs = self._ask(["cat-file", "--batch"], "\n".join(small)) if small else b"", 0, {}
        for name in small:
            end = answer.index(b"\n", at)
            size = int(answer[at:end].split()[2])
            blobs[name], at = answer[end + 1 : end + 1 + size], end + size + 2
        return blobs

    def sizes(self, commit: str) -> list[int]:
        """The size of each file of a commit. Raises OSError, SubprocessError."""
        rows = self._ask(["ls-tree", "-r", "-z", "-l", "--full-tree", commit], most=_MOST_LISTED).split(b"\0")
        matches = (re.match(rb"[0-7]+ blob [0-9a-f]+ +([0-9]+)\t", row) for row in rows)
        return [int(row[1]) for row in matches if row]

    def commit(self, name: str) -> str:
        """The commit that a name means. Raises OSError, SubprocessError."""
        return (
            self._ask(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]).decode().strip()
        )

    def archive(self, commit: str, most: int) -> mmap.mmap:
        """The files of a commit, as a tar file of at most `most` bytes. Raises OSError, SubprocessError."""
        with TemporaryFile() as answer:
            self._run(["archive", "--format=tar", commit], answer, most)
            return mmap.mmap(answer.fileno(), 0, access=mmap.ACCESS_READ)

    def _ask(self, words: Sequence[str], order: str = "", most: int = _MOST) -> bytes:
        """What git prints. Raises OSError, SubprocessError."""
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
    """The paths of a repository's index, and its bytes. Raises OSError, and ValueError for what is no index."""
    with TemporaryDirectory(prefix="muster-git-") as name:
        if not (size := _make_with_index(Path(name), repository, most)):
            return frozenset(), 0
        own = Objects(Path(name), Path(name) / "objects")
        try:
            return frozenset(_paths(own._ask(["ls-files", "--stage", "-z"], most=MOST_NAMES))), size
        except subprocess.SubprocessError as fault:
            raise ValueError("git is not installed here, or cannot read it") from fault


def _paths(answer: bytes) -> dict[str, str]:
    """The paths of an index, each with its kind as git writes it. Raises ValueError."""
    rows = (row.split(b"\t", 1) for row in answer.split(b"\0") if row)
    kinds = {_plain(path): about[:6].decode() for about, path in rows}
    if len(kinds) > MOST_ENTRIES:
        raise ValueError(f"it has more than {MOST_ENTRIES:,} paths")
    return kinds


def _plain(path: bytes) -> str:
    """The path as text. Raises ValueError for one that git would refuse: it leads out of the folder."""
    text = os.fsdecode(path)
    # The plain words first: an index may have very many paths.
    if path[:1] in b"./" or b"/." in path or b"//" in path or len(path) > _LONGEST:
        parts = text.lower().removesuffix("/").split("/")
        if len(path) > _LONGEST or not {"", ".", "..", ".git"}.isdisjoint(parts):
            raise ValueError(f"not a path in a folder: {text[:100]!r}")
    return text


def limited(command: Sequence[str], seconds: int, most: int) -> list[str]:
    """The command, with limits: memory, seconds of the processor, and bytes of each file that it writes."""
    return list(_SCRIPT("run-limited", str(_MEMORY), str(seconds), str(most >> 9), *command))


@contextmanager
def borrowed(repository: Repository) -> Iterator[Objects]:
    """The objects of that repository, and its index. Raises OSError if some of them lie elsewhere."""
    objects = repository.common / "objects"
    _check(objects)
    with TemporaryDirectory(prefix="muster-git-") as name:
        _make_with_index(Path(name), repository, MOST)
        yield Objects(Path(name), objects.resolve(), repository)


def make(place: Path, hash_bytes: int = 20) -> None:
    """Make an empty git folder with no settings, without a template."""
    for name in ("refs", "objects"):
        (place / name).mkdir()
    (place / "HEAD").write_text("ref: refs/heads/none\n")
    form = "1\n[extensions]\n\tobjectFormat = sha256" if hash_bytes == 32 else "0"
    (place / "config").write_text(f"[core]\n\tbare = true\n\trepositoryFormatVersion = {form}\n")


def _make_with_index(place: Path, repository: Repository, most: int) -> int:
    """Make such a folder with a copy of a repository's index; returns the bytes of that. Raises OSError, ValueError."""
    make(place, repository.hash_bytes)
    index = repository.folder / "index"
    try:
        data, written = plain_file.read(index, most), os.lstat(index).st_mtime_ns
    except FileNotFoundError:
        return 0
    (place / "index").write_bytes(data)
    size = len(data)
    for shared in repository.folder.glob("sharedindex.*"):  # most of a split index, which names it by its digest
        if re.fullmatch(r"\.([0-9a-f]{40}|[0-9a-f]{64})", shared.suffix) and bytes.fromhex(shared.suffix[1:]) in data:
            size += (place / shared.name).write_bytes(plain_file.read(shared, most - size))
    # A file that is not older than the index may have changed since.
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
    """Raise OSError unless a folder of objects has only files and folders, and names no other one."""
    if os.path.lexists(folder / "info/alternates") and not deep:
        raise OSError("some of its objects are elsewhere (objects/info/alternates)")
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if deep < 3:
                _check(Path(entry.path), deep + 1)
        elif not entry.is_file(follow_symlinks=False):
            raise OSError(f"{entry.path} is not a plain file")


def _check_opened(top: Path, kinds: Mapping[str, str]) -> None:
    """Raise OSError for what git would open in a work tree, and which is no plain file, or leads to a repository."""
    for folder in {str(PurePosixPath(path).parent) for path in kinds} | {"."}:
        for name in _OPENED:
            if _mode(f"{top}/{folder}/{name}") not in (0, stat.S_IFREG):
                raise OSError(f"{folder}/{name} is not a plain file")
    for path, kind in kinds.items():
        if kind != _GITLINK and _mode(f"{top}/{path}") == stat.S_IFDIR and _mode(f"{top}/{path}/.git"):
            raise OSError(f"{path} is now a repository, but was a file")


def _mode(path: str) -> int:
    """What kind of file it is; 0: there is none."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0
