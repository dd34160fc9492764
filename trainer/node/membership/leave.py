"""`muster leave`: a node goes in order, while the others train on, and stays away (agent.py: code 0).

It runs beside the agent, in the same container, and leaves a request in the node's private folder. The agent refuses
what the others could not bear; else its answers say that it leaves, the register's leader forms an epoch without it,
and it ends with code 0. Standard library only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from muster.errors import DONE, FAILED
from muster.files import replace

from ..notes import folder_here
from .members import Epoch

# In the node's private folder: empty, it is a request; the agent writes its answer there.
_NOTE = ".leave"
# A node that trains nothing has nothing to wait for, but the others are to hear that it leaves, before it is gone.
_HEARD_S = 0.6
_GIVE_UP_S = 15.0
_POLL_S, _PATIENCE_S = 0.05, 25.0


class Leaving:
    """The agent's side: whether this node was asked to leave, and whether it has left."""

    def __init__(self, outcome: Path, name: str) -> None:
        self._outcome, self._name = outcome, name
        self._since = float("inf")
        self.over = False

    @property
    def asked(self) -> bool:
        """Whether the node is leaving, or has left."""
        return self._since < float("inf")

    def look(self, refusal: Callable[[], str], epoch: Epoch, now: float) -> None:
        """Take a request, and answer it once it is decided. `refusal`: why the node must stay, or nothing."""
        if self.over:
            return
        if not self.asked:
            if not _is_request(self._outcome / _NOTE):
                return
            if why := refusal():
                self._answer(why, epoch, needed=True)
            else:
                self._since = now
        elif self._name not in epoch.members and now - self._since > _HEARD_S:
            self.over = True
            self._answer("", epoch)
        elif now - self._since > _GIVE_UP_S:
            self._since = float("inf")
            self._answer(f"the others did not agree on training without it within {_GIVE_UP_S:.0f} s", epoch)

    def _answer(self, why: str, epoch: Epoch, needed: bool = False) -> None:
        with suppress(OSError):
            answer = {"why": why, "members": epoch.members, **({"needed": True} if needed else {})}
            replace(self._outcome / _NOTE, json.dumps(answer))


def _is_request(note: Path) -> bool:
    with suppress(OSError):
        return note.stat().st_size == 0
    return False


def main() -> int:
    """Ask the agent, and print its answer as JSON; 1 where it does not answer."""
    note = folder_here() / _NOTE
    note.write_text("")
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        with suppress(OSError):
            if answer := note.read_text():
                print(answer, flush=True)
                return DONE
        time.sleep(_POLL_S)
    note.unlink(missing_ok=True)
    print(f"error: the node did not answer within {_PATIENCE_S:.0f} s", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
