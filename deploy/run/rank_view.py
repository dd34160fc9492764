"""What a run's state holds of one rank. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RankView:
    """The last report of one rank; times are mean milliseconds for a step."""

    rank: int
    node: str
    pid: int = 0
    step: int = 0
    step_ms: float = 0.0
    data_ms: float = 0.0
    compute_ms: float = 0.0
    wait_ms: float = 0.0
    training: bool = False
