"""Turn facts and probe answers into one cause with evidence and a fix. Pure; probe/conversation.py asks the hosts."""

from .answers import Answers
from .judge import judge
from .request import PreflightRequest
from .verdict import Verdict

__all__ = ["Answers", "PreflightRequest", "Verdict", "judge"]
