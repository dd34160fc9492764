"""How a script ended that was asked to stop: what it wrote after that, and what it did not. Pure.

Only the script knows whether it has saved all; but who was killed in the middle of it, who failed at it, and which
files came, the node has seen. An end that calls itself fine without them would be believed. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .limit import USUAL_GRACE_S

_ERROR_MOST, _PATH_MOST = 160, 100
# Python's own ways to end by a signal are no fault of the script's.
_ENDS = re.compile(r"(?:KeyboardInterrupt|SystemExit|\w*SignalException)\b")


@dataclass(frozen=True)
class AfterStop:
    """`cut`: the ranks that were killed because they still ran after `grace_s`. `errors`: of those that failed by
    themselves, and lost no peer. `files`: those written since the stop was asked for, the newest first.
    """

    cut: Sequence[int] = ()
    grace_s: float = USUAL_GRACE_S
    errors: Mapping[int, str] | None = None
    files: Sequence[str] = ()

    @property
    def own_errors(self) -> list[tuple[int, str]]:
        """The ranks that failed at the stop, in order, with the error of each."""
        return [(rank, text) for rank, text in sorted((self.errors or {}).items()) if not _ENDS.match(text)]

    @property
    def unsaved(self) -> bool:
        """Whether the script failed at it, and no file tells that it had saved before."""
        return bool(self.own_errors) and not self.files


def how_it_stopped(what: str, after: AfterStop, nodes: bool = False) -> str:
    """The sentence: `what` (train.py was asked to stop), who was cut or failed, and what was written since.

    `nodes`: there are several, and another one may have written what this one has not.
    """
    parts = [what]
    if after.cut:
        who = f"rank{'' if len(after.cut) == 1 else 's'} {', '.join(map(str, after.cut))}"
        were = "was" if len(after.cut) == 1 else "were"
        parts.append(f"{who} {were} killed after {after.grace_s:g} s while still working (--grace gives more time)")
    if after.own_errors:
        rank, error = after.own_errors[0]
        parts.append(f"rank {rank} failed at it: {error[:_ERROR_MOST]}")
    if after.files:
        parts.append(f"since then it {_wrote(after)}")
    elif not nodes:
        parts.append("since then it wrote no file")
    return "; ".join(parts)


def _wrote(after: AfterStop) -> str:
    newest = after.files[0][-_PATH_MOST:]
    more = f" and {len(after.files) - 1} more" if len(after.files) > 1 else ""
    may_lack = ", which may be incomplete" if after.cut else ""
    return f"wrote {newest}{more}{may_lack}"
