"""Hosts as people have them (lab/rack_ways.py): does preflight work there, or name what it is?

    python -m benchmarks.rack_ways --rack NAME [--only NAME...]

The rack is up, and its first two hosts have the image as lab/trainer:1, fish and tcsh.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time

from lab import rack_faults
from lab.rack import Rack
from lab.rack_ways import WAYS


def trial(name, rack):
    """One way on the first of two hosts: right or not, the cause, seconds, what was said."""
    kind = WAYS[name]
    with tempfile.TemporaryDirectory() as folder:
        cluster = rack_faults.FaultyHosts(rack, rack.hosts[:2], folder)
        host = cluster.hosts[0]
        line = [
            rack_faults.FAB,
            "preflight",
            "--hosts",
            ",".join(cluster.hosts),
            "--json",
            "--image",
            rack_faults.IMAGE,
        ]
        with kind.on_host(cluster, host):
            began = time.monotonic()
            env = {**os.environ, "MUSTER_SSH_CONFIG": str(cluster.config)}
            done = subprocess.run(line, cwd=rack_faults.HOME, env=env, capture_output=True, text=True, timeout=400)
            seconds = time.monotonic() - began
    verdict = json.loads(done.stdout or "{}")
    first = next(iter(verdict.get("findings", [])), {})
    said = verdict.get("cause", "no verdict")
    right = rack_faults.is_right(kind, {"cause": said}) and (bool(kind.cause) == (host in verdict.get("hosts", [])))
    words = f"{first.get('text', '')} | {first.get('fix', '')}" if said else verdict.get("rehearsed", "")
    return right, said, seconds, words or done.stderr[-300:]


def main():
    """Each way, one line."""
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--rack", required=True)
    command.add_argument("--only", nargs="*", default=list(WAYS))
    options = command.parse_args()
    rack = Rack(options.rack, 2)
    good = 0
    for name in options.only:
        right, said, seconds, words = trial(name, rack)
        good += right
        mark = "right" if right else "WRONG"
        print(f"{mark}  {WAYS[name].words}: {said or 'works'} ({seconds:.1f} s)  {words}", flush=True)
    print(f"{good} of {len(options.only)} right")


if __name__ == "__main__":
    main()
