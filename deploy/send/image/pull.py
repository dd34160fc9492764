"""Hosts fetch a base from its registry: each, or the first alone where all of them share one way there.

Who has it passes it on to the others (bring.py), which takes about as long again. So each should pull, unless that
takes more than twice as long: the first begins alone, then some more begin, and what each gets then tells.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

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
_LOOK_S, _MOST_LAYERS, _MOST_TOKENS = 0.1, 1000, 20
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


class Progress:
    """What an engine says while it pulls: of each layer, the bytes that came, and of how many."""

    def __init__(self) -> None:
        self._layers, self.error = dict[str, tuple[int, int]](), ""

    @property
    def came(self) -> int:
        """Bytes that came so far."""
        return sum(came for came, _ in self._layers.values())

    @property
    def size(self) -> int:
        """Bytes of the layers of which it is known."""
        return sum(size for _, size in self._layers.values())

    def take(self, line: str) -> None:
        """Read what it says next. What nobody can read is nothing."""
        with suppress(BadAnswer):
            row = _ROW(fields.document(line, "a pull"), "a pull")
            self.error = row.get("error", self.error)
            layer, status, detail = row.get("id", ""), row.get("status"), row.get("progressDetail", {})
            if status == "Downloading" and len(self._layers) < _MOST_LAYERS:
                came = detail.get("current", 0)
                self._layers[layer] = came, max(came, detail.get("total", 0))
            elif status == "Download complete" and layer in self._layers:
                _, size = self._layers[layer]
                self._layers[layer] = size, size


class Pull:
    """The pull of one host, in a thread of its own. `references`: names of the image, of which the first that works
    counts."""

    def __init__(self, session: Session, references: Sequence[str], tell: Tell, note: Callable[[str], None]) -> None:
        self.session, self._tell, self._note = session, tell, note
        self.progress, self._is_stopped, self.fault = Progress(), False, "it has not ended"
        self.thread = threading.Thread(
            target=lambda: any(map(self._try, references)), daemon=True, name=f"muster-pull-{session.name}"
        )
        self.thread.start()

    @property
    def worked(self) -> bool:
        """Whether its engine has the image now."""
        return not self.fault

    def stop(self) -> None:
        """End it: its engine drops what is no whole layer."""
        self._is_stopped = True
        self.thread.join(_BEGIN_S)

    def _try(self, reference: str) -> bool:
        """Pull by one name; with a token of this machine's login where the registry asks who comes."""
        token = ""
        for _ in range(_MOST_TOKENS):
            before = self.progress.came
            self.fault = self._pull(reference, token)
            # A token ends after some minutes: as long as something comes, the next one goes on.
            if not registry.is_refusal(self.fault) or (token and self.progress.came == before):
                break
            had, token = token, registry.token_for(reference)
            if not token:
                break
            if not had:
                name = registry.registry_of(reference)
                self._note(f"{self.session.name}: gets a token of your login at {name}, which can only pull this image")
        return self.worked

    def _pull(self, reference: str, token: str) -> str:
        """Why it did not work; nothing if it did."""
        host, source = self.session.name, registry.registry_of(reference)
        self.progress.error = ""
        self._tell(host, 0, 0, source)
        try:
            with reach.on_host(self.session).pulling(reference, token) as lines:
                for line in lines:
                    if self._is_stopped:
                        return "it was stopped"
                    self.progress.take(line)
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
    alone = _rate(pulls)
    pulls += begin(sessions[1 : 1 + TRIED])
    if len(pulls) > 1 and 0 < _rate(pulls) < _SHARED * alone and pulls[0].thread.is_alive():
        for each in pulls[1:]:
            each.stop()
        waiting = ", ".join(session.name for session in sessions[1:])
        note(f"{waiting}: share the way to the registry with {sessions[0].name}, and wait for what it gets")
    else:
        pulls += begin(sessions[1 + TRIED :])
    for each in pulls:
        each.thread.join()
    return pulls


def _rate(pulls: Sequence[Pull]) -> float:
    """Bytes a second, for a while from the first ones on, to each that gets some: who unpacks gets nothing more."""
    end = time.monotonic() + _BEGIN_S
    while time.monotonic() < end and not all(pull.progress.came or not pull.thread.is_alive() for pull in pulls):
        time.sleep(_LOOK_S)
    before = [pull.progress.came for pull in pulls]
    pulls[0].thread.join(WATCH_S)
    rates = [(pull.progress.came - came) / WATCH_S for pull, came in zip(pulls, before, strict=True)]
    return sum(rates) / max(1, sum(rate > 0 for rate in rates))
