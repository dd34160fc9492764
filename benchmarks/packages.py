"""From a clone with a requirements.txt of 30 packages to the first step on three hosts that have the base image.

    python -m benchmarks.packages [--quick]

Ours is `fab deploy`; the rival is a Dockerfile by hand: `docker build` here, `docker save | ssh docker load`. Its time
ends when the first of the three hosts has the image, before anything runs. First with nothing kept from before, then
again with changed code. What goes from this machine to the hosts is counted on the hosts, at their SSH port. `--quick`
leaves out the rival.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import first_step, nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.rivals.save_load import save_load
from benchmarks.venv import HOME

NODES, MOST_AGAIN, MOST_MB = 3, 1.3, 10.0
NEEDS = (
    "numpy pandas pyarrow scipy scikit-learn matplotlib transformers tokenizers datasets accelerate "
    "safetensors huggingface-hub sentencepiece hydra-core omegaconf wandb tensorboard tqdm pyyaml rich "
    "einops regex requests tiktoken evaluate peft torchmetrics fire jsonlines absl-py "
)
IMAGE = "muster-bench-packages"
_BASE = ("--image", first_step.BASE)
_COUNT = ("iptables", "-nvxL", "INPUT")


def measure(quick: bool) -> dict[str, Any]:
    """Seconds to the last rank's first step, and megabytes from this machine."""
    before = os.environ.get("XDG_CACHE_HOME")
    with nodes.scratch() as scratch, racks.rack(NODES, "classic") as rack:
        folder = scratch / f"clone-{uuid.uuid4().hex[:6]}"
        folder.mkdir()
        _write(folder, 0)
        _push(rack)
        os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")
        try:
            _count(rack)
            first = first_step.deploy(rack.hosts, folder, *_BASE)
            sent = _counted(rack)
            say(f"first time {first:.0f} s, {sent:.1f} MB")
            again, without = [], []
            for repetition in range(3 if quick else 5):
                _write(folder, 1 + repetition)
                again.append(first_step.deploy(rack.hosts, folder, *_BASE))
                without.append(first_step.deploy(rack.hosts, folder, *_BASE, "--requirements", "no"))
                say(f"again {again[-1]:.1f} s, without packages {without[-1]:.1f} s")
        finally:
            os.environ.pop("XDG_CACHE_HOME") if before is None else os.environ.update(XDG_CACHE_HOME=before)
        rival = [] if quick else _by_hand(rack, folder)
    return _result(first, again, without, sent, rival)


def _result(first: float, again: list[float], without: list[float], sent: float, rival: list[float]) -> dict[str, Any]:
    ratio = statistics.median(own / bare for own, bare in zip(again, without, strict=True))
    by_hand = f"docker build, save and load to one host {rival[0]:.0f} s" if rival else ""
    faster = first < rival[0] if rival else None
    first_row = Row(f"30 packages to the first step on {NODES} hosts, first time", f"{first:.0f} s", by_hand)
    bare = f"the same without packages {spread(without, '.1f')} s"
    second = Row("... second time, with changed code", f"{spread(again, '.1f')} s", bare, f"{ratio:.2f}x")
    little = Row("... through this machine, the base image present", f"{sent:.1f} MB", "")
    rows = [
        replace(first_row, ratio=f"{first / rival[0]:.2f}x" if rival else "", target="< 1x", met=faster),
        replace(second, target=f"<= {MOST_AGAIN}x", met=ratio <= MOST_AGAIN),
        replace(little, target=f"< {MOST_MB:g} MB beside uv", met=sent < MOST_MB),
    ]
    if rival:
        words = f"docker build, save and load to one host {rival[1]:.0f} s"
        share = f"{statistics.median(again) / rival[1]:.2f}x"
        rows.append(Row("... second time, by hand", f"{spread(again, '.1f')} s", words, share))
    note = f"{len(again)} repetitions of the second time; all hosts share this machine's cores and its way to the index"
    return result(rows, [note, "the ratio to the same without packages is the median of the pairs"])


def _write(folder: Path, change: int) -> None:
    """A clone: what it needs, and a script that uses some of it where it is there."""
    (folder / "requirements.txt").write_text("\n".join(NEEDS.split()) + "\n")
    (folder / "train.py").write_text(f"# change {change}\n{first_step.SCRIPT}")


def _push(rack: racks.Rack) -> None:
    command = [str(first_step.FAB), "push", "--hosts", ",".join(rack.hosts), "--image", first_step.BASE]
    subprocess.run(command, cwd=HOME, check=True, capture_output=True)


def _by_hand(rack: racks.Rack, folder: Path) -> list[float]:
    """Seconds until the first host alone has the image: three at once would need 20 GB of this machine's disk.

    What images/packages.sh does is the build; the code goes into one more layer, as a Dockerfile's COPY puts it.
    """
    (folder / "Dockerfile").write_text(f"FROM {IMAGE}-base\nCOPY . /workspace\nWORKDIR /workspace\n")
    seconds = []
    for name in rack.hosts:
        rack.on(name, "docker volume ls -q | xargs -r docker volume rm", timeout=300)
    try:
        for repetition in range(2):
            _write(folder, 100 + repetition)
            began = time.monotonic()
            script, needs = HOME / "images/packages.sh", folder / "requirements.txt"
            build = [str(script), str(needs), f"{IMAGE}-base", first_step.BASE]
            subprocess.run(build, cwd=HOME, check=True, capture_output=True)
            subprocess.run(["docker", "build", "--quiet", "--tag", IMAGE, str(folder)], check=True, capture_output=True)
            save_load(IMAGE, [rack.line(rack.hosts[0])])
            seconds.append(time.monotonic() - began)
            say(f"by hand {seconds[-1]:.0f} s")
    finally:
        (folder / "Dockerfile").unlink()
        names = [IMAGE, f"{IMAGE}-base"]
        subprocess.run(["docker", "image", "rm", "--force", *names], capture_output=True, check=False)
    return seconds


def _count(rack: racks.Rack) -> None:
    for container in map(rack.container, rack.hosts):
        rule = ["docker", "exec", container, "iptables", "-I", "INPUT", "-p", "tcp", "--dport", "22"]
        subprocess.run(rule, check=True, capture_output=True)


def _counted(rack: racks.Rack) -> float:
    """Megabytes that came in at the SSH ports of all hosts, headers included."""
    total = 0
    for container in map(rack.container, rack.hosts):
        shown = subprocess.run(
            ["docker", "exec", container, *_COUNT], check=True, capture_output=True, text=True
        ).stdout
        total += next(int(line.split()[1]) for line in shown.splitlines() if "dpt:22" in line)
    return total / 1e6


if __name__ == "__main__":
    alone(measure, __doc__)
