"""Facts and probe answers in, one cause with its evidence and fix out. Pure; preflight_run.py asks the hosts."""

from __future__ import annotations

from deploy.preflight.answers import Answers
from deploy.preflight.judging import judge
from deploy.preflight.verdict import Finding, Verdict
from deploy.preflight.want import Want

__all__ = ["Answers", "Finding", "Verdict", "Want", "judge"]
