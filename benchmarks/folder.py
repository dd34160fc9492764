"""A folder of 50,000 files and 2 GB to three hosts: all of it once, then again after one file has changed.

    python -m benchmarks.folder [--quick]         # --quick: 5,000 files, 200 MB

Ours: from the folder to the last host's answer that it has the image and the folder, connecting included. The hosts
have the base image. Then a container on a host shows what it sees. The rival: `rsync -a --delete` to the three at once
over the same SSH. Its result is a folder that only a process of the host can use. The files are random bytes, which
nothing makes smaller.
"""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from deploy.image import push as transfer
from deploy.image.credentials import Choice
from deploy.image.layer_cache import LayerCache
from deploy.ssh import session

BASE, OURS, THERE = "muster-trainer:cpu", "muster-bench:folder", "folder"
FILES, BYTES = 50_000, 2_000_000_000
MOST_RATIO = 1.2


def measure(quick: bool) -> dict[str, Any]:
    """Seconds; the rival takes turns with ours."""
    files, size, repetitions = (FILES // 10, BYTES // 10, 3) if quick else (FILES, BYTES, 5)
    if not shutil.which("rsync"):
        return result([Row("a folder to 3 hosts", "not measured: no rsync here: apt-get install rsync")])
    with nodes.scratch() as scratch, racks.rack(3, "classic") as rack:
        for name in rack.names:
            rack.on(
                name, "sudo apt-get -qq update && sudo apt-get -qq install -y rsync >/dev/null 2>&1; command -v rsync"
            )
        small, folder, layers = scratch / "small", scratch / "folder", scratch / "cache" / "layers"
        _write(small, 1, 1000)
        _write(folder, files, size)
        _push(rack, small, layers)
        first_rival = _rsync(rack, folder)
        subprocess.run(["sync"], check=True)
        first = _push(rack, folder, layers)
        say(f"all of it: {first:.1f} s, rsync {first_rival:.1f} s")
        again, again_rival = [], []
        for number in range(repetitions):
            for seconds, send in ((again_rival, _rsync), (again, lambda rack, folder: _push(rack, folder, layers))):
                (folder / "train.py").write_text(f"print({number}, {len(seconds)})\n")
                seconds.append(send(rack, folder))
            say(f"one file {number + 1}/{repetitions}: {again[-1]:.2f} s, rsync {again_rival[-1]:.2f} s")
        # What a container sees is the folder as it is now.
        (at,) = rack.on("rack-1", "ls -d $HOME/.muster/folders/*/*").splitlines()
        seen = rack.on("rack-1", f"docker run --rm -v {at}:/workspace:ro --entrypoint cat {OURS} /workspace/train.py")
        assert seen == (folder / "train.py").read_text().strip(), seen
    what = f"a folder of {files:,} files and {size / 1e9:.1f} GB to 3 hosts"
    return result(
        [
            _row(f"{what}: all of it", [first], [first_rival]),
            _row(f"{what}: one file has changed", again, again_rival),
        ],
        ["three hosts share this machine's cores and disk; ours also searches each file for credentials"],
    )


def _row(what: str, ours: list[float], rival: list[float]) -> Row:
    ratio = statistics.median(ours) / statistics.median(rival)
    return Row(
        what,
        f"{spread(ours)} s",
        f"rsync {spread(rival)} s",
        f"{ratio:.2f}x the time",
        f"<= {MOST_RATIO}x",
        ratio <= MOST_RATIO,
    )


def _write(folder: Path, files: int, size: int) -> None:
    source = random.Random(1)
    for number in range(files):
        path = folder / "data" / f"{number // 500:03d}" / f"{number:05d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.randbytes(size // files))
    (folder / "train.py").write_text("print('training')\n")


def _push(rack: racks.Rack, folder: Path, layers: Path) -> float:
    began = time.monotonic()
    with session.open_all(rack.hosts) as opened:
        transfer.push(
            opened.all().values(),
            BASE,
            folder,
            OURS,
            lambda host, sent, total: None,
            LayerCache(layers),
            choice=Choice(most=4 * BYTES),
        ).all()
    return time.monotonic() - began


def _rsync(rack: racks.Rack, folder: Path) -> float:
    began = time.monotonic()
    running = []
    for name in rack.names:
        *shell, host = rack.ssh(name)
        command = ["rsync", "-a", "--delete", "--rsh", " ".join(shell), f"{folder}/", f"{host}:{THERE}/"]
        running.append(subprocess.Popen(command))
    codes = [process.wait() for process in running]
    assert not any(codes), codes
    return time.monotonic() - began


if __name__ == "__main__":
    alone(measure, __doc__)
