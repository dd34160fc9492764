"""Describes how a script ended after it was asked to stop, and what it wrote since then. Pure.

Only the script knows whether it has saved everything. But the node has seen which ranks were killed or failed while
they were stopping, and which files were written. A plain "stopped" without these facts would be taken for a good end.
Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .limit import USUAL_GRACE_S

_ERROR_MOST, _PATH_MOST = 160, 100
# Exceptions by which Python ends on a signal; they are not errors of the script.
_ENDS = re.compile(r"(?:KeyboardInterrupt|SystemExit|\w*SignalException)\b")


@dataclass(frozen=True)
class AfterStop:
    """What happened on a node after it was asked to stop.

    `killed`: the ranks killed because they still ran after `grace_s` seconds. `errors`: by rank, the errors of ranks
    that failed by themselves, not because of a lost peer. `files`: the files written since, the newest first.
    """

    killed: Sequence[int] = ()
    grace_s: float = USUAL_GRACE_S
    errors: Mapping[int, str] | None = None
    files: Sequence[str] = ()

    @property
    def own_errors(self) -> list[tuple[int, str]]:
        """The ranks that failed while they were stopping, in order, each with its error."""
        return [(rank, text) for rank, text in sorted((self.errors or {}).items()) if not _ENDS.match(text)]

    @property
    def unsaved(self) -> bool:
        """Whether the script failed while it was stopping, and wrote no file that shows that it had saved before."""
        return bool(self.own_errors) and not self.files


def how_it_stopped(what: str, after: AfterStop, nodes: bool = False) -> str:
    """A sentence: `what` (train.py was asked to stop), which ranks were killed or failed, and what was written since.

    `nodes`: there are several nodes, so another node may have written files even if this one has not.
    """
    parts = [what]
    if after.killed:
        who = f"rank{'' if len(after.killed) == 1 else 's'} {', '.join(map(str, after.killed))}"
        were = "was" if len(after.killed) == 1 else "were"
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
    may_lack = ", which may be incomplete" if after.killed else ""
    return f"wrote {newest}{more}{may_lack}"
