"""`python -m muster.trainer.node health`: check whether this node's agent still works.

Docker runs this every ten seconds, so it imports no torch. It reads from the run folder when the agent started, and
when the ranks of this node last wrote an event.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.files import is_number, read_object

from ... import NODE
from ..ending.reached_step import newest_events

START_LIMIT_S = 120.0
PROGRESS_LIMIT_S = 300.0


def main() -> int:
    """Print one line; returns 0 if healthy, 1 if not (the codes that Docker expects)."""
    folder = os.environ.get("MUSTER_RUN_DIR")
    reason = stuck(Path(folder), os.uname().nodename, time.time()) if folder else missing_agent(Path("/proc"))
    print(reason or "healthy")
    return 1 if reason else 0


def stuck(folder: Path, host: str, now: float) -> str:
    """Why the node whose agent runs on `host` is unhealthy at `now` (unix seconds), or an empty string."""
    agent = _agent_of(folder, host)
    if agent is None:
        # The agent writes its file first; before that, and in another run's folder, the node cannot be judged.
        return missing_agent(Path("/proc"))
    started, node = agent
    # A resumed run continues in the same folder: events from before this agent's start are not its progress.
    latest = max((t for t in _last_words(folder, node) if t >= started), default=None)
    if latest is None:
        silent = now - started
        return f"{node}: no rank has started in {silent:.0f} s" if silent > START_LIMIT_S else ""
    silent = now - latest
    return f"{node}: no progress for {silent:.0f} s" if silent > PROGRESS_LIMIT_S else ""


def missing_agent(processes: Path) -> str:
    """Why no agent seems to run, or an empty string; `processes` is /proc."""
    for command in processes.glob("[0-9]*/cmdline"):
        try:
            if f"\0{NODE}\0agent\0".encode() in command.read_bytes():
                return ""
        except OSError:  # the process ended meanwhile
            continue
    return "no agent is running"


def _agent_of(folder: Path, host: str) -> tuple[float, str] | None:
    """When the last agent on `host` started, in unix seconds, and its node's name."""
    agents = [read_object(path) for path in folder.glob("nodes/[!.]*.json")]
    own = [agent for agent in agents if agent.get("host") == host and is_number(agent.get("t"))]
    return max(((float(agent["t"]), str(agent.get("node"))) for agent in own), default=None)


def _last_words(folder: Path, node: str) -> list[float]:
    """When each rank of `node` last wrote an event, in unix seconds."""

    def is_of(event: Mapping[str, Any]) -> bool:
        return event.get("node") == node and is_number(event.get("t"))

    last = (
        next((each for each in newest_events(path) if is_of(each)), None) for path in folder.glob("ranks/rank-*.jsonl")
    )
    return [float(event["t"]) for event in last if event]


if __name__ == "__main__":
    sys.exit(main())
