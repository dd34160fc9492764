"""Compression in pieces: each piece is a whole gzip member or zstd frame, and a row of them is one valid stream.

So every core compresses, a layer is compressed once and kept, and any archive is put together from kept layers without
compressing them again. `docker load` takes such streams; which kind, deploy/image/push_plan.py decides.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE = 8 << 20  # bytes; larger gains nothing, smaller loses matches
_MAGIC = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst"}


@dataclass(frozen=True)
class Codec:
    """A way to compress: its name, which is also the ending of kept files, and how it packs one piece."""

    name: str
    pack: Callable[[bytes], bytes]


def _zstd(piece: bytes) -> bytes:
    return zstd.compress(piece, level=6)


def _gzip(piece: bytes) -> bytes:
    return gzip.compress(piece, compresslevel=3, mtime=0)


ZSTD, GZIP, PLAIN = Codec("zst", _zstd), Codec("gz", _gzip), Codec("tar", bytes)
CODECS = {codec.name: codec for codec in (ZSTD, GZIP, PLAIN)}


@dataclass(frozen=True)
class Packed:
    """A layer ready to be sent: its diff id, bytes as a tar file and as packed, and how to read it packed."""

    layer: str
    size: int
    packed: int
    read: Callable[[], Iterator[bytes]]


def packed(layer: str, content: bytes, codec: Codec) -> Packed:
    """A layer from memory."""
    pieces = list(pack([content], codec))
    return Packed(layer, len(content), sum(map(len, pieces)), lambda: iter(pieces))


def pack(chunks: Iterable[bytes], codec: Codec) -> Iterator[bytes]:
    """Compress a stream with every core; holds at most two pieces a core."""
    cores = os.cpu_count() or 1
    waiting: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for piece in _pieces(chunks):
            waiting.append(pool.submit(codec.pack, piece))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def unpacked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A stream as it was before compression, whichever of ours it has; a plain one passes through."""
    stream = iter(chunks)
    first = next(stream, b"")
    kind = next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), "")
    whole = chain([first], stream)
    return {"gz": _gunzip, "zst": _unzstd}.get(kind, lambda plain: plain)(whole)


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PIECE:
            yield bytes(held[:PIECE])
            del held[:PIECE]
    if held:
        yield bytes(held)


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    reader = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        while chunk:
            yield reader.decompress(chunk)
            chunk = reader.unused_data
            if reader.eof:
                reader = zlib.decompressobj(wbits=31)


def _unzstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
    reader = zstd.ZstdDecompressor()
    for chunk in chunks:
        while chunk:
            yield reader.decompress(chunk)
            chunk = reader.unused_data
            if reader.eof:
                reader = zstd.ZstdDecompressor()
