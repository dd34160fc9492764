"""One host of a push: the script road over its connection, in one thread that writes and one that reads."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from ...core.errors import DeployError
from ...core.scripts import Scripts
from ...door.session import Session
from .cargo import Cargo, Piece

_SCRIPT = Scripts(__file__)
# Ports beside those of runs; minutes after which a host takes silence for our end, and days that pieces wait there.
PORTS, LEASE_MIN, DAYS = range(29800, 29900), 5, 7
# Bytes on their way to a host, at least; seconds of what it takes, where that is more.
WINDOW, WINDOW_S = 2 << 20, 0.5
_MOST_LINE, _READ, _LAST_WORDS_S = 64 << 10, 256 << 10, 2.0
_KEY = r"(?:ssh-ed25519) [A-Za-z0-9+/=]{40,100}"
READY = re.compile(rf"({_KEY}) ?")
SERVING = re.compile(
    rf"([0-9]{{1,5}}) ([A-Za-z0-9_][A-Za-z0-9_.@-]{{0,63}}\$?) ({_KEY})((?: [0-9a-fA-F.:]{{2,45}}){{0,8}}) ?"
)

Tell = Callable[[str, str], None]


class Line:
    """The script on one host. `tell(word, rest)` gets each line of its answer, and at the end `gone` with a reason.

    `stays`: whether the host goes on alone at the end of its input.
    """

    def __init__(self, session: Session, token: str, argv: Sequence[str], cargo: Cargo, tell: Tell) -> None:
        """Raises SshFault."""
        self._cargo, self._tell = cargo, tell
        listing = "".join(f"{piece.digest} {piece.size}\n" for piece in cargo.pieces).encode()
        ports = " ".join(map(str, PORTS))
        words = (token, str(len(listing)), str(LEASE_MIN), str(DAYS), ports, *argv)
        self._pipe, self._session = session.pipe(_SCRIPT("road", *words)), session
        self._waiting, self._orders, self._pieces = threading.Condition(), deque[bytes]([listing]), deque[Piece]()
        self._closed, self.stays, self._over = False, False, threading.Event()
        # What the host has not said that it has: of a push that is cut, no more than `window` bytes are sent again.
        self._flying, self.window = dict[str, int](), WINDOW
        for work in (self._write, self._read):
            threading.Thread(target=work, daemon=True, name=f"muster-road-{session.host.name}").start()

    def order(self, *words: str) -> None:
        """Give it an order; it comes before the pieces that wait."""
        with self._waiting:
            self._orders.append(f"{' '.join(words)}\n".encode())
            self._waiting.notify()

    def put(self, pieces: Sequence[Piece]) -> None:
        """Send these pieces from here, and no others that wait."""
        with self._waiting:
            self._pieces = deque(pieces)
            self._waiting.notify()

    @property
    def is_idle(self) -> bool:
        """Whether the host has said that it has all that was to go from here."""
        with self._waiting:
            return not self._pieces and not self._flying

    def stay(self) -> None:
        """Let the host go on alone if this machine is gone. A second call does nothing."""
        if not self.stays:
            self.stays = True
            self.order("stay")

    def land(self, digest: str) -> None:
        """The host has this piece."""
        with self._waiting:
            self._flying.pop(digest, None)
            self._waiting.notify()

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        self._over.wait(seconds)

    def close(self) -> None:
        """End it: the host removes all but pieces that it may need again. A second call does nothing."""
        with self._waiting:
            self._closed = True
            self._waiting.notify()
        self._pipe.close()

    def _write(self) -> None:
        try:
            while (data := self._next()) is not None:
                self._pipe.sendall(data)
        except (OSError, TimeoutError, EOFError):
            pass  # the reader says why
        except BaseException as fault:  # of what is read here
            self._tell("gone", fault.message if isinstance(fault, DeployError) else repr(fault))

    def _next(self) -> bytes | None:
        with self._waiting:
            self._waiting.wait_for(lambda: self._closed or self._orders or self._may_fly())
            if self._closed:
                return None
            if self._orders:
                return self._orders.popleft()
            piece = self._pieces.popleft()
            self._flying[piece.digest] = piece.size
        return f"put {piece.digest} {piece.size}\n".encode() + self._cargo.read(piece)

    def _may_fly(self) -> bool:
        return bool(self._pieces) and sum(self._flying.values()) < self.window

    def _read(self) -> None:
        rest = bytearray()
        with suppress(OSError, TimeoutError, EOFError):
            while data := self._pipe.recv(_READ):
                rest += data
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    word, _, words = line.decode(errors="replace").partition(" ")
                    self._tell(word, words)
                if len(rest) > _MOST_LINE:
                    break
        self._over.set()
        lost = None if self._closed else self._session.lost()
        words = "" if self._closed or lost else self._pipe.last_words(_LAST_WORDS_S)
        self._tell("gone", lost.message if lost else words)
