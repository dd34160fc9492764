"""Find and read output: files and folders of them, compressed or not, in pieces. Only this module does I/O."""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from ..core.budget import Budget
from .read import CHUNK
from .words import compile_limited

# How many bytes a small file counts as, at least: it takes that on a disk, and opening it takes time.
_BLOCK = 4096
# A run has a log per rank, and any of them may show the cause: so more files are read here than elsewhere.
MOST_FILES, _MOST_LOOKED_AT, _DEEPEST = 2000, 20_000, 8
# Muster's run folders have one of these files. Their console logs contain everything that the rank logs contain.
_RUN_FILES, _CONSOLES = ("record.json", "outcome.json"), "logs/*.log"
# bzip2, xz, zstd, zip (also a checkpoint of torch) and UTF-16, as PowerShell's `>` writes it.
_UNREADABLE = re.compile(rb"BZh\d1AY&SY|\xfd7zXZ|\x28\xb5\x2f\xfd|PK\x03\x04|\xff\xfe|\xfe\xff")
_LOG = compile_limited(
    r"\.(?:log|txt|out|err|stdout|stderr|output)(?:\.\d+)?(?:\.gz)?$|^(?:stdout|stderr|slurm-\d+)\b|[._-]o\d+$"
)
_TEXT_OF_OTHERS = compile_limited(r"^(?:requirements|README|LICENSE|constraints|vocab|merges)\b.*\.txt$", re.IGNORECASE)
_RANK = compile_limited(
    r"(?:^|[._/-])(?P<kind>local_?rank|rank|worker|task|node|proc)[._-]?(?P<number>\d{1,6})(?=[._/-]|$)"
)
# torchrun's --log-dir: RUN/attempt_0/1/stderr.log, by local rank; a launcher's stderr_3.txt or job.3.err, by rank.
_ELASTIC = compile_limited(r"(?:^|/)(?P<number>\d{1,6})/(?:stdout|stderr|error)\.\w+$")
_STREAM = compile_limited(
    r"(?:^|/)(?:stdout|stderr|out|err|log)[._-]?(?P<number>\d{1,6})\.\w+$|\.(?P<other>\d{1,6})\.(?:err|out|log)$"
)


def in_folder(folder: Path) -> tuple[list[Path], str]:
    """The log files below a folder (no links or pipes), and what is left out, in words (empty: nothing).

    If no file is a log by its name, text files without a suffix count. Raises OSError for a folder that cannot be read.
    """
    logs = files = list[Path]()
    os.scandir(folder).close()
    if any(os.path.isfile(folder / name) for name in _RUN_FILES):
        logs = files = sorted(islice(filter(_plain, folder.glob(_CONSOLES)), _MOST_LOOKED_AT + 1))
    if not logs:
        files = sorted(islice(_below(folder, _DEEPEST), _MOST_LOOKED_AT + 1))
        logs = [file for file in files if _LOG.search(file.name) and not _TEXT_OF_OTHERS.search(file.name)]
        logs = logs or [file for file in files if not file.suffix and file.name[0] != "." and _is_text(file)]
    left = [f"{len(logs) - MOST_FILES:,} of {len(logs):,} logs"] * (len(logs) > MOST_FILES)
    left += [f"what lies beyond {_MOST_LOOKED_AT:,} files"] * (len(files) > _MOST_LOOKED_AT)
    return logs[:MOST_FILES], f"{folder}: {' and '.join(left)}" if left else ""


def speaker_of(path: str) -> str:
    """The rank that wrote a file, from the file's path; empty if the path does not say it."""
    path = path.removesuffix(".gz")
    if match := _ELASTIC.search(path):
        return f"local rank {match['number']}"
    if match := _RANK.search(path):
        kind = {"localrank": "local rank", "local_rank": "local rank"}.get(match["kind"], match["kind"])
        return f"{kind} {match['number']}"
    if match := _STREAM.search(path):
        return f"rank {match['number'] or match['other']}"
    return ""


def pieces(stream: BinaryIO, budget: Budget | None = None) -> Iterator[bytes]:
    """The content of a stream, in pieces. Raises OSError if it cannot be read.

    It ends where compressed data is damaged, or when the budget's time is used up.
    """
    budget = budget or Budget()
    first = stream.read(CHUNK)
    if _UNREADABLE.match(first):
        raise OSError(
            errno.EINVAL, "it is compressed (but not with gzip) or in UTF-16: pipe its text, as UTF-8, to `-`"
        )
    budget.add(max(len(first), _BLOCK))
    if first.startswith(b"\x1f\x8b"):
        yield from _unpacked(first, _read(stream, budget), budget)
    elif first:
        yield first
        yield from _read(stream, budget)


def last_line_with(path: Path, words: str, budget: Budget) -> int:
    """The number of the last line in a log with these words; 0 if no line has them, or the log cannot be read."""
    wanted, number, last, rest = words.encode(), 0, 0, b""
    with suppress(OSError), path.open("rb") as stream:
        for piece in chain(pieces(stream, budget), [b"\n"]):
            *lines, rest = (rest[-CHUNK:] + piece).split(b"\n")
            for line in lines:
                number += 1
                last = number if wanted in line else last
    return last


def _read(stream: BinaryIO, budget: Budget) -> Iterator[bytes]:
    while not budget.is_over and (piece := stream.read(CHUNK)):
        budget.add(len(piece))
        yield piece


def _unpacked(first: bytes, rest: Iterator[bytes], budget: Budget) -> Iterator[bytes]:
    """Decompressed pieces of gzip data, at most CHUNK bytes each. The budget counts the compressed bytes."""
    inner = zlib.decompressobj(wbits=31)
    data = first
    while data and not budget.is_over:
        try:
            piece = inner.decompress(data, CHUNK)
        except zlib.error:
            return
        if piece:
            yield piece
        data = inner.unconsumed_tail
        if inner.eof:
            data, inner = inner.unused_data.lstrip(b"\0"), zlib.decompressobj(wbits=31)
        data = data or next(rest, b"")


def _below(folder: Path, depth: int) -> Iterator[Path]:
    try:
        inside = sorted(islice(folder.iterdir(), _MOST_LOOKED_AT + 1))
    except OSError:
        return
    for path in inside:
        if _plain(path):
            yield path
        elif depth and not os.path.islink(path) and os.path.isdir(path) and not path.name.startswith("."):
            yield from _below(path, depth - 1)


def _plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _is_text(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b"\0" not in file.read(4096)
    except OSError:
        return False


def names_of(paths: Sequence[Path | None]) -> list[str]:
    """A name for each path: the file's name if it is unique, or else its path below the common folder.

    The console logs of Muster's runs are named after their nodes. Standard input is `stdin`.
    """
    files = [path for path in paths if path]
    common = Path(os.path.commonpath([path.parent.absolute() for path in files])) if files else Path()
    names, count = [], Counter(file.name for file in files)
    for path in paths:
        if path is None:
            names.append("stdin")
        elif count[path.name] > 1:
            names.append(str(path.absolute().relative_to(common)))
        else:
            names.append(path.stem if path.parent.name == "logs" and path.suffix == ".log" else path.name)
    return names
