"""Who follows a run late is shown first what was before, and then, below a line that says so, what is new. Pure.

The hosts tell their consoles from the beginning, and it takes them a moment to come to the present.
"""

from __future__ import annotations

from collections.abc import Iterator

from .events import Event
from .story import Happening, Story

# After so long without an old line there are no more. A host whose clock is behind would have old ones for ever.
_QUIET_S, _MOST_S = 1.5, 30.0


class CatchingUp:
    """Puts `words` into the story of a follower that came late, once all output from before `now` is shown."""

    def __init__(self, story: Story, words: str, now: float) -> None:
        self._story, self._words = story, words
        self._began = self._quiet_since = now
        self._over, self._new = not story.late, list[Event]()

    def parts(self, events: list[Event], now: float) -> Iterator[list[Event]]:
        """The events of a look as they are to be shown, one part after the other; new output waits for its turn."""
        if not self._over:
            old = [event for event in events if not self._is_new_output(event)]
            self._new += [event for event in events if self._is_new_output(event)]
            if any(event.get("kind") == "output" for event in old):
                self._quiet_since = now
            yield old
            if now - self._quiet_since < _QUIET_S and now - self._began < _MOST_S:
                return
            self._over, events = True, self._new
            self._story.tell(Happening(now, self._words))
            yield []  # the line comes before the output that is new
        yield events

    def rest(self) -> list[Event]:
        """The output that still waits when the run ends."""
        return [] if self._over else self._new

    def _is_new_output(self, event: Event) -> bool:
        return event.get("kind") == "output" and float(event["t"]) >= self._began
