"""`python -m trainer.torchrun ARGS`: torchrun, whose nodes find each other sooner.

A node of torch's c10d rendezvous looks once a second whether the others are there, and every start and restart of a
run waits for that look: 1.1 s on three nodes that start at once, 0.3 to 0.7 s with five looks. The pauses are no
settings of torch's (seen to 2.13: two names in dynamic_rendezvous.py); where it has other names, torchrun is as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed import run
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

PAUSE_SECONDS = 0.2


def main() -> None:
    """As torchrun's own, with its arguments from the command line."""
    _look_more_often(dynamic_rendezvous)
    run.main()


def _look_more_often(torchs: Any) -> None:
    delay: Callable[[Any], None] | None = getattr(torchs, "_delay", None)
    holder = getattr(torchs, "_BackendRendezvousStateHolder", None)
    if not delay or not holder:
        return
    init = holder.__init__

    def never_older(self: Any, backend: Any, settings: Any, cache_duration: float = PAUSE_SECONDS / 2) -> None:
        init(self, backend, settings, cache_duration)

    def shorter(seconds: Any) -> None:
        # One second is the pause between two looks; a range is what spreads the first ones.
        delay(PAUSE_SECONDS if seconds == 1 else seconds)

    holder.__init__, torchs._delay = never_older, shorter


if __name__ == "__main__":
    main()
