"""Whether a host is lost: when it is silent, how long a run waits for it, and whether that ends the run. Pure.

The hosts backend supplies the signs of life; the inquest supplies which node the ranks wait for. A container, and with
it the node, keeps running when its host's Docker engine dies. So a silent engine does not mean a silent host: SSH may
still answer there, and the node's files may still grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.errors import DeployError
from ..core.text import in_seconds

# How long a run waits for a lost host or a cut link: most machines reboot within this time.
WAIT_LOST_S = 600.0
# A host reports twice a second; after this much silence it counts as unseen.
UNSEEN_S = 4.0
# A node that lost its peer ends within moments. The peer's host is blamed only once it has been silent for this long.
BLAME_S = 12.0
# A node writes its machine's telemetry every 5 s, and less often if measuring takes long. If its files have grown
# within this time, the node lives.
LIVES_S = 20.0
# How much later than the engine's last answer a file must have grown to show that the node lives without its engine.
AFTER_S = 1.0
# How long a host has been silent when its node's trouble (NodeState) first has this value.
NOTICED_S = {"unseen": UNSEEN_S, "lifeless": LIVES_S}


@dataclass(frozen=True)
class Signs:
    """Seconds since SSH last delivered a line from a host, since its engine answered, since its node's files grew."""

    ssh_s: float
    engine_s: float
    files_s: float

    @property
    def lives_on(self) -> bool:
        """Whether the node lives without its engine: its files have grown since the engine last answered."""
        return self.files_s <= LIVES_S and self.files_s + AFTER_S < self.engine_s

    @property
    def silent_s(self) -> float:
        """For how long nothing has shown that the node lives. If the engine is silent, only the files can show it."""
        return self.ssh_s if self.files_s <= LIVES_S else max(self.ssh_s, min(self.engine_s, self.files_s))

    @property
    def trouble(self) -> str:
        """The trouble for NodeState: `unseen` (a silent host), `lifeless` (a silent engine and node), or empty."""
        if self.ssh_s > UNSEEN_S:
            return "unseen"
        return "lifeless" if self.silent_s > UNSEEN_S else ""


@dataclass(frozen=True)
class Misses:
    """What shows that a run misses a silent host.

    `no_step_s`: for how many seconds no rank has made a step. `other_ended`: the node of another host, which was to
    train, has ended. `is_waited_for`: the ranks' reports name this host's node as the one they wait for. `has_reports`:
    this run's ranks write such reports.
    """

    no_step_s: float
    other_ended: bool
    is_waited_for: bool
    has_reports: bool


def is_lost(signs: Signs, others: Iterable[Signs], misses: Misses, patience_s: float) -> bool:
    """Whether the run has lost the host. While the ranks train, no host is lost, however silent it is."""
    missed = misses.other_ended and min(signs.silent_s, misses.no_step_s) > BLAME_S
    awaited = misses.is_waited_for if misses.has_reports else misses.no_step_s > patience_s
    # If no other host answers either, this machine is the one that is cut off.
    return (missed or (awaited and signs.silent_s > patience_s)) and any(other.ssh_s <= UNSEEN_S for other in others)


def patience_s(*asked: float | None) -> float:
    """How long a run waits for a lost host: the first of these times that is given (--wait-lost), or WAIT_LOST_S."""
    return next(filter(None, asked), WAIT_LOST_S)


def refuse_cut_off(who: str, silent_s: float, patience_s: float, what: str, again: str) -> None:
    """Raise DeployError if nothing has answered for longer than `patience_s`; `what` may continue there."""
    if silent_s > patience_s:
        raise DeployError(
            f"{who} answered for {in_seconds(silent_s)}; {what} may still be running there", f"try again: {again}"
        )


def may_be_lost(signs: Signs) -> bool:
    """Whether the host has just fallen silent, so that nodes which end now may have lost it."""
    return 1 < signs.silent_s <= BLAME_S


def ends_run(nodes_left: int, least: int) -> bool:
    """Whether a run with `nodes_left` nodes is over: it needs `least` of them (--min-nodes), or all (0)."""
    return not least or nodes_left < least
