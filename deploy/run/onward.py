"""The next start of a run, on the hosts that are left: which of its options still hold. Pure."""

from __future__ import annotations

import re


def options(again: str, planned: int, left: int) -> str:
    """The options `again` of a run on `planned` hosts, for a start on `left` of them."""
    if left >= planned:
        return " ".join(again.split())
    # This start needs no host to wait, or to vote alone.
    again = re.sub(r"--(spare|arbiter) \S+", "", again)

    def fewer(match: re.Match[str]) -> str:
        # Of fewer than three none can be lost, and of all that are left one must be allowed to.
        return f"--min-nodes {min(int(match[1]), left - 1)}" if left >= 3 else ""

    return " ".join(re.sub(r"--min-nodes (\d{1,4})\b", fewer, again).split())
