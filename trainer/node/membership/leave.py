"""`muster leave`: a node leaves gracefully while the other nodes keep training, and stays away (agent.py: code 0).

This program runs next to the agent, in the same container, and makes its request in the node's journal. The agent
refuses if the other nodes could not continue without it. Otherwise its answers to them say that it leaves, the
register's leader forms an epoch without it, and it ends with code 0. Standard library only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from muster.errors import DONE, FAILED
from muster.reserve import note

from ..notes import Journal, folder_here
from .members import HEARD_S, Epoch

_GIVE_UP_S = 15.0
_POLL_S, _PATIENCE_S = 0.05, 25.0


class Leaving:
    """The agent's side: whether this node was asked to leave, and whether it has left."""

    def __init__(self, outcome: Path, name: str) -> None:
        self._journal, self._name = Journal(outcome), name
        self._since = float("inf")
        self._is_request = self.has_left = False

    @property
    def is_leaving(self) -> bool:
        """Whether the node is leaving, or has left."""
        return self._since < float("inf")

    def look(self, refusal: Callable[[], str], epoch: Epoch, now: float) -> None:
        """Take a request, and answer it once it is decided. `refusal`: returns why the node must stay, or nothing."""
        for row in self._journal.read():
            self._is_request = bool(row.get("leave", self._is_request))
        if self.has_left:
            return
        if not self.is_leaving:
            if not self._is_request:
                return
            if why := refusal():
                self._answer(why, epoch, needed=True)
            else:
                self._since = now
        # A node that does not train waits as well, so that the other nodes hear that it leaves before it is gone.
        elif self._name not in epoch.members and now - self._since > HEARD_S:
            self.has_left = True
            self._answer("", epoch)
        elif now - self._since > _GIVE_UP_S:
            self._since = float("inf")
            self._answer(f"the other nodes did not agree within {_GIVE_UP_S:.0f} s to train without it", epoch)

    def _answer(self, why: str, epoch: Epoch, needed: bool = False) -> None:
        self._is_request = False
        answer = {"why": why, "members": epoch.members, **({"needed": True} if needed else {})}
        note(self._journal.folder, leaves=answer)


def main() -> int:
    """Ask the agent, and print its answer as JSON; returns 1 if it does not answer."""
    journal = Journal(folder_here())
    journal.read()  # an answer to an earlier request
    note(journal.folder, leave=True)
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        for row in journal.read():
            if "leaves" in row:
                print(json.dumps(row["leaves"]), flush=True)
                return DONE
        time.sleep(_POLL_S)
    note(journal.folder, leave=False)
    print(f"error: the node did not answer within {_PATIENCE_S:.0f} s", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
