"""all_reduce of 20 MB on three hosts: on the plain network, on an overlay, on one with a pair through a third host.

    python -m benchmarks.overlay --rack NAME [--image IMAGE] [--turns 3]

The rack is up already, and stays (`make rack RACK=NAME`). The three take turns; each is one `fab deploy` of a script
that sums 20 MB over gloo ten times. For the last, `iptables` cuts the second host off from the third. The hosts share
this machine's cores, which encrypt for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import say, spread
from benchmarks.venv import HOME
from lab.rack import Rack

FAB = HOME / ".venv" / "bin" / "fab"
TIMES, BYTES = 10, 20 << 20
SCRIPT = f"""
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones({BYTES} // 4)
dist.all_reduce(ones)
for _ in range({TIMES}):
    dist.barrier()
    began = time.monotonic()
    dist.all_reduce(ones)
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"took {{time.monotonic() - began:.4f}} s", flush=True)
dist.destroy_process_group()
"""
_TOOK = re.compile(r"took (\d+\.\d+) s")


@contextmanager
def cut(rack: Rack) -> Iterator[None]:
    """The second host and the third do not reach each other."""
    ends = rack.hosts[1:3]
    rules = [(host, rack.address(peer)) for host, peer in (ends, ends[::-1])]

    def change(word: str) -> None:
        for host, peer in rules:
            rack.root(host, "iptables", f"-{word}", "INPUT", "-s", peer, "-j", "DROP")

    change("I")
    try:
        yield
    finally:
        change("D")


def seconds(rack: Rack, image: str, folder: Path, *options: str) -> float:
    """The median of one deploy's all_reduces. Raises AssertionError with the deploy's words if it failed."""
    run = f"overlay-{uuid.uuid4().hex[:8]}"
    words = ["--hosts", ",".join(rack.hosts[:3]), "--image", image, "--folder", str(folder), "--script", "train.py"]
    environment = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config)}
    line = [str(FAB), "deploy", *words, "--run", run, *options]
    done = subprocess.run(line, cwd=HOME, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    logs = "".join(path.read_text() for path in (HOME / "runs" / run / "logs").glob("*.log"))
    shutil.rmtree(HOME / "runs" / run)
    took = [float(text) for text in _TOOK.findall(logs)]
    assert len(took) == TIMES, logs
    assert "--overlay" not in options or "UDP" in done.stderr
    return statistics.median(took)


def main() -> None:
    """Measure and print."""
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--rack", required=True, help="the name of a rack that is up, of three hosts or more")
    command.add_argument("--image", default="muster-trainer:cpu")
    command.add_argument("--turns", type=int, default=3)
    options = command.parse_args()
    rack, found = Rack(options.rack, 3), {"plain": list[float](), "direct": list[float](), "relayed": list[float]()}
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as scratch:
        folder = Path(scratch) / "overlay"
        folder.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        for turn in range(options.turns):
            found["plain"].append(seconds(rack, options.image, folder))
            found["direct"].append(seconds(rack, options.image, folder, "--overlay"))
            with cut(rack):
                found["relayed"].append(seconds(rack, options.image, folder, "--overlay"))
            load = os.getloadavg()[0]
            say(
                f"{turn + 1}: {json.dumps({name: round(each[-1], 3) for name, each in found.items()})}, load {load:.1f}"
            )
    for name, each in found.items():
        rate = 8e-6 * BYTES / statistics.median(each)
        print(f"{name:8} {spread(each, '.3f')} s for 20 MB, {rate:.0f} Mbit/s of the sum")


if __name__ == "__main__":
    main()
