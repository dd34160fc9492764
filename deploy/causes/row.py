"""What a row of the table of causes may have: its words, what else it may be, what it makes unnecessary. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.program import host_fields
from ..core.text import listed
from .end_causes import Cause

# How calls fail. The names of outcomes are those of deploy/preflight/answers.py.
LOST = frozenset({"dropped", "late", "at-times", "silent"})
REFUSED = frozenset({"refused", "unreachable", "forbidden", "reset"})
AIMLESS = frozenset({"no-route", "no-family", "no-scope"})
HALVED = frozenset({"stall-send", "stall-receive", "cut", "slow", "reset", "silent", "mute"})
# Sources that several rows have.
LAB = "measured in the laboratory (docs/evidence/preflight-score.md)"


@dataclass(frozen=True)
class Row:
    """One cause. A slug never changes its meaning: records, `--json` and the benchmarks compare it."""

    slug: str
    # Its entry in docs/reference/causes.md: what one sees, how to check it, what mends it, who says so.
    meaning: str
    by_hand: str = ""
    fix: str = ""
    source: str = ""
    # The cause in a few words; of a name or an interface with `{name}` and `{address}`.
    what: str = ""
    # What to type next, with `{host}` for the host, `{ssh}` for what ssh takes, `{at}` for the option with it; on
    # this machine, if that differs.
    command: str = ""
    here: str = ""
    # How a run would show it, and the group of checks where that is not the section's.
    symptom: str = ""
    group: str = ""
    # What else has the same outcome, where it is inferred from how calls fail or from a tool's last words.
    others: tuple[str, ...] = ()
    # By their slugs, what are consequences where this is found at one of their hosts.
    explains: str = ""
    # How calls fail because of it; None: it is a host's own fact, which explains all calls that it is about.
    fails: frozenset[str] | None = None
    # It is read from failed calls alone; and the second piece of evidence that makes it sure (preflight/confidence.py).
    inferred: bool = False
    settled_by: str = ""
    # Many packets have shown it.
    measured: bool = False
    # What it closes gives no answer.
    silent: bool = False
    # A server gives no reason for it, or a limit of ours ended the wait.
    without_reason: bool = False
    # Where it is not sure, a rehearsal shows it.
    tried: bool = False
    # The cause of the closed list to which it belongs, if a run has ended with it.
    ends: Cause = Cause.SET_UP

    def hint(self, *hosts: str) -> str:
        """The next command for these hosts; without a name, for any host."""
        name = listed(hosts) or ("that host" if self.command.startswith("on {host}") else "...")
        return self.command.format(host=name, **host_fields(*hosts or ["..."]))

    @property
    def plain_command(self) -> str:
        """The next command without the place."""
        return self.command.removeprefix("on {host}: ").format(host="...", **host_fields("..."))

    def hint_here(self) -> str:
        """The next command on this machine."""
        return self.here or self.plain_command


@dataclass(frozen=True)
class Section:
    """A part of the page of causes: its title, its rows, what stands before them, the group of rows that name none."""

    title: str
    rows: tuple[Row, ...] = ()
    intro: str = ""
    group: str = ""
