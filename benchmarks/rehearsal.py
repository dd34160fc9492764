"""How long a preflight takes with its rehearsal, and a quick one: the whole command as waited, healthy hosts.

    python -m benchmarks.rehearsal [--quick]

Beside it the rival, which finds nothing out before: `ssh host docker run ... torchrun` with one all_reduce, typed by
somebody who knows address, port and interface by heart. The hosts are a rack of 5: all share this machine's cores.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import HOME

BASE, HOSTS, PORT = "muster-trainer:cpu", 5, 29655
MOST_S, MOST_QUICK_S = 10.0, 2.0
# The engines still remove the containers of the command before: none pays for another.
SETTLES_S = 3.0
FAB = HOME / ".venv" / "bin" / "fab"
STEP = (
    "import torch, torch.distributed as d; d.init_process_group('gloo'); d.all_reduce(torch.ones(5 << 20)); "
    "d.barrier(); print('summed'); d.destroy_process_group()"
)


def measure(quick: bool) -> dict[str, Any]:
    """Seconds from the command to its end."""
    repetitions = 2 if quick else 5
    times: dict[str, list[float]] = {"rehearsed": [], "quick": [], "torchrun": []}

    def timed(command: Callable[..., float], *options: str) -> float:
        time.sleep(SETTLES_S)
        return command(rack, *options)

    with nodes.scratch(), racks.rack(HOSTS, "classic") as rack:
        pushed = [str(FAB), "push", "--hosts", ",".join(rack.names), "--image", BASE]
        subprocess.run(pushed, cwd=HOME, check=True, capture_output=True)
        for number in range(repetitions + 1):  # the first warms the caches
            took = {
                "rehearsed": timed(_preflight),
                "quick": timed(_preflight, "--quick"),
                "torchrun": timed(_torchrun),
            }
            say(f"{number}: " + ", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items()))
            for what, seconds in took.items():
                times[what] += [seconds] * bool(number)
    rival = f"ssh docker run torchrun {spread(times['torchrun'], '.1f')} s"
    rows = [
        _row(f"fab preflight with its rehearsal, {HOSTS} hosts", times["rehearsed"], rival, MOST_S),
        _row(f"fab preflight --quick, {HOSTS} hosts", times["quick"], rival, MOST_QUICK_S),
    ]
    note = f"{repetitions} repetitions; hosts and commands share {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}"
    return result(rows, [note])


def _row(what: str, times: list[float], rival: str, most: float) -> Row:
    return Row(what, f"{spread(times, '.1f')} s", rival, "", f"<= {most:g} s", statistics.median(times) <= most)


def _preflight(rack: racks.Rack, *options: str) -> float:
    """Raises RuntimeError unless it is green, and rehearsed as asked; and if its own seconds are not those waited."""
    began = time.monotonic()
    line = [str(FAB), "preflight", "--hosts", ",".join(rack.names), "--json", *options]
    done = subprocess.run(line, cwd=HOME, capture_output=True, text=True)
    seconds = time.monotonic() - began
    verdict = json.loads(done.stdout or "{}")
    if (
        done.returncode
        or bool(verdict["rehearsed"]) == bool(options)
        or abs(verdict["seconds"] - seconds) > 0.3 + seconds / 10
    ):
        raise RuntimeError(f"{done.returncode} after {seconds:.1f} s: {done.stdout[:1500]}{done.stderr[-500:]}")
    return seconds


def _torchrun(rack: racks.Rack) -> float:
    address = rack.on(rack.names[0], "hostname", "-i").split()[0]
    image = f"muster-{re.sub('[^a-z0-9]+', '-', BASE)}:latest"
    began = time.monotonic()
    running = [
        subprocess.Popen(
            [
                *rack.ssh(name),
                "docker run --rm --network host --init --shm-size 1g -e GLOO_SOCKET_IFNAME=eth0 -e OMP_NUM_THREADS=1",
                f"--entrypoint torchrun {image} --nnodes {HOSTS} --nproc-per-node 1 --node-rank {rank}",
                f'--master-addr {address} --master-port {PORT} --no-python python -c "{STEP}"',
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank, name in enumerate(rack.names)
    ]
    outputs = [process.communicate(timeout=180)[0] for process in running]
    if any(b"summed" not in output for output in outputs):
        raise RuntimeError(b"".join(outputs)[-2000:].decode(errors="replace"))
    return time.monotonic() - began


if __name__ == "__main__":
    alone(measure, __doc__)
