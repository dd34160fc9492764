"""The options of a typed torchrun: which Muster follows, which it leaves out because it decides that, and which not."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

# Options of torchrun that say where the nodes meet, or how ranks are watched over: Muster chooses all of it.
MEETING = (
    *("--node-rank", "--master-addr", "--master-port", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"),
    *("--rdzv-conf", "--local-addr", "--monitor-interval"),
)
REFUSED = {
    "--role": "ranks of a run have one role",
    "--log-dir": "each rank's output is in logs/rank-N.log of the run",
    "--redirects": "each rank's output is in logs/rank-N.log of the run",
    "-r": "each rank's output is in logs/rank-N.log of the run",
    "--tee": "--rank all shows the lines of all ranks",
    "-t": "--rank all shows the lines of all ranks",
    "--local-ranks-filter": "--rank N shows the lines of one rank",
    "--duplicate-stdout-filters": "--rank N shows the lines of one rank",
    "--duplicate-stderr-filters": "--rank N shows the lines of one rank",
    "--start-method": "Muster forks the ranks",
    "--event-log-handler": "Muster writes the events of a run",
    "--logs-specs": "each rank's output is in logs/rank-N.log of the run",
    "--numa-binding": "Muster does not bind ranks to memory nodes",
    "--signals-to-handle": "Muster passes signals to the ranks",
    "--shutdown-timeout": "a rank has 20 s to end when it is asked to",
}
REFUSED_FLAGS = {
    "--run-path": "name the script itself",
    "--virtual-local-rank": "each rank has its own LOCAL_RANK",
}


class TorchrunWords(argparse.ArgumentParser):
    """torchrun's options, as torch.distributed.run has them (torch 2.8 to 2.13), with both spellings of each."""

    def __init__(self, fail: Callable[[str], NoReturn]) -> None:
        # Without abbreviations: `train.py --n 3` has a word of the script's, and argparse would call it ambiguous.
        super().__init__(add_help=False, allow_abbrev=False)
        self._fail = fail
        self.add_argument("--standalone", action="store_true")
        self.add_argument("--use-env", "--use_env", action="store_true")  # of torch.distributed.launch
        self.add_argument("-m", "--module", action="store_true")
        self.add_argument("--no-python", "--no_python", action="store_true")
        for name in ("--nnodes", "--nproc-per-node", "--max-restarts", *MEETING, *REFUSED):
            self.add_argument(*dict.fromkeys((name, underscored(name))))
        for name in REFUSED_FLAGS:
            self.add_argument(name, underscored(name), action="store_true")
        self.add_argument("script", nargs=argparse.REMAINDER)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """The options; what follows the first word without a dash is the script's."""
        asked, unknown = self.parse_known_args(list(words))
        if unknown:
            self.error(f"{unknown[0]} is not one of its options")
        return asked

    def error(self, message: str) -> NoReturn:
        self._fail(message)


def attribute(name: str) -> str:
    """What argparse calls an option."""
    return name.lstrip("-").replace("-", "_")


def underscored(name: str) -> str:
    """The other spelling of an option."""
    return name[:2] + name[2:].replace("-", "_")
