"""`fab --list` shows what there is to do. The work is in deploy/tasks.py."""

from __future__ import annotations

from deploy.tasks import down, report, runs, up

__all__ = ["down", "report", "runs", "up"]
