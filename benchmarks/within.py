"""A command, and a shell, beside the ranks of a run on a host: how long, beside `ssh -t host docker exec`?

    python -m benchmarks.within [--quick]

One host of a rack with a run that waits. Both begin without a connection and take turns. The prompt counts from the
start of the command until it is on the terminal.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import statistics
import subprocess
import time
import uuid
from collections.abc import Sequence
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, spread
from benchmarks.racks import Rack
from benchmarks.venv import HOME

FAB = HOME / ".venv" / "bin" / "fab"
IMAGE = "muster-trainer:cpu"
BEYOND_S = 1.0


def measure(quick: bool) -> dict[str, Any]:
    """Seconds of `exec -- true` and until a shell's prompt, ours and by hand."""
    with racks.rack(1, "classic") as rack:
        return on_rack(rack, 3 if quick else 10)


def on_rack(rack: Rack, repetitions: int) -> dict[str, Any]:
    """The figure on a rack that is up."""
    run, host = f"within-{uuid.uuid4().hex[:8]}", rack.names[0]
    with nodes.scratch() as scratch:
        (scratch / "train.py").write_text("import time\ntime.sleep(3600)\n")
        words = ["--hosts", host, "--run", run, "--image", IMAGE, "--folder", str(scratch), "--detach"]
        subprocess.run([FAB, "deploy", *words, "--", "train.py"], cwd=HOME, check=True, capture_output=True)
        try:
            rows = _rows(rack, run, host, repetitions)
        finally:
            for more in ([], ["--delete"]):
                subprocess.run([FAB, "down", "--hosts", host, "--run", run, *more], cwd=HOME, capture_output=True)
    return result(rows)


def _rows(rack: Rack, run: str, host: str, repetitions: int) -> list[Row]:
    where, by_hand = ["--hosts", host, "--run", run], [*rack.ssh(host)[:-1], "-t", host]
    pairs = {
        "fab exec -- true": (
            [FAB, "exec", *where, "--", "true"],
            [*by_hand, f"docker exec -it muster-{run} true"],
            "",
        ),
        "fab shell, to its prompt": ([FAB, "shell", *where], [*by_hand, f"docker exec -it muster-{run} sh"], "$ "),
    }
    rows = []
    for what, (ours, rival, prompt) in pairs.items():
        times: dict[str, list[float]] = {"ours": [], "rival": []}
        for _ in range(repetitions):
            times["ours"].append(seconds(ours, prompt))
            times["rival"].append(seconds(rival, prompt))
        beyond = statistics.median(times["ours"]) - statistics.median(times["rival"])
        theirs = f"ssh -t docker exec {spread(times['rival'])} s"
        reach = f"< {BEYOND_S:.0f} s beyond"
        rows.append(Row(what, f"{spread(times['ours'])} s", theirs, f"{beyond:+.2f} s", reach, beyond < BEYOND_S))
    return rows


def seconds(line: Sequence[Any], prompt: str) -> float:
    """How long a command takes on a terminal of its own, to its end, or until it shows the prompt."""
    began = time.monotonic()
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(HOME)
        os.execvp(line[0], [str(word) for word in line])
    shown = b""
    while not (prompt and prompt.encode() in shown):
        if time.monotonic() - began > 60:
            raise TimeoutError(f"{line}: {shown!r}")
        if not select.select([terminal], [], [], 0.05)[0]:
            continue
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    took = time.monotonic() - began
    os.close(terminal)
    if prompt:  # the end of its terminal ends a shell, but not one that `nohup` started
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not prompt and status:
        raise RuntimeError(f"{line}: {shown!r}")
    return took


if __name__ == "__main__":
    alone(measure, __doc__)
