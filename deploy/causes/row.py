"""The fields of a row in the table of causes: its texts, other possible causes, and what it explains. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.program import host_fields
from ..core.text import listed
from .end_causes import Cause

# Groups of the ways in which calls fail. The outcomes are those of deploy/preflight/answers.py.
LOST = frozenset({"dropped", "late", "at-times", "silent"})
REFUSED = frozenset({"refused", "unreachable", "forbidden", "reset"})
AIMLESS = frozenset({"no-route", "no-family", "no-scope"})
HALVED = frozenset({"stall-send", "stall-receive", "cut", "slow", "reset", "silent", "mute"})
# A source that several rows have.
LAB = "measured in the laboratory (docs/evidence/preflight-score.md)"


@dataclass(frozen=True)
class Row:
    """One cause. The meaning of a slug never changes: records, `--json` and the benchmarks compare slugs."""

    slug: str
    # Its entry in docs/reference/causes.md: what the user sees, how to check it by hand, how to fix it, the source.
    meaning: str
    by_hand: str = ""
    fix: str = ""
    source: str = ""
    # The cause in a few words; for a name or an interface, with the fields `{name}` and `{address}`.
    what: str = ""
    # The next command to type, with `{host}` for the host, `{ssh}` for ssh's name of it, and `{at}` for Muster's option
    # with it; `here`: the command on this machine, if it differs.
    command: str = ""
    here: str = ""
    # How a run would show it; and its group of checks, if that is not the section's.
    symptom: str = ""
    group: str = ""
    # Other causes with the same effect, if this one is inferred from how calls fail or from a tool's last words.
    others: tuple[str, ...] = ()
    # The slugs of its consequences: findings of these causes are dropped if this one is found at one of their hosts.
    explains: str = ""
    # The outcomes of calls that it causes; None: it is a fact about a host, which explains all calls that it is about.
    fails: frozenset[str] | None = None
    # It is inferred from failed calls alone; and which second piece of evidence proves it (preflight/confidence.py).
    inferred: bool = False
    settled_by: str = ""
    # It was measured with many packets, so it is likelier than a rival.
    from_many_packets: bool = False
    # Calls that it blocks get no answer.
    gets_no_answer: bool = False
    # The server does not report a reason for it, or Muster's own time limit ended the wait: it is only inferred.
    without_reason: bool = False
    # If it is not certain, a rehearsal can decide.
    rehearsal_decides: bool = False
    # The cause in the closed list (end_causes.py) to which it belongs, if it ended a run.
    ends: Cause = Cause.SET_UP

    def hint(self, *hosts: str) -> str:
        """Return the next command for these hosts; without hosts, for any host."""
        name = listed(hosts) or ("that host" if self.command.startswith("on {host}") else "...")
        return self.command.format(host=name, **host_fields(*hosts or ["..."]))

    @property
    def plain_command(self) -> str:
        """The next command without `on {host}:`."""
        return self.command.removeprefix("on {host}: ").format(host="...", **host_fields("..."))

    def hint_here(self) -> str:
        """Return the next command for this machine."""
        return self.here or self.plain_command


@dataclass(frozen=True)
class Section:
    """A section of the page of causes. `intro`: the text before its rows; `group`: for rows that do not set one."""

    title: str
    rows: tuple[Row, ...] = ()
    intro: str = ""
    group: str = ""
