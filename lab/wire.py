"""A bad wire: packets arrive late, twice, in another order, or damaged. This runs in the switch's network.

python lab/wire.py PORT BRIDGE DELAY_S TWICE SWAPPED DAMAGED      the last three as shares of the packets

This program sits between two tap devices, between a host's port and the switch; taps get packets in the same form as
on a real wire, including checksums.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, TAP, NO_INFO = 0x400454CA, 0x2, 0x1000
SWAP_S = 0.004


def tap(name):
    """Create a tap device; returns it as a file descriptor."""
    made = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(made, TUNSETIFF, struct.pack("16sH", name.encode(), TAP | NO_INFO))
    return made


def damaged(packet):
    """Flip one bit of the payload."""
    place = random.randrange(14, len(packet))
    return packet[:place] + bytes([packet[place] ^ 1]) + packet[place + 1 :]


def main(port, bridge, delay, twice, swapped, spoiled):
    """Put a separate bridge and the taps between port and bridge, and carry packets forever."""
    ends = [tap(f"{port[:9]}-near"), tap(f"{port[:9]}-far")]
    lines = [f"link add {port[:9]}-own type bridge", f"link set {port[:9]}-own up"]
    lines += [f"link set {port[:9]}-{side} master {of}" for side, of in (("near", f"{port[:9]}-own"), ("far", bridge))]
    lines += [f"link set {port[:9]}-{side} up" for side in ("near", "far")]
    lines += [f"link set {port} master {port[:9]}-own"]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines).encode(), check=True)
    print("ready", flush=True)
    waiting, number = [], 0
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, [], [], left)[0]:
            packet, other = os.read(end, 65536), ends[1 - ends.index(end)]
            packet = damaged(packet) if random.random() < spoiled else packet
            for _ in range(1 + (random.random() < twice)):
                number += 1
                at = time.monotonic() + delay + (SWAP_S if random.random() < swapped else 0)
                heapq.heappush(waiting, (at, number, other, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, other, packet = heapq.heappop(waiting)
            os.write(other, packet)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(float, sys.argv[3:]))
