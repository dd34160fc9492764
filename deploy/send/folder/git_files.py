"""The files of a git repository, read within limits: its index (gitformat-index(5), versions 2 to 4) and objects."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import select
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, NamedTuple

from ...core import plain_file
from ...core.scripts import Scripts
from .git import Repository

# Of the file, of the paths in it (one may be short for many), and their number.
MOST, MOST_NAMES, MOST_ENTRIES = 32 << 20, 24 << 20, 300_000
_HEAD, _ENTRY = struct.Struct(">4sII"), struct.Struct(">10I")
_FLAGS = struct.Struct(">HH")
_GITLINK, _LONGEST = 0o160000, 4096
_SKIPPED, _VALID, _EXTENDED = 0x4000, 0x8000, 0x4000  # of the second word of flags; of the first one


class Tracked(NamedTuple):
    """What the index says of one path: `mode` and object as in a commit, `size` and `modified` (ns) as on the disk.

    `is_trusted`: git was told to believe that the file is as it was.
    """

    mode: int
    object: str
    size: int
    modified: int
    is_trusted: bool

    @property
    def is_repository(self) -> bool:
        """Whether it is the commit of another repository (a submodule)."""
        return self.mode == _GITLINK


@dataclass(frozen=True)
class Index:
    """The paths, each with the place of its entry in `data`, and when the index was written (ns): a file that is not
    older may have changed since."""

    places: dict[str, int]
    data: bytes = b""
    hash_bytes: int = 20
    written: int = 0

    def tracked(self, path: str) -> Tracked:
        """What the index says of one of its paths."""
        at = self.places[path]
        _, _, seconds, more, _, _, mode, _, _, size = _ENTRY.unpack_from(self.data, at)
        at += _ENTRY.size + self.hash_bytes
        first, second = _FLAGS.unpack_from(self.data, at)
        is_trusted = bool(first & _VALID or (first & _EXTENDED and second & _SKIPPED))
        name = self.data[at - self.hash_bytes : at].hex()
        return Tracked(mode, name, size, seconds * 10**9 + more, is_trusted)


def read_index(path: Path, hash_bytes: int, most: int = MOST) -> Index:
    """The index in that file; empty if there is none. Raises OSError, and ValueError for what is no index of git's."""
    try:
        data, written = plain_file.read(path, most), os.lstat(path).st_mtime_ns
    except FileNotFoundError:
        return Index({})
    try:
        return Index(dict(_entries(data, hash_bytes)), data, hash_bytes, written)
    except (struct.error, IndexError) as fault:
        raise ValueError("it is cut") from fault


def name_of(pieces: Iterable[bytes], size: int, hash_bytes: int) -> str:
    """The name that git gives to a file's content."""
    made = hashlib.sha256() if hash_bytes == 32 else hashlib.sha1(usedforsecurity=False)
    made.update(b"blob %d\0" % size)
    for piece in pieces:
        made.update(piece)
    return made.hexdigest()


def _entries(data: bytes, hash_bytes: int) -> Iterator[tuple[str, int]]:
    magic, version, count = _HEAD.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4) or count > MOST_ENTRIES:
        raise ValueError("it has another form, or very many entries")
    at, before, letters = _HEAD.size, b"", 0
    for _ in range(count):
        start = at
        at += _ENTRY.size + hash_bytes
        at += 4 if _FLAGS.unpack_from(data, at)[0] & _EXTENDED else 2
        strip = 0
        if version == 4:
            strip, at = _number(data, at)
        end = data.index(b"\0", at)
        path = (before[: len(before) - strip] if version == 4 else b"") + data[at:end]
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        before, letters = path, letters + len(path)
        if letters > MOST_NAMES:
            raise ValueError("its paths are very long")
        yield _plain(path), start


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as in packs of git (offset encoding), and what follows it."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = (value + 1 << 7) + (data[at] & 127)
        if value > MOST:
            raise ValueError("a path is too long")
    return value, at + 1


def _plain(path: bytes) -> str:
    """The path as text. Raises ValueError for one that git would refuse: it leads out of the folder."""
    text = os.fsdecode(path)
    # The plain words first: an index may have very many paths.
    if path[:1] in b"./" or b"/." in path or b"//" in path or len(path) > _LONGEST:
        parts = text.lower().removesuffix("/").split("/")
        if len(path) > _LONGEST or not {"", ".", "..", ".git"}.isdisjoint(parts):
            raise ValueError(f"no path of a folder: {text[:100]!r}")
    return text


# For git: memory of its own in kB, processor seconds, bytes of an answer, and of a file in it.
_MEMORY, _SECONDS, _MOST, MOST_BLOB = 256 << 10, 20, 64 << 20, 1 << 20
_MOST_LISTED = 8 << 20  # bytes of the names of all files of a source
_PATIENCE_S = 60.0
_SETTINGS = (
    *("core.commitGraph=false", "core.multiPackIndex=false", "core.attributesFile=/dev/null"),
    *("core.hooksPath=/dev/null", "core.packedGitLimit=64m", "core.bigFileThreshold=8m"),
)


# A file's content before and now (None: there was none), and its mode before and now.
Both = tuple[bytes | None, bytes | None, int, int]


