"""From a rank's print to the screen, on three hosts: what does following by Muster add to `ssh host docker logs -f`?

    python -m benchmarks.print_to_screen [--quick]

Each rank prints the time, a line every half second. `fab deploy --rank all` shows the lines on a terminal; beside it
one `ssh host docker logs -f` a host reads the same lines of the same run. The hosts share this machine's clock.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import statistics
import struct
import subprocess
import termios
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result
from benchmarks.venv import HOME

BASE, NODES, MOST_S = "muster-trainer:cpu", 3, 1.0
FAB = HOME / ".venv" / "bin" / "fab"
SCRIPT = """
import os, random, time
rank = os.environ["RANK"]
time.sleep(2)
for line in range({lines}):
    print(f"printed {{rank}} {{time.time():.3f}} .", flush=True)
    time.sleep(random.uniform(0.3, 0.7))
"""
_PRINTED = re.compile(rb"printed (\d+) (\d+\.\d{3}) \.")


class Screen:
    """What comes through a descriptor: by rank and time of print, how many seconds later it came."""

    def __init__(self, descriptor: int) -> None:
        self.delays: dict[tuple[int, float], float] = {}
        self._descriptor = descriptor
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        rest = b""
        with suppress(OSError):  # a terminal whose program has ended
            while data := os.read(self._descriptor, 1 << 16):
                now = time.time()
                rest += data
                for found in _PRINTED.finditer(rest):
                    rank, printed = int(found[1]), float(found[2])
                    self.delays.setdefault((rank, printed), now - printed)
                rest = rest[-64:]


def measure(quick: bool) -> dict[str, Any]:
    """Seconds from print to screen of both, over all lines of all ranks."""
    lines = 20 if quick else 120
    with nodes.scratch() as scratch, racks.rack(NODES, "classic") as rack:
        folder = scratch / f"print-{uuid.uuid4().hex[:6]}"
        folder.mkdir()
        (folder / "train.py").write_text(SCRIPT.format(lines=lines))
        command = [str(FAB), "push", "--hosts", ",".join(rack.names), "--image", BASE]
        subprocess.run(command, cwd=HOME, check=True, capture_output=True)
        ours, bare = _follow(rack, folder)
    assert len(ours) == len(bare) == lines * NODES, (len(ours), len(bare))
    row = Row(
        f"from print to screen, {NODES} hosts: median (95 % within)",
        _seconds(ours),
        f"ssh docker logs -f {_seconds(bare)}",
        "",
        f"<= {MOST_S:.0f} s",
        statistics.median(ours) <= MOST_S,
    )
    return result([row], [f"{len(ours)} lines of {NODES} ranks in one run; all hosts share this machine's cores"])


def _seconds(delays: list[float]) -> str:
    return f"{statistics.median(delays):.2f} s ({statistics.quantiles(delays, n=20)[-1]:.2f} s)"


def _follow(rack: racks.Rack, folder: Path) -> tuple[list[float], list[float]]:
    run = f"print-{uuid.uuid4().hex[:8]}"
    words = ["--image", BASE, "--folder", str(folder), "--script", "train.py", "--run", run, "--rank", "all"]
    logs = f"until docker logs -f muster-{run} 2>/dev/null; do sleep 0.1; done"
    bare = [subprocess.Popen([*rack.ssh(name), logs], stdout=subprocess.PIPE) for name in rack.names]
    try:
        shown = [Screen(one.stdout.fileno()) for one in bare if one.stdout]
        ours = _on_terminal([str(FAB), "deploy", "--hosts", ",".join(rack.names), "--separate", *words], Screen)
        for screen in shown:
            screen.thread.join(20)
    finally:
        for one in bare:
            one.kill()
            one.wait()
        shutil.rmtree(HOME / "runs" / run, ignore_errors=True)
    return list(ours.delays.values()), [delay for screen in shown for delay in screen.delays.values()]


def _on_terminal(command: list[str], watch: Callable[[int], Screen]) -> Screen:
    """Run a command to its end on a terminal of 50 lines, and watch what it shows."""
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    screen = watch(own)
    with subprocess.Popen(command, cwd=HOME, stdin=its, stdout=its, stderr=its) as fab:
        os.close(its)
        code = fab.wait(600)
    screen.thread.join(10)
    os.close(own)
    assert code == 0, f"fab deploy ended with {code}"
    return screen


if __name__ == "__main__":
    alone(measure, __doc__)
