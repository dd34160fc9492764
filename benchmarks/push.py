"""Push a change of 1 MB of code until it can run on three hosts that have the rest of the image.

    python -m benchmarks.push [--quick]

Muster's side: from the changed folder to the last host's proof, including connecting. The rival: `docker save | ssh
docker load` to the three hosts in parallel, with an image that has the same change; its `docker build` is not counted.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.rivals.save_load import save_load
from deploy.door import session
from deploy.send.folder.credentials import NO_CHOICE, SendChoice
from deploy.send.folder.folder_look import FolderLook
from deploy.send.image import push as transfer
from deploy.send.image.layer_cache import LayerCache

BASE, OURS, RIVAL = "muster-trainer:cpu", "muster-bench:ours", "muster-bench:rival"
CODE_BYTES = 1_000_000
LEAST_RATIO, MOST_SECONDS, MOST_BYTES = 50, 5.0, 1_300_000


def measure(quick: bool) -> dict[str, Any]:
    """Seconds and bytes; the rival takes turns with Muster."""
    repetitions, ours, rival, wire = (1 if quick else 3), [], [], []
    with nodes.scratch() as scratch, racks.rack(3, "mixed") as rack:
        folder = scratch / "code"
        folder.mkdir()
        try:
            change(folder)
            # Once for both before the measurement: then the hosts have the base image, and Muster has cached what it
            # needs of it.
            push(rack, folder, scratch / "layers")
            for repetition in range(repetitions):
                change(folder)
                before = [_received(rack, name) for name in rack.hosts]
                ours.append(push(rack, folder, scratch / "layers"))
                wire += [_received(rack, name) - was for name, was in zip(rack.hosts, before, strict=True)]
                change(folder)
                _build(folder)
                rival.append(save_load(RIVAL, [rack.line(name) for name in rack.hosts]))
                say(f"push {repetition + 1}/{repetitions}: {ours[-1]:.2f} s, save | load {rival[-1]:.1f} s")
        finally:
            subprocess.run(["docker", "image", "rm", RIVAL], capture_output=True, check=False)
    return _result(ours, rival, wire)


def change(folder: Path) -> None:
    """Write 1 MB of new code that cannot be compressed."""
    (folder / "train.py").write_text("print('training')\n")
    (folder / "code.bin").write_bytes(random.randbytes(CODE_BYTES))


def push(rack: racks.Rack, folder: Path, layers: Path, choice: SendChoice = NO_CHOICE) -> float:
    """Seconds of one push to all hosts, including connecting, as in `muster push`. Raises if a host failed."""
    began = time.monotonic()
    code = FolderLook(folder, choice, layers.parent)
    with session.open_all(racks.inventory(rack)) as opened:
        pushed = transfer.push(opened.all().values(), BASE, code, OURS, lambda *_: None, LayerCache(layers))
    pushed.all()
    return time.monotonic() - began


def _received(rack: racks.Rack, name: str) -> int:
    """Bytes that a host has received over its network, packet headers included."""
    return int(rack.on(name, "cat", "/sys/class/net/eth0/statistics/rx_bytes"))


def _build(folder: Path) -> None:
    recipe = f"FROM {BASE}\nCOPY . /workspace\nWORKDIR /workspace\n"
    command = ["docker", "build", "--quiet", "--tag", RIVAL, "--file", "-", str(folder)]
    subprocess.run(command, input=recipe.encode(), check=True, stdout=subprocess.PIPE)


def _result(ours: list[float], rival: list[float], wire: list[int]) -> dict[str, Any]:
    seconds = statistics.median(ours)
    ratio = statistics.median(rival) / seconds
    faster = Row(
        "push after a 1 MB change, 3 hosts",
        f"{spread(ours)} s",
        f"docker save | ssh docker load {spread(rival, '.1f')} s",
        f"{ratio:.0f}x faster",
        f">= {LEAST_RATIO}x",
        ratio >= LEAST_RATIO,
    )
    local = Row(
        "from the change to runnable", f"{spread(ours)} s", target=f"<= {MOST_SECONDS} s", met=seconds <= MOST_SECONDS
    )
    bytes_in = Row(
        "received by a host",
        f"{max(wire) / 1e6:.2f} MB",
        target=f"<= {MOST_BYTES / 1e6} MB",
        met=max(wire) <= MOST_BYTES,
    )
    note = f"{len(ours)} repetitions; two hosts with the classic image store, one containerd's; bytes with headers"
    return result([faster, local, bytes_in], [note])


if __name__ == "__main__":
    alone(measure, __doc__)
