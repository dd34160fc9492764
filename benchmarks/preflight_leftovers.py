"""What preflight leaves on the hosts when its control side is stopped at some moment: processes, after a few seconds.

python -m benchmarks.preflight_leftovers
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lab import network

HOME = Path(__file__).resolve().parents[1]
MOMENTS_S, LEAVE_S = (0.15, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0), 8.0
CONTROL = """
import json, sys
from deploy.preflight import PreflightRequest
from deploy.local.probe import LocalProbe
from deploy.preflight.probe.conversation import examine
probes = [LocalProbe(name, argv) for name, argv in json.loads(sys.argv[1])]
print("asked", flush=True)
examine(probes, PreflightRequest())
"""


def measure():
    """(stops tried, of these left something). A host that drops all makes the connecting phase long enough to hit."""
    tried = left = 0
    for number in (signal.SIGINT, signal.SIGKILL):
        for moment in MOMENTS_S:
            with network.Lab(3) as lab:
                lab.hosts[-1].firewall("INPUT -i eth0 -j DROP")
                hosts = json.dumps([[host.name, [*host.prefix(), "python3"]] for host in lab.hosts])
                control = subprocess.Popen(
                    [sys.executable, "-c", CONTROL, hosts],
                    cwd=HOME, env={**os.environ, "PYTHONPATH": "."}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                control.stdout.readline()
                time.sleep(moment)
                control.send_signal(number)
                control.wait(20)
                end = time.monotonic() + LEAVE_S
                while (running := _processes(lab)) and time.monotonic() < end:
                    time.sleep(0.1)
                tried, left = tried + 1, left + bool(running)
    return tried, left


def _processes(lab):
    return [pid for host in lab.hosts for pid in network.must("ip", "netns", "pids", host.space).split()]


if __name__ == "__main__":
    stops, leavings = measure()
    print(f"{stops} stops (Ctrl-C and kill -9, 8 moments each): {leavings} left something {LEAVE_S:.0f} s later")
