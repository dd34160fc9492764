"""`fab --list` shows what there is to do. The work is in deploy/tasks.py."""

from __future__ import annotations

from deploy.deploy_tasks import attach, deploy, fetch, logs, status, stop, trust, unlock
from deploy.tasks import down, report, runs, up

__all__ = ["attach", "deploy", "down", "fetch", "logs", "report", "runs", "status", "stop", "trust", "unlock", "up"]
