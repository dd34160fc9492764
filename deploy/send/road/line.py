"""The connection to one host of a push: it runs road.sh there, and sends it orders and pieces.

The bytes that are on their way are limited by a window.
"""

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
# PORTS: the ports for the hosts' SSH servers, apart from those of runs; SERVING matches them too. LEASE_MIN: if a host
# hears nothing for so many minutes, it assumes that this machine is gone. DAYS: how long pieces are kept there for a
# later push.
PORTS, LEASE_MIN, DAYS = range(29800, 29900), 5, 7
# The window: at least this many bytes may be on their way to a host; or what the host takes in WINDOW_S, if that is
# more.
WINDOW, WINDOW_S = 1 << 20, 0.5
# Send the host a sign of life this often: well before its lease is over.
_BEAT_S = 30.0
_KEY = r"(?:ssh-ed25519) [A-Za-z0-9+/=]{40,100}"
# A host's answer: how many kilobytes are free there, and its public key.
READY = re.compile(rf"([0-9]{{1,15}}) ({_KEY})? ?")
SERVING = re.compile(
    rf"(298[0-9]{{2}}) ([A-Za-z0-9_][A-Za-z0-9_.@-]{{0,63}}\$?) ({_KEY})((?: [0-9a-fA-F.:]{{2,45}}){{1,8}}) ?"
)

Tell = Callable[[str, str], None]


class Line:
    """Runs road.sh on one host, and sends it orders and pieces.

    `tell(word, rest)` gets each line of the script's output; at the end `failed` with its last line on standard error,
    or `gone` with the reason why the connection ended.
    `stays`: whether the host continues alone at the end of its input.
    """

    def __init__(self, session: Session, token: str, argv: Sequence[str], cargo: Cargo, tell: Tell) -> None:
        self._session, self._cargo, self._tell = session, cargo, tell
        listing = "".join(f"{piece.digest} {piece.size}\n" for piece in cargo.pieces).encode()
        ports = " ".join(map(str, PORTS))
        self._argv = _SCRIPT("road", token, str(len(listing)), str(LEASE_MIN), str(DAYS), ports, *argv)
        self._waiting, self._orders, self._pieces = threading.Condition(), deque[bytes]([listing]), deque[Piece]()
        self._closed, self.stays = False, False
        # Pieces that the host has not confirmed: if the push is cut, at most about `window` bytes must be sent again.
        self._unconfirmed, self.window = dict[str, int](), WINDOW
        self._thread = threading.Thread(target=self._serve, daemon=True, name=f"muster-road-{session.name}")

    def begin(self) -> None:
        """Start the script."""
        self._thread.start()

    def order(self, *words: str) -> None:
        """Give the host an order; it is sent before the pieces that wait."""
        with self._waiting:
            self._orders.append(f"{' '.join(words)}\n".encode())
            self._waiting.notify()

    def put(self, pieces: Sequence[Piece]) -> None:
        """Send these pieces from this machine; they replace the pieces that still wait."""
        with self._waiting:
            self._pieces = deque(pieces)
            self._waiting.notify()

    @property
    def is_idle(self) -> bool:
        """Whether the host has confirmed every piece that this machine had to send."""
        with self._waiting:
            return not (self._pieces or self._unconfirmed)

    def allow_alone(self) -> None:
        """Let the host continue alone if this machine goes away. A second call does nothing."""
        if not self.stays:
            self.stays = True
            self.order("stay")

    def confirm(self, digest: str) -> None:
        """Record that the host has this piece."""
        with self._waiting:
            self._unconfirmed.pop(digest, None)
            self._waiting.notify()

    def wait(self, seconds: float) -> None:
        """Wait until the script ends, for at most this many seconds."""
        self._thread.join(seconds)

    def close(self) -> None:
        """End the script and its command; the host keeps only pieces it may need again. A second call does nothing."""
        with self._waiting:
            self._closed = True
            self._waiting.notify()

    def _serve(self) -> None:
        try:
            done = self._session.run(self._argv, input=self._input(), timeout_s=None, check=False, on_line=self._hear)
            self._tell("failed", last_line(done.err))
        except BaseException as fault:  # including an error while reading the pieces here
            self._tell("gone", fault.message if isinstance(fault, DeployError) else repr(fault))

    def _hear(self, line: str) -> None:
        self._tell(*line.partition(" ")[::2])

    def _input(self) -> Iterator[bytes]:
        try:
            yield from iter(self._next, b"")
        except DeployError:
            # A host that may stay would continue, and its `docker load` would hold a layer that the next push needs.
            yield b"over\n"
            raise

    def _next(self) -> bytes:
        """What to send to the host next. To end the input it raises: then nothing reads the host's output any more."""
        with self._waiting:
            if not self._waiting.wait_for(lambda: self._closed or self._orders or self._may_send(), _BEAT_S):
                return b"beat\n"
            if self._closed:
                raise DeployError("it was ended from here", "push again")
            if self._orders:
                return self._orders.popleft()
            piece = self._pieces.popleft()
            self._unconfirmed[piece.digest] = piece.size
        return f"put {piece.digest} {piece.size}\n".encode() + self._cargo.read(piece)

    def _may_send(self) -> bool:
        return bool(self._pieces) and sum(self._unconfirmed.values()) < self.window
