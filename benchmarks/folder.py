"""Send a folder of 50,000 files and 2 GB to three hosts: all of it once, then again after one file has changed.

    python -m benchmarks.folder [--quick]         # --quick: 5,000 files, 200 MB

Muster's side: from the folder to the last host's answer that it has the image and the folder, including connecting. The
hosts have the base image. Then a container on a host shows what it sees. The rival: `rsync -a --delete` to the three
hosts in parallel over the same SSH. Its result is a folder that only a process of the host can use. The files are
random bytes, which cannot be compressed. Each turn has a folder with different content, which neither side has seen
before. Nothing is removed between the turns (42 GB in all): without a journal, ext4 does not reuse an inode for minutes
after its file was removed, and programs that create files meanwhile have to search among these inodes. Half of tar's
time went there, in turns in which Muster came first.
"""

from __future__ import annotations

import random
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.push import OURS, push
from deploy.send.folder.credentials import SendChoice

FILES, BYTES = 50_000, 2_000_000_000
MOST_RATIO = 1.2


@dataclass(frozen=True)
class Took:
    """The cost of one transfer: seconds, and CPU seconds on this machine and on the three hosts."""

    wall: float
    here: float
    there: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s (processors: {self.here:.1f} s here, {self.there:.1f} s on the hosts)"


_RSYNC = "sudo apt-get -qq update && sudo apt-get -qq install -y rsync >/dev/null 2>&1; command -v rsync"


def measure(quick: bool) -> dict[str, Any]:
    """Seconds; the rival takes turns with Muster, and each goes first in every other turn."""
    files, size, turns, again = (FILES // 10, BYTES // 10, 3, 3) if quick else (FILES, BYTES, 3, 5)
    if not shutil.which("rsync"):
        return result([Row("a folder to 3 hosts", "not measured: no rsync here: apt-get install rsync")])
    with nodes.scratch() as scratch, racks.rack(3, "classic") as rack:
        for name in rack.hosts:
            rack.on(name, _RSYNC, timeout=300)
        _write(scratch / "small", 1, 1000, 0)
        _push(rack, scratch / "small", scratch / "cache" / "layers")
        first = []
        for turn in range(turns):
            folder, layers = scratch / f"folder-{turn}", scratch / f"cache-{turn}" / "layers"
            _write(folder, files, size, turn)
            first.append(_pair(rack, folder, layers, turn))
            say(f"all of it {turn + 1}/{turns}: {first[-1][0]}; rsync {first[-1][1]}")
        changed = []
        for turn in range(again):
            (folder / "train.py").write_text(f"print({turn})\n")
            changed.append(_pair(rack, folder, layers, turn))
            say(f"one file {turn + 1}/{again}: {changed[-1][0]}; rsync {changed[-1][1]}")
        # A container must see the current folder.
        (at,) = rack.on("rack-1", "ls -td $HOME/.muster/folders/*/* | head -1").splitlines()
        seen = rack.on("rack-1", f"docker run --rm -v {at}:/workspace:ro --entrypoint cat {OURS} /workspace/train.py")
        assert seen == (folder / "train.py").read_text().strip(), seen
    what = f"a folder of {files:,} files and {size / 1e9:.1f} GB to 3 hosts"
    return result(
        [_row(f"{what}: all of it", first), _row(f"{what}: one file has changed", changed)],
        [
            "the ratio is the median of the turns' own; ours also searches each file for credentials, and hashes it",
            f"processors for all of it: {_processors(first, 0)}; rsync {_processors(first, 1)}",
            "three hosts share this machine's cores and disk",
        ],
    )


def _pair(rack: racks.Rack, folder: Path, layers: Path, turn: int) -> tuple[Took, Took]:
    """The costs of Muster and of the rival."""
    both = (lambda: _push(rack, folder, layers)), (lambda: _rsync(rack, folder))
    order = (0, 1) if turn % 2 else (1, 0)
    took = {place: _timed(rack, both[place]) for place in order}
    return took[0], took[1]


def _timed(rack: racks.Rack, send: Callable[[], None]) -> Took:
    subprocess.run(["sync"], check=True)
    here, there, began = _here(), _there(rack), time.monotonic()
    send()
    return Took(time.monotonic() - began, _here() - here, _there(rack) - there)


def _here() -> float:
    """CPU seconds of this process and of the ended child processes for which it has waited."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def _there(rack: racks.Rack) -> float:
    """CPU seconds of the hosts."""
    return sum(map(racks.used, racks.counters(rack)))


def _processors(pairs: Sequence[tuple[Took, Took]], place: int) -> str:
    here, there = ([getattr(pair[place], name) for pair in pairs] for name in ("here", "there"))
    return f"{spread(here, '.1f')} s here, {spread(there, '.1f')} s on the hosts"


def _row(what: str, pairs: Sequence[tuple[Took, Took]]) -> Row:
    ratios = [ours.wall / rival.wall for ours, rival in pairs]
    ratio = statistics.median(ratios)
    return Row(
        what,
        f"{spread([ours.wall for ours, _ in pairs])} s",
        f"rsync {spread([rival.wall for _, rival in pairs])} s",
        f"{spread(ratios)}x the time",
        f"<= {MOST_RATIO}x",
        ratio <= MOST_RATIO,
    )


def _write(folder: Path, files: int, size: int, seed: int) -> None:
    source = random.Random(seed)
    for number in range(files):
        path = folder / "data" / f"{number // 500:03d}" / f"{number:05d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.randbytes(size // files))
    (folder / "train.py").write_text("print('training')\n")


def _push(rack: racks.Rack, folder: Path, layers: Path) -> None:
    push(rack, folder, layers, SendChoice(most=4 * BYTES))


def _rsync(rack: racks.Rack, folder: Path) -> None:
    running = []
    for name in rack.hosts:
        *shell, host = rack.line(name)
        command = ["rsync", "-a", "--delete", "--rsh", " ".join(shell), f"{folder}/", f"{host}:{folder.name}/"]
        running.append(subprocess.Popen(command))
    codes = [process.wait() for process in running]
    assert not any(codes), codes


if __name__ == "__main__":
    alone(measure, __doc__)
