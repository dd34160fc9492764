"""An image onto three hosts that have nothing of it, over an uplink of 100 Mbit/s.

    python -m benchmarks.cold_push [--quick]

Ours reads the image from the local engine once, with nothing kept from before; the rival is `docker save | ssh docker
load` for the three hosts at once. The uplink is shaped with tbf on the rack's bridge, for both alike. Needs root.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks import nodes, push, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.rivals.save_load import save_load

MBIT = 100
MOST_RATIO = 0.5


def measure(quick: bool) -> dict[str, Any]:
    """Seconds; before each turn the hosts are empty."""
    repetitions, ours, rival, wire = (1 if quick else 2), [], [], []
    with nodes.scratch() as scratch, racks.rack(3, "mixed") as rack, rack.uplink(MBIT):
        folder = scratch / "code"
        folder.mkdir()
        push.change(folder)
        for repetition in range(repetitions):
            rack.empty()
            before = rack.received(rack.names[0])
            ours.append(push.push(rack, folder, scratch / f"layers-{repetition}"))
            wire.append(rack.received(rack.names[0]) - before)
            say(f"cold push {repetition + 1}/{repetitions}: {ours[-1]:.1f} s")
            rack.empty()
            rival.append(save_load(push.BASE, [rack.ssh(name) for name in rack.names]))
            say(f"save | load {repetition + 1}/{repetitions}: {rival[-1]:.1f} s")
    ratio = statistics.median(ours) / statistics.median(rival)
    row = Row(
        f"cold push to 3 hosts at {MBIT} Mbit/s",
        f"{spread(ours, '.0f')} s",
        f"docker save | ssh docker load {spread(rival, '.0f')} s",
        f"{ratio:.2f}x",
        f"<= {MOST_RATIO}x",
        ratio <= MOST_RATIO,
    )
    return result([row], [f"{repetitions} repetitions; {max(wire) / 1e6:.0f} MB to each host"])


if __name__ == "__main__":
    alone(measure, __doc__)
