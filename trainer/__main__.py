"""`torchrun -m muster.trainer ARGS`: one rank of a run, from its environment to its exit code."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence

from muster.errors import Refused

from . import mesh
from .config import parse
from .node.parent_death import die_with_parent
from .train.environment import discover
from .verdict import publish_before_training

WORDS_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank and return its exit code (contract.md)."""
    try:
        config = parse(sys.argv[1:] if arguments is None else arguments)
        ranks = discover()
        mesh.parse(config.mesh, ranks.world)
    except Refused as fault:
        return _refuse(fault)
    die_with_parent(signal.SIGKILL)
    from .train.run import run  # this imports torch, so only after the arguments are checked

    return run(config, ranks)


def _refuse(fault: Refused) -> int:
    number, local = os.environ.get("RANK", ""), os.environ.get("LOCAL_RANK", "0")
    rank = int(number[:9]) if number.isdecimal() else 0  # RANK itself may be the fault
    publish_before_training(fault, rank, local)
    run_dir = os.environ.get("MUSTER_RUN_DIR")
    if rank == 0 or (local == "0" and not run_dir):
        print(fault.report(), file=sys.stderr)
    elif not run_dir:
        # A plain torchrun ends all ranks of a node after one has ended: the rank that prints the error must not be
        # late.
        time.sleep(WORDS_S)
    return fault.code


if __name__ == "__main__":
    sys.exit(main())
