"""What a row of the table of causes may have: its words, what else it may be, what it makes unnecessary. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .ends import Cause

# How calls fail. The names of outcomes are those of deploy/preflight/answers.py.
LOST = frozenset({"dropped", "late", "at-times", "silent"})
REFUSED = frozenset({"refused", "unreachable", "forbidden", "reset"})
AIMLESS = frozenset({"no-route", "no-family", "no-scope"})
HALVED = frozenset({"stall-send", "stall-receive", "cut", "slow", "reset", "silent", "mute"})
# Sources that several rows have.
LAB = "measured in the laboratory (docs/preflight-score.md)"
NCCL_ENV = "docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


@dataclass(frozen=True)
class Row:
    """One cause. A slug never changes its meaning: records, `--json` and the benchmarks compare it.

    Its entry in docs/troubleshooting.md: meaning, what one sees; by_hand: how to check it; fix; source.
    For a finding: what: the cause in few words, of a name or an interface with `{name}` and `{address}`; command: what
    to type next, with `{host}` for the host, and `here` on this machine, if that differs; symptom: how a run would show
    it; group: the group of checks; others: what else has the same outcome, if the cause is inferred from how calls fail
    or from a tool's last words.
    For the judge: explains: consequences, where this is found at one of their hosts, by their slugs; fails: how calls
    fail because of it (None: it is a host's own fact, which explains all calls that it is about); inferred: it is read
    from failed calls alone; settled_by: which second piece of evidence makes it sure (preflight/confidence.py);
    measured: many packets have shown it; silent: what it closes gives no answer; without_reason: a
    server gives none for it, or a limit of ours ended the wait.
    ends: the cause of the closed list to which it belongs, if a run has ended with it.
    """

    slug: str
    meaning: str
    by_hand: str = ""
    fix: str = ""
    source: str = ""
    what: str = ""
    command: str = ""
    here: str = ""
    symptom: str = ""
    group: str = ""
    others: tuple[str, ...] = ()
    explains: str = ""
    fails: frozenset[str] | None = None
    inferred: bool = False
    settled_by: str = ""
    measured: bool = False
    silent: bool = False
    without_reason: bool = False
    ends: Cause = Cause.SET_UP

    def hint(self, host: str = "") -> str:
        """The next command for a host; without a name, for any host."""
        return self.command.format(host=host or ("that host" if self.command.startswith("on {host}") else "..."))

    @property
    def plain_command(self) -> str:
        """The next command without the place."""
        return self.command.removeprefix("on {host}: ").format(host="...")

    def hint_here(self) -> str:
        """The next command on this machine."""
        return self.here or self.plain_command


@dataclass(frozen=True)
class Section:
    """A part of the page of causes: its title, its rows, and what stands before them."""

    title: str
    rows: tuple[Row, ...] = ()
    intro: str = ""