_SCRIPT = Scripts(__file__)


class Objects:
    """Objects, seen from a git folder of our own."""

    def __init__(self, place: Path, objects: Path) -> None:
        self._place = place
        self._environment = {**_environment(place), "GIT_OBJECT_DIRECTORY": str(objects)}

    def tree(self, commit: str, below: str) -> dict[str, tuple[int, str]]:
        """The mode and the object of each path of a commit. `below`: only what is in that folder, `a/b/` or ""."""
        words = ["ls-tree", "-r", "-z", "--full-tree", commit, *([below] if below else [])]
        rows = self._ask(words).split(b"\0")
        matches = (re.fullmatch(rb"([0-7]+) \w+ ([0-9a-f]+)\t(.*)", row, re.DOTALL) for row in rows if row)
        return {os.fsdecode(row[3]): (int(row[1], 8), row[2].decode()) for row in matches if row}

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

    def diff(self, both: Mapping[str, Both]) -> dict[str, bytes]:
        """git's words for how each of these files differs, by path. Raises OSError, SubprocessError, ValueError."""
        for side in ("a", "b"):
            (self._place / side).mkdir()
        for path, (before, now, mode_before, mode_now) in both.items():
            _put(self._place / "a" / path, before, mode_before)
            _put(self._place / "b" / path, now, mode_now)
        words = ["diff", "--no-index", "--no-prefix", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"]
        text = self._ask([*words, "--unified=3", "a", "b"], good=(0, 1))
        for side in ("a", "b"):
            shutil.rmtree(self._place / side)
        parts = re.split(rb"^(?=diff --git )", text, flags=re.MULTILINE)[1:]
        # In the order of their names, as git walks two folders; of a new file it names but one.
        named = dict(zip(sorted(both, key=_order), parts, strict=True))
        new = {
            path: re.sub(rb"^(diff --git \"?)b/", rb"\1a/", part) for path, part in named.items() if not both[path][2]
        }
        return {**named, **new}

    def _ask(self, words: Sequence[str], order: str = "", good: tuple[int, ...] = (0,), most: int = _MOST) -> bytes:
        """What git prints. Raises OSError, SubprocessError."""
        with TemporaryFile() as answer:
            self._run(words, answer, most, order, good)
            answer.seek(0)
            return answer.read()

    def _run(
        self, words: Sequence[str], answer: IO[bytes], most: int, order: str = "", good: tuple[int, ...] = (0,)
    ) -> None:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        command = limited(["git", *settings, *words], _SECONDS, most)
        with TemporaryFile() as given:
            given.write(order.encode())
            given.seek(0)
            code = _ended(command, self._environment, self._place, given, answer)
        if code not in good:
            raise subprocess.CalledProcessError(code, command)


def _ended(
    command: Sequence[str], environment: Mapping[str, str], place: Path, given: IO[bytes], answer: IO[bytes]
) -> int:
    """Run a command to its end; its exit code. Raises OSError, TimeoutExpired."""
    # The end of a pipe that it holds is its end: `wait` with a time would look every 50 ms.
    ours, its = os.pipe()
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=place,
            stdin=given,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            pass_fds=(its,),
        )
        os.close(its)
        its = -1
        if not select.select([ours], [], [], _PATIENCE_S)[0]:
            process.kill()
            process.wait()
            raise subprocess.TimeoutExpired(command, _PATIENCE_S)
        return process.wait()
    finally:
        os.close(ours)
        if its >= 0:
            os.close(its)


def limited(command: Sequence[str], seconds: int, most: int) -> list[str]:
    """The command, with limits: memory, seconds of the processor, and bytes of each file that it writes."""
    return list(_SCRIPT("run-limited", str(_MEMORY), str(seconds), str(most >> 9), *command))


@contextmanager
def borrowed(repository: Repository) -> Iterator[Objects]:
    """The objects of that repository. Raises OSError if some of them lie elsewhere."""
    objects = repository.common / "objects"
    _check(objects)
    with TemporaryDirectory(prefix="muster-git-") as name:
        make(Path(name), repository.hash_bytes)
        yield Objects(Path(name), objects.resolve())


def make(place: Path, hash_bytes: int = 20) -> None:
    """Make an empty git folder with no settings, without a template."""
    for name in ("refs", "objects"):
        (place / name).mkdir()
    (place / "HEAD").write_text("ref: refs/heads/none\n")
    form = "1\n[extensions]\n\tobjectFormat = sha256" if hash_bytes == 32 else "0"
    (place / "config").write_text(f"[core]\n\tbare = true\n\trepositoryFormatVersion = {form}\n")


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
        raise OSError("its objects lie elsewhere too (objects/info/alternates)")
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if deep < 3:
                _check(Path(entry.path), deep + 1)
        elif not entry.is_file(follow_symlinks=False):
            raise OSError(f"{entry.path} is no plain file")


def _put(path: Path, content: bytes | None, mode: int) -> None:
    if content is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == 0o120000:
        os.symlink(content, os.fsencode(path))
    else:
        path.write_bytes(content)
        path.chmod(0o755 if mode & 0o100 else 0o644)


def _order(path: str) -> list[bytes]:
    return [os.fsencode(part) for part in path.split("/")]
