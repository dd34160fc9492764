"""The bytes for a host, cut into pieces that are identified by their digests.

Hosts pass pieces on to each other, and reject a piece whose digest is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from ...core.errors import DeployError

# (bytes in a piece, for parts smaller than this). Larger pieces take longer from host to host, and more is sent again
# after a connection breaks. Smaller pieces cost the hosts more processes.
_SIZES = ((128 << 10, 4 << 20), (512 << 10, 64 << 20), (1 << 20, 4 << 30), (4 << 20, 1 << 60))


class Piece(NamedTuple):
    """Some bytes, identified by their SHA-256 digest."""

    digest: str
    size: int


def step_of(size: int) -> int:
    """The piece size for a part of `size` bytes."""
    return next(step for step, most in _SIZES if size < most)


class Part:
    """Bytes that several hosts may need; `read(at, size)` returns a range of them. Safe to use from several threads.

    `step`: the piece size, if it does not follow from the size of the part.
    `pieces`: the pieces, if they are already known.
    """

    def __init__(
        self, size: int, read: Callable[[int, int], bytes], step: int = 0, pieces: tuple[Piece, ...] = ()
    ) -> None:
        self.size, self.read, self.step = size, read, step or step_of(size)
        self._lock, self._pieces = Lock(), pieces

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces in order. The first access reads all of the bytes, unless the pieces were already known."""
        with self._lock:
            if not self._pieces:
                self._pieces = tuple(Piece(hashlib.sha256(chunk).hexdigest(), len(chunk)) for chunk in self.chunks())
            return self._pieces

    def chunks(self) -> Iterator[bytes]:
        """All of the bytes, one piece at a time."""
        return (self.read(at, min(self.step, self.size - at)) for at in range(0, self.size, self.step))


class Cargo:
    """Parts, one after the other: the input of a command on a host.

    `room`: how many bytes the command writes to the home directory there.
    """

    def __init__(self, parts: Sequence[Part], room: int = 0) -> None:
        self._parts, self.room = parts, room
        self.size = sum(part.size for part in parts)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces, in order."""
        return tuple(piece for part in self._parts for piece in part.pieces)

    def chunks(self) -> Iterator[bytes]:
        """All of the bytes, one piece at a time."""
        return (chunk for part in self._parts for chunk in part.chunks())

    @cached_property
    def _places(self) -> dict[str, tuple[Part, int]]:
        return {
            piece.digest: (part, number * part.step) for part in self._parts for number, piece in enumerate(part.pieces)
        }

    def read(self, piece: Piece) -> bytes:
        """Read the bytes of a piece. Raises DeployError if they have changed since the piece was listed."""
        part, at = self._places[piece.digest]
        data = part.read(at, piece.size)
        if hashlib.sha256(data).hexdigest() != piece.digest:
            raise DeployError(
                "the files have changed while they were sent", "push again when nothing writes there any more"
            )
        return data


def of_bytes(data: bytes) -> Part:
    """A part made of bytes in memory."""
    return Part(len(data), lambda at, size: data[at : at + size])


def of_file(path: Path, size: int) -> Part:
    """A part made of a file of `size` bytes. `read` raises DeployError if the file is unreadable or shorter."""

    def read(at: int, most: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(most)
        except OSError as fault:
            raise DeployError(
                f"cannot read {path}: {fault.strerror}", "push again: Muster then creates it again"
            ) from fault
        if len(data) != most:
            raise DeployError(f"{path} has become shorter", "push again")
        return data

    return Part(size, read)


def of_host(host: str, pieces: tuple[Piece, ...]) -> Part:
    """A part that only `host` has, and this machine has not: the other hosts can get it only from that host."""

    def read(at: int, size: int) -> bytes:
        raise DeployError(f"only {host} has it", "push again")

    return Part(sum(piece.size for piece in pieces), read, pieces=pieces)
