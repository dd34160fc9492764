"""Hosts fetch a base from its registry: each, or the first alone where all of them share one way there.

Who has it passes it on to the others (bring.py), which takes about as long again. So each should pull, unless that
takes more than twice as long: the first begins alone, then some more begin, and what each gets then tells.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ...core import fields
from ...core.errors import BadAnswer, DeployError
from ...door.session import Session
from ...engine import reach
from ..road.guide import Tell
from . import registry

# How long the first is watched alone, and then with others; how many others; how long they may need to begin.
WATCH_S, TRIED, _BEGIN_S = 5.0, 3, 15.0
# Hosts that get, on average, less than this part of what the first got alone share its way.
_SHARED = 0.5
_LOOK_S, _MOST_LINE, _MOST_LAYERS, _MOST_TOKENS = 0.1, 64 << 10, 1000, 20
_WORDS = fields.words(1000)
_ROW = fields.record(
    {},
    {
        "status": _WORDS,
        "id": fields.text(100),
        "progressDetail": fields.default(fields.record({}, {"current": fields.whole(), "total": fields.whole()}), {}),
        "error": _WORDS,
    },
)
_BLANK = {"status": "", "id": "", "progressDetail": {}}


class Progress:
    """What an engine says while it pulls: the bytes of each layer that came, and of how many."""

    def __init__(self) -> None:
        self._rest, self._came, self._sizes, self.error = b"", dict[str, int](), dict[str, int](), ""

    @property
    def came(self) -> int:
        """Bytes that came so far."""
        return sum(self._came.values())

    @property
    def size(self) -> int:
        """Bytes of the layers of which it is known."""
        return max(sum(self._sizes.values()), self.came)

    def take(self, piece: bytes) -> None:
        """Read what comes next. A line that nobody can read is none."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _MOST_LINE:
            self._rest = b""
        for line in lines:
            with suppress(BadAnswer):
                self._read({**_BLANK, **_ROW(fields.document(line, "a pull"), "a pull")})

    def _read(self, row: dict[str, Any]) -> None:
        self.error = row.get("error", self.error)
        layer, status, detail = row["id"], row["status"], row["progressDetail"]
        if status == "Downloading" and (layer in self._sizes or len(self._sizes) < _MOST_LAYERS):
            self._came[layer] = detail.get("current", 0)
            self._sizes[layer] = max(detail.get("total", 0), self._came[layer])
        elif status == "Download complete" and layer in self._sizes:
            self._came[layer] = self._sizes[layer]


class Pull:
    """The pull of one host, in a thread of its own. `references`: names of the image, of which the first that works
    counts."""

    def __init__(self, session: Session, references: Sequence[str], tell: Tell, note: Callable[[str], None]) -> None:
        self.session, self._references, self._tell, self._note = session, references, tell, note
        self.progress, self._stop, self.fault = Progress(), threading.Event(), ""
        self.worked = False
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True, name=f"muster-pull-{session.host.name}").start()

    def stop(self) -> None:
        """End it: its engine drops what is no whole layer."""
        self._stop.set()
        self.ended.wait(_BEGIN_S)

    def _serve(self) -> None:
        try:
            self.worked = any(self._try(reference) for reference in self._references)
        finally:
            self.ended.set()

    def _try(self, reference: str) -> bool:
        """Pull by one name; with a token of this machine's login where the registry asks who comes."""
        token = ""
        for _ in range(_MOST_TOKENS):
            before = self.progress.came
            self.fault = self._pull(reference, token)
            if not self.fault or self._stop.is_set():
                return not self.fault
            # A token ends after some minutes: as long as something comes, the next one goes on.
            if not registry.is_refusal(self.fault) or (token and self.progress.came == before):
                return False
            had, token = token, registry.token_for(reference)
            if not token:
                return False
            if not had:
                name = registry.registry_of(reference)
                self._note(f"{self.session.host.name}: a token of your login at {name}, to pull this image alone")
        return False

    def _pull(self, reference: str, token: str) -> str:
        """Why it did not work; nothing if it did."""
        host, source = self.session.host.name, registry.registry_of(reference)
        self.progress.error = ""
        self._tell(host, 0, 0, source)
        try:
            with reach.on_host(self.session).pulling(reference, token) as pieces:
                for piece in pieces:
                    if self._stop.is_set():
                        return "it was stopped"
                    self.progress.take(piece)
                    self._tell(host, self.progress.came, self.progress.size, source)
        except DeployError as fault:
            return fault.message
        return self.progress.error


def pull(sessions: Sequence[Session], references: Sequence[str], tell: Tell, note: Callable[[str], None]) -> list[Pull]:
    """Let hosts pull an image: the pulls that ended, well or not. Hosts that are in none of them wait for the others.

    `references`: its names. `note` gets what is decided.
    """

    def begin(some: Sequence[Session]) -> list[Pull]:
        return [Pull(session, references, tell, note) for session in some]

    pulls = begin(sessions[:1])
    _wait_for_bytes(pulls)
    alone = sum(_rates(pulls))
    if not alone:
        return _waited([*pulls, *begin(sessions[1:])])
    pulls += begin(sessions[1 : 1 + TRIED])
    _wait_for_bytes(pulls)
    together = [rate for rate in _rates(pulls) if rate]
    if together and sum(together) / len(together) < _SHARED * alone and not pulls[0].ended.is_set():
        for each in pulls[1:]:
            each.stop()
        waiting = ", ".join(session.host.name for session in sessions[1:])
        note(f"{waiting}: share the way to the registry with {sessions[0].host.name}, and wait for what it gets")
        _waited(pulls[:1])
        return pulls
    return _waited([*pulls, *begin(sessions[1 + TRIED :])])


def _rates(pulls: Sequence[Pull]) -> list[float]:
    """Bytes a second that come to each, over a while. Who has all of it, and unpacks it, gets nothing more."""
    before = [each.progress.came for each in pulls]
    pulls[0].ended.wait(WATCH_S)
    return [(each.progress.came - came) / WATCH_S for each, came in zip(pulls, before, strict=True)]


def _wait_for_bytes(pulls: Sequence[Pull]) -> None:
    """Until the first bytes of each have come, or it has ended; for a while."""
    end = time.monotonic() + _BEGIN_S
    while time.monotonic() < end and not all(pull.progress.came or pull.ended.is_set() for pull in pulls):
        time.sleep(_LOOK_S)


def _waited(pulls: list[Pull]) -> list[Pull]:
    for each in pulls:
        each.ended.wait()
    return pulls
