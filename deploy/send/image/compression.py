"""Compress in pieces: each piece is a complete gzip member or zstd frame, and concatenated pieces are one valid stream.

So all cores can compress, each layer is compressed once and cached, and an archive is joined from cached layers without
compressing them again. `docker load` reads such streams; deploy/send/image/push_plan.py chooses the codec.
"""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, cast

from ..road.cargo import Part

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE = 8 << 20  # bytes; larger gains nothing, smaller loses matches
_SAMPLE, _WORTH = 8 << 10, 0.95
# The errors that reading a cut or damaged archive raises, and reading the files in it.
DAMAGED = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError)


@dataclass(frozen=True)
class Codec:
    """A way to compress: its name, also the suffix of cached files, and the function that compresses one piece."""

    name: str
    compress: Callable[[bytes], bytes]


def _zstd(piece: bytes) -> bytes:
    return zstd.compress(piece, level=6)


def _gzip(piece: bytes) -> bytes:
    # Pictures and weights do not shrink, and gzip spends most of its time finding that out. A few samples show it
    # sooner.
    samples = b"".join(piece[at : at + _SAMPLE] for at in range(0, len(piece), max(1, len(piece) // 8)))
    shrinks = len(zlib.compress(samples, 1)) < _WORTH * len(samples)
    return gzip.compress(piece, compresslevel=3 if shrinks else 0, mtime=0)


ZSTD, GZIP, PLAIN = Codec("zst", _zstd), Codec("gz", _gzip), Codec("tar", bytes)
CODECS = {codec.name: codec for codec in (ZSTD, GZIP, PLAIN)}


@dataclass(frozen=True)
class CompressedLayer:
    """A layer ready to send: its diff id, the size of its tar file, and `part`, its compressed bytes."""

    layer: str
    size: int
    part: Part


def compress(chunks: Iterable[bytes], codec: Codec) -> Iterator[bytes]:
    """Compress a stream with all cores, with at most two pieces per core in memory."""
    cores = os.cpu_count() or 1
    waiting: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for piece in _pieces(chunks):
            waiting.append(pool.submit(codec.compress, piece))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def decompress(file: IO[bytes]) -> IO[bytes]:
    """The content of a compressed file, which must have `peek`; a plain file as it is. Never all of it in memory."""
    magic = file.peek(4)  # type: ignore[attr-defined]
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    return cast(IO[bytes], zstd.ZstdFile(file)) if magic.startswith(b"\x28\xb5\x2f\xfd") else file


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= PIECE:
            yield bytes(buffer[:PIECE])
            del buffer[:PIECE]
    if buffer:
        yield bytes(buffer)
