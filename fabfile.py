"""`fab --list` shows what there is to do. The tasks are listed in deploy/cli.py, which also makes them `muster`."""

from __future__ import annotations

from deploy.cli import namespace

__all__ = ["namespace"]
