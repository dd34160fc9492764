"""What goes to a host, as pieces by their digests: hosts pass on pieces, and take none that has another digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from ...core.errors import DeployError

# Bytes of a piece, and of the parts that have such pieces: larger ones take longer from host to host, and after a cut
# more goes again; smaller ones cost hosts more processes.
_SIZES = ((128 << 10, 4 << 20), (512 << 10, 64 << 20), (1 << 20, 4 << 30), (4 << 20, 1 << 60))


class Piece(NamedTuple):
    """Some bytes, by their SHA-256."""

    digest: str
    size: int


def step_of(size: int) -> int:
    """The bytes of a piece of so many bytes."""
    return next(step for step, most in _SIZES if size < most)


class Part:
    """Bytes that several hosts may get: `read(at, size)` gives some of them. Several threads may use it.

    `step`: the bytes of a piece, where its own size does not say it. `pieces`: where they are known.
    """

    def __init__(
        self, size: int, read: Callable[[int, int], bytes], step: int = 0, pieces: tuple[Piece, ...] = ()
    ) -> None:
        self.size, self.read, self.step = size, read, step or step_of(size)
        self._lock, self._pieces = Lock(), pieces

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its pieces, in their order. At the first call all of it is read."""
        with self._lock:
            if not self._pieces:
                self._pieces = tuple(Piece(hashlib.sha256(chunk).hexdigest(), len(chunk)) for chunk in self.chunks())
            return self._pieces

    def chunks(self) -> Iterator[bytes]:
        """All of it."""
        return (self.read(at, min(self.step, self.size - at)) for at in range(0, self.size, self.step))


class Cargo:
    """Parts, one behind the other: what a command on a host gets as its input. `room`: the bytes that it fills in the
    home there."""

    def __init__(self, parts: Sequence[Part], room: int = 0) -> None:
        self._parts, self.room = parts, room
        self.size = sum(part.size for part in parts)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces, in their order."""
        return tuple(piece for part in self._parts for piece in part.pieces)

    def chunks(self) -> Iterator[bytes]:
        """All of it."""
        return (chunk for part in self._parts for chunk in part.chunks())

    @cached_property
    def _places(self) -> dict[str, tuple[Part, int]]:
        return {
            piece.digest: (part, number * part.step) for part in self._parts for number, piece in enumerate(part.pieces)
        }

    def read(self, piece: Piece) -> bytes:
        """The bytes of a piece. Raises DeployError if they are not what they were."""
        part, at = self._places[piece.digest]
        data = part.read(at, piece.size)
        if hashlib.sha256(data).hexdigest() != piece.digest:
            raise DeployError(
                "the files have changed while they were sent", "push again when nothing writes there any more"
            )
        return data


def of_bytes(data: bytes) -> Part:
    """Bytes that are here."""
    return Part(len(data), lambda at, size: data[at : at + size])


def of_file(path: Path, size: int) -> Part:
    """A file with that many bytes. Reading raises DeployError if it cannot be read, or is shorter."""

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
    """What lies on a host, and not here: only from there can others have it."""

    def read(at: int, size: int) -> bytes:
        raise DeployError(f"only {host} has it", "push again")

    return Part(sum(piece.size for piece in pieces), read, pieces=pieces)
