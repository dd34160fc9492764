"""What shows that a host answers and its node lives, and when a run has lost a host. Pure; backend.py brings the times.

A container, and so the node, lives on when its host's Docker engine dies. So a silent engine is no silent host: SSH may
still answer there, and the node's files may still grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A host reports twice a second; after this much silence it is out of sight.
UNSEEN_S = 4.0
# A node that lost its peer ends within moments. Its host must be silent for this long before we blame the peer.
BLAME_S = 12.0
# A node writes what its machine does every 5 s, and less often where that takes long.
LIVES_S = 20.0
# So much later than the engine's last answer a file must have grown to show that the node lives without it.
AFTER_S = 1.0


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
    train, whether the ranks wait for this host (`awaited`), and for how long they may.
    """

    stood_s: float
    ended: bool
    awaited: bool
    patience_s: float


def is_lost(signs: Signs, others: Sequence[Signs], misses: Misses) -> bool:
    """Whether the run has lost the host. While the ranks train, it has not, however silent the host is."""
    missed = misses.ended and min(signs.silent_s, misses.stood_s) > BLAME_S
    overdue = misses.awaited and signs.silent_s > misses.patience_s
    # If no host answers, this machine is the one that is cut off.
    return (missed or overdue) and any(other.ssh_s <= UNSEEN_S for other in others)


def engine_words(signs: Signs, rank: int | None) -> str:
    """What the story says of a host whose engine does not answer. `rank`: the one that trains there, if known."""
    text = "the Docker engine there does not answer"
    if not signs.lives_on:
        return f"{text}; asking again"
    who = "its node keeps running" if rank is None else f"rank {rank} keeps training"
    return f"{text}; {who}, but if it ends, nothing starts it again until somebody starts the engine"
