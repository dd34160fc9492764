"""Hosts pull a base from its registry: all of them, or only the first if they share one link to the registry.

A host that has the base can pass it on to the others (base_transfer.py), which takes about as long again. So all
hosts should pull, unless that takes more than twice as long. To find out, the first host begins alone; then a few more
begin, and the rates at which they receive decide.
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

# WATCH_S: how many seconds the first host is watched alone, and then with others. TRIED: how many others. _BEGIN_S: how
# long a pull may take to begin.
WATCH_S, TRIED, _BEGIN_S = 5.0, 3, 15.0
# If the hosts receive, on average, less than this fraction of what the first received alone, they share its link.
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
    """What an engine reports while it pulls: for each layer, the bytes received and the total."""

    def __init__(self) -> None:
        self._layers, self.error = dict[str, tuple[int, int]](), ""

    @property
    def came(self) -> int:
        """The bytes received so far."""
        return sum(came for came, _ in self._layers.values())

    @property
    def size(self) -> int:
        """The total size in bytes of the layers whose size is known."""
        return sum(size for _, size in self._layers.values())

    def take(self, line: str) -> None:
        """Read the engine's next line. A line that cannot be read is ignored."""
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
    """One host's pull, in its own thread.

    `references`: names for the image, tried in order until one works.
    """

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
        """End the pull: the engine discards layers that are not complete."""
        self._is_stopped = True
        self.thread.join(_BEGIN_S)

    def _try(self, reference: str) -> bool:
        """Pull by one name; with a token from this machine's login if the registry requires one."""
        token = ""
        for _ in range(_MOST_TOKENS):
            before = self.progress.came
            self.fault = self._pull(reference, token)
            # A token expires after some minutes. As long as bytes arrive, a new token continues the pull.
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
        """Pull once; return the reason if it failed, or an empty text."""
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
    """Let hosts pull an image. Returns the pulls that ended, successful or not; the other hosts wait for those.

    `references`: names for the image. `note` gets the decision.
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
    """The average bytes per second of the hosts that receive any: hosts that only unpack by now receive none.

    Measured for WATCH_S, once all have received their first bytes or _BEGIN_S have passed.
    """
    end = time.monotonic() + _BEGIN_S
    while time.monotonic() < end and not all(pull.progress.came or not pull.thread.is_alive() for pull in pulls):
        time.sleep(_LOOK_S)
    before = [pull.progress.came for pull in pulls]
    pulls[0].thread.join(WATCH_S)
    rates = [(pull.progress.came - came) / WATCH_S for pull, came in zip(pulls, before, strict=True)]
    return sum(rates) / max(1, sum(rate > 0 for rate in rates))
