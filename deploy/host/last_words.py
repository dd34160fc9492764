"""The last verdicts and events of a run's ranks, from its folder on a host, for a command that did not follow it."""

from __future__ import annotations

import time

from ..door.session import Session
from ..run import events
from ..run.events import Event
from . import commands


def of_run(session: Session, run: str, check: bool = True) -> list[Event]:
    """Verdicts and events. Raises DeployError; without `check`, a folder that does not exist yet has none."""
    answer = session.run(commands.last_words(f"{session.home}/runs/{run}"), check=check).out
    return events.last_words(answer, time.time())
