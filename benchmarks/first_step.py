"""From the command to the first training step on three hosts that have the image: what does `fab deploy` add?

    python -m benchmarks.first_step [--quick]

Both run the same script in the same image: it joins the group, does one all_reduce, and prints when. Muster's side is
`fab deploy`, with preflight, locks and the proof of the image; the rival sends the script to the three hosts in
parallel with `ssh host docker run ... torchrun`, and already knows address, port, interface and image. They take turns.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import FAB, HOME

BASE, NODES, MOST_RATIO, PORT = "muster-trainer:cpu", 3, 1.3, 29555
SCRIPT = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1000))
print(f"first step at {time.time():.3f}", flush=True)
dist.destroy_process_group()
"""
_FIRST_STEP = re.compile(r"first step at (\d+\.\d+)")


def measure(quick: bool) -> dict[str, Any]:
    """Seconds from the command until the last rank's first step."""
    ours, bare = [], []
    with nodes.scratch() as scratch, racks.rack(NODES, "classic") as rack:
        folder = scratch / f"first-{uuid.uuid4().hex[:6]}"
        folder.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        deploy(rack.hosts, folder, "--image", BASE)  # afterwards the hosts have the image
        image = _image(rack)
        for repetition in range(2 if quick else 5):
            ours.append(deploy(rack.hosts, folder, "--image", BASE))
            bare.append(_bare(rack, image))
            say(f"{repetition + 1}: fab deploy {ours[-1]:.1f} s, ssh docker run {bare[-1]:.1f} s")
    ratio = statistics.median(ours) / statistics.median(bare)
    row = Row(
        f"to the first step, image present, {NODES} hosts",
        f"{spread(ours, '.1f')} s",
        f"ssh docker run torchrun {spread(bare, '.1f')} s",
        f"{ratio:.2f}x",
        f"<= {MOST_RATIO}x",
        ratio <= MOST_RATIO,
    )
    return result([row], [f"{len(ours)} repetitions; ours with preflight; all hosts share this machine's cores"])


def deploy(names: Sequence[str], folder: Path, *more: str, **variables: str) -> float:
    """Seconds from the command to the first step of the last rank.

    `more`: arguments of the command; `variables`: added to this process's environment.
    """
    run = f"first-{uuid.uuid4().hex[:8]}"
    words = ["--hosts", ",".join(names), "--folder", str(folder), "--script", "train.py", "--run", run, *more]
    began = time.time()
    environment = {**os.environ, **variables}
    done = subprocess.run([FAB, "deploy", *words], cwd=HOME, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    logs = "".join(path.read_text() for path in (HOME / "runs" / run / "logs").glob("*.log"))
    shutil.rmtree(HOME / "runs" / run)
    return last(logs) - began


def _image(rack: racks.Rack) -> str:
    """The id of the image on the hosts: of the largest image there."""
    lines = rack.on(rack.hosts[0], "docker", "images", "--quiet", "--no-trunc").split()
    sizes = {each: int(rack.on(rack.hosts[0], "docker", "inspect", "--format", "{{.Size}}", each)) for each in lines}
    return max(sizes, key=lambda each: sizes[each])


def _bare(rack: racks.Rack, image: str) -> float:
    address = rack.on(rack.hosts[0], "hostname", "-i").split()[0]
    began = time.time()
    running = [
        subprocess.Popen(
            [
                *rack.line(name),
                "cat >first.py && docker run --rm --network host --init --shm-size 1g -e GLOO_SOCKET_IFNAME=eth0",
                f"-e OMP_NUM_THREADS=1 -v ~/first.py:/first/train.py:ro -w /first --entrypoint torchrun {image}",
                f"--nnodes {NODES} --nproc-per-node 1 --node-rank {rank}",
                f"--master-addr {address} --master-port {PORT} train.py",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank, name in enumerate(rack.hosts)
    ]
    for process in running:
        assert process.stdin
        process.stdin.write(SCRIPT)
        process.stdin.close()
        process.stdin = None
    outputs = [process.communicate(timeout=180)[0] for process in running]
    assert not any(process.returncode for process in running), outputs
    return last("".join(outputs)) - began


def last(text: str) -> float:
    """When the last of all ranks made its first step, according to their output."""
    times = [float(match) for match in _FIRST_STEP.findall(text)]
    assert len(times) == NODES, text
    return max(times)


if __name__ == "__main__":
    alone(measure, __doc__)
