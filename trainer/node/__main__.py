"""`python -m muster.trainer.node PROGRAM ARGS`: start one of the programs of a node by name. Standard library only.

These are the agent, the programs next to it, and those that the control side starts in a node's container
(docs/develop/contract.md).
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import resolve_name

PROGRAMS = {
    "agent": ".agent.agent",
    "handover": ".agent.handover",
    "health": ".beside.health",
    "leave": ".membership.leave",
    "nvml": ".beside.nvml",
    "on_end": ".beside.on_end",
    "overlay": ".beside.overlay",
    "rehearsal": ".probe.rehearsal",
    "telemetry": ".beside.telemetry",
    "why": ".ending.doing_now",
    "within": ".agent.within",
}


def main() -> None:
    """Run the program named by the first argument, with the remaining arguments. The program ends this process."""
    if sys.argv[1:2] == [] or sys.argv[1] not in PROGRAMS:
        sys.exit(f"error: no program {' '.join(sys.argv[1:2])!r}\nhint: one of {', '.join(PROGRAMS)}")
    runpy.run_module(resolve_name(PROGRAMS[sys.argv.pop(1)], __package__), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
