"""From facts and probe answers to one cause with its evidence and fix. Pure; probe/conversation.py asks the hosts."""

from __future__ import annotations

from ..causes.finding import Finding
from .answers import Answers
from .findings import Verdict
from .judge import judge
from .request import PreflightRequest

__all__ = ["Answers", "Finding", "PreflightRequest", "Verdict", "judge"]
