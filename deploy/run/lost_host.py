"""Whether a host is lost: when it is silent, how long a run waits for it, and whether that ends the run. Pure.

The backend of hosts brings signs of life, the inquest whom the ranks wait for. A container, and so the node, lives on
when its host's Docker engine dies. So a silent engine is no silent host: SSH may still answer there, and the node's
files may still grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.errors import DeployError
from ..core.text import in_seconds

# So long a run waits for a host that is lost, or a link that is cut: most machines reboot within this time.
WAIT_LOST_S = 600.0
# A host reports twice a second; after this much silence it is out of sight.
UNSEEN_S = 4.0
# A node that lost its peer ends within moments. The peer's host must be silent for so long before anybody blames it.
BLAME_S = 12.0
# A node writes what its machine does every 5 s, and less often where that takes long.
LIVES_S = 20.0
# So much later than the engine's last answer a file must have grown to show that the node lives without it.
AFTER_S = 1.0
# How long a host has been silent when a node's trouble says so (NodeState).
NOTICED_S = {"unseen": UNSEEN_S, "lifeless": LIVES_S}


@dataclass(frozen=True)
class Signs:
    """Seconds since SSH last brought a line of a host, since its engine answered, and since its node's files grew."""

    ssh_s: float
    engine_s: float
    files_s: float

    @property
    def lives_on(self) -> bool:
        """Whether the node lives without its engine: its files have grown since the engine last answered."""
        return self.files_s <= LIVES_S and self.files_s + AFTER_S < self.engine_s

    @property
    def silent_s(self) -> float:
        """For how long nothing has shown that the node lives. Below a silent engine, only its files can."""
        return self.ssh_s if self.files_s <= LIVES_S else max(self.ssh_s, min(self.engine_s, self.files_s))

    @property
    def trouble(self) -> str:
        """What NodeState calls it: the host is `unseen`, or its node `lifeless` below a silent engine."""
        if self.ssh_s > UNSEEN_S:
            return "unseen"
        return "lifeless" if self.silent_s > UNSEEN_S else ""


@dataclass(frozen=True)
class Misses:
    """How a run misses a host: for how long no rank has made a step, whether another node has `ended` that was to
    train, whether the ranks' reports name it as what they wait for; `reports`: these ranks write such reports.
    """

    stood_s: float
    ended: bool
    named: bool
    reports: bool


def is_lost(signs: Signs, others: Iterable[Signs], misses: Misses, patience_s: float) -> bool:
    """Whether the run has lost the host. While the ranks train, it has not, however silent the host is."""
    missed = misses.ended and min(signs.silent_s, misses.stood_s) > BLAME_S
    awaited = misses.named if misses.reports else misses.stood_s > patience_s
    # If no host answers, this machine is the one that is cut off.
    return (missed or (awaited and signs.silent_s > patience_s)) and any(other.ssh_s <= UNSEEN_S for other in others)


def patience_s(*asked: float | None) -> float:
    """How long a run waits for a lost host: the first time that was asked for (--wait-lost), or as usual."""
    return next(filter(None, asked), WAIT_LOST_S)


def refuse_cut_off(who: str, silent_s: float, patience_s: float, what: str, again: str) -> None:
    """Raise DeployError where nothing has answered for longer than that: `what` was begun there may go on."""
    if silent_s > patience_s:
        raise DeployError(
            f"{who} answered for {in_seconds(silent_s)}; {what} may still be running there", f"try again: {again}"
        )


def may_be_lost(signs: Signs) -> bool:
    """Whether the host has just fallen silent: it is not known yet whether nodes that end now have lost it."""
    return 1 < signs.silent_s <= BLAME_S


def ends_run(nodes_left: int, least: int) -> bool:
    """Whether a run is over that has so many nodes left: it needs `least` of them (--min-nodes), or all (0)."""
    return not least or nodes_left < least
