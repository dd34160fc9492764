"""One host of a push: its ports, its script that gets orders and pieces, no more than a window; how long they stay."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ...core.errors import DeployError
from ...core.scripts import Scripts
from ...core.text import last_line
from ...door.session import Session
from .cargo import Cargo, Piece

_SCRIPT = Scripts(__file__)
# Ports beside those of runs, which SERVING has too; minutes after which a host takes silence for our end, and days that
# pieces wait there.
PORTS, LEASE_MIN, DAYS = range(29800, 29900), 5, 7
# Bytes on their way to a host, at least; seconds of what it takes, where that is more.
WINDOW, WINDOW_S = 1 << 20, 0.5
# A host hears something long before its lease is over.
_BEAT_S = 30.0
_KEY = r"(?:ssh-ed25519) [A-Za-z0-9+/=]{40,100}"
# Kilobytes that are free there, and its key.
READY = re.compile(rf"([0-9]{{1,15}}) ({_KEY})? ?")
SERVING = re.compile(
    rf"(298[0-9]{{2}}) ([A-Za-z0-9_][A-Za-z0-9_.@-]{{0,63}}\$?) ({_KEY})((?: [0-9a-fA-F.:]{{2,45}}){{1,8}}) ?"
)

Tell = Callable[[str, str], None]


class Line:
    """The script on one host. `tell(word, rest)` gets each line of its answer; at the end `failed` with its last words,
    or `gone` with the fault of the connection.

    `stays`: whether the host goes on alone at the end of its input.
    """

    def __init__(self, session: Session, token: str, argv: Sequence[str], cargo: Cargo, tell: Tell) -> None:
        self._session, self._cargo, self._tell = session, cargo, tell
        listing = "".join(f"{piece.digest} {piece.size}\n" for piece in cargo.pieces).encode()
        ports = " ".join(map(str, PORTS))
        self._argv = _SCRIPT("road", token, str(len(listing)), str(LEASE_MIN), str(DAYS), ports, *argv)
        self._waiting, self._orders, self._pieces = threading.Condition(), deque[bytes]([listing]), deque[Piece]()
        self._closed, self.stays = False, False
        # What the host has not said that it has: of a push that is cut, no more than `window` bytes are sent again.
        self._flying, self.window = dict[str, int](), WINDOW
        self._thread = threading.Thread(target=self._serve, daemon=True, name=f"muster-road-{session.name}")

    def begin(self) -> None:
        """Start the script."""
        self._thread.start()

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
            return not (self._pieces or self._flying)

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
        self._thread.join(seconds)

    def close(self) -> None:
        """End it and its command: the host keeps only pieces that it may need again. A second call does nothing."""
        with self._waiting:
            self._closed = True
            self._waiting.notify()

    def _serve(self) -> None:
        try:
            done = self._session.run(self._argv, input=self._input(), timeout_s=None, check=False, on_line=self._hear)
            self._tell("failed", last_line(done.err))
        except BaseException as fault:  # of what is read here, too
            self._tell("gone", fault.message if isinstance(fault, DeployError) else repr(fault))

    def _hear(self, line: str) -> None:
        self._tell(*line.partition(" ")[::2])

    def _input(self) -> Iterator[bytes]:
        try:
            yield from iter(self._next, b"")
        except DeployError:
            # A host that may stay would go on, and its `docker load` hold a layer that the next one needs.
            yield b"over\n"
            raise

    def _next(self) -> bytes:
        """What goes to it now. The end is an exception: then nobody hears the host any more."""
        with self._waiting:
            if not self._waiting.wait_for(lambda: self._closed or self._orders or self._may_fly(), _BEAT_S):
                return b"beat\n"
            if self._closed:
                raise DeployError("it was ended from here", "push again")
            if self._orders:
                return self._orders.popleft()
            piece = self._pieces.popleft()
            self._flying[piece.digest] = piece.size
        return f"put {piece.digest} {piece.size}\n".encode() + self._cargo.read(piece)

    def _may_fly(self) -> bool:
        return bool(self._pieces) and sum(self._flying.values()) < self.window
