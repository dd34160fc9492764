"""From a clone with a requirements.txt of 30 packages to the first step on three rented boxes, which have no engine.

    python -m benchmarks.packages_bare [--quick]

Muster's side is `muster deploy`: with preflight, a rehearsal, pinned hashes and a digest of all installed files. The
rival is a script with `ssh`, `uv` and `torchrun`, which already knows address and port, and checks nothing. First with
nothing on the boxes, then with changed code, taking turns. This machine has uv, for both. The boxes reach only a
package index on this machine, which pip has filled with wheels before, and which answers immediately, as a real one
does.
"""

from __future__ import annotations

import compileall
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import first_step, nodes
from benchmarks.breaks.boxes import Boxes, boxes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import HOME
from deploy.send.packages import uv

NODES, TORCH, MOST_RATIO, MOST_AGAIN_S = 3, "2.13.0", 1.0, 5.0
NEEDS = (
    "numpy pandas pyarrow scipy scikit-learn matplotlib transformers tokenizers datasets accelerate "
    "safetensors huggingface-hub sentencepiece hydra-core omegaconf wandb tensorboard tqdm pyyaml rich "
    "einops regex requests tiktoken evaluate peft torchmetrics fire jsonlines absl-py "
)


@contextmanager
def started(wheels: Path) -> Iterator[Boxes]:
    """Start boxes that are removed at the end; their package index has these wheels."""
    links = f"{os.environ.get('PIP_FIND_LINKS', '')} {wheels}"
    environment = {**os.environ, "PIP_FIND_LINKS": links.strip()}
    line, pipe = [first_step.FAB.with_name("python"), "-m", "tests.cluster.boxes", str(NODES)], subprocess.PIPE
    with subprocess.Popen(line, cwd=HOME, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        yield boxes(process.stdout.readline())
        process.communicate("\n")


def measure(quick: bool) -> dict[str, Any]:
    """Seconds until the last rank's first step."""
    # Compiled as after an installation with pip: a new checkout, or PYTHONDONTWRITEBYTECODE, would compile it at each
    # start.
    compileall.compile_dir(HOME / "deploy", quiet=1)
    with nodes.scratch() as scratch:
        folder, wheels = scratch / f"clone-{uuid.uuid4().hex[:6]}", scratch / "wheels"
        folder.mkdir()
        _write(folder, 0)
        fill = ["-m", "pip", "wheel", "--quiet", "--wheel-dir", wheels, "-r", folder / "requirements.txt"]
        subprocess.run([sys.executable, *fill, f"torch=={TORCH}"], check=True)
        with started(wheels) as up:
            return _measured(up, scratch, folder, quick)


def _measured(up: Boxes, scratch: Path, folder: Path, quick: bool) -> dict[str, Any]:
    own = {
        "MUSTER_SSH_CONFIG": str(up.ssh_config),
        "UV_DEFAULT_INDEX": up.index,
        "XDG_CACHE_HOME": str(scratch / "cache"),
    }
    kept = scratch / "cache" / "muster" / "packages"
    kept.mkdir(parents=True)
    shutil.copy(uv.program(kept), scratch / "uv")
    # The index computes a file's digest when it is first requested, and looks elsewhere for files that it does not
    # have.
    needs, environment = folder / "requirements.txt", {**os.environ, **own, "UV_CACHE_DIR": str(scratch / "warm")}
    words = ["pip", "compile", "--quiet", "--no-config", "--python", sys.executable, needs]
    subprocess.run([scratch / "uv", *words], env=environment, check=True, capture_output=True)
    ours, theirs = [], []
    for change in range(1, 4 if quick else 7):
        _write(folder, change)
        os.sync()  # so that neither side has to write data that the other side has left unwritten
        ours.append(first_step.deploy(up.hosts, folder, **own))
        os.sync()
        theirs.append(_by_hand(up, folder))
        say(f"{change}: muster deploy {ours[-1]:.1f} s, by hand {theirs[-1]:.1f} s")
    first, again = ours[0] / theirs[0], statistics.median(ours[1:])
    rows = [
        Row(
            f"30 packages and torch to the first step on {NODES} rented boxes, first time",
            f"{ours[0]:.1f} s",
            f"ssh, uv, torchrun {theirs[0]:.1f} s",
            f"{first:.2f}x",
            f"<= {MOST_RATIO:g}x",
            first <= MOST_RATIO,
        ),
        Row(
            "... second time, with changed code",
            f"{spread(ours[1:], '.1f')} s",
            f"{spread(theirs[1:], '.1f')} s",
            f"{again / statistics.median(theirs[1:]):.2f}x",
            f"<= {MOST_AGAIN_S:g} s",
            again <= MOST_AGAIN_S,
        ),
    ]
    return result(rows, [f"{len(ours) - 1} repetitions of the second time; all boxes share this machine's cores"])


def _write(folder: Path, change: int) -> None:
    """Write a clone: its requirements, and a script."""
    (folder / "requirements.txt").write_text("\n".join(NEEDS.split()) + "\n")
    (folder / "train.py").write_text(f"# change {change}\n{first_step.SCRIPT}")


def _by_hand(up: Boxes, folder: Path) -> float:
    """What a user types for each box: copy clone and uv, install missing packages with uv, start torchrun on all."""
    address = up.on(up.hosts[0], "hostname -i").split()[0]
    began = time.time()
    running = []
    for rank, host in enumerate(up.hosts):
        ssh = shlex.join(up.line(host))
        script = (
            "mkdir -p by-hand && cd by-hand && tar -x && [ -d .venv ] || ./uv venv -q && "
            f"UV_DEFAULT_INDEX={up.index} ./uv pip install -q torch=={TORCH} -r {folder.name}/requirements.txt && "
            f"cd {folder.name} && GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 ../.venv/bin/torchrun --nnodes {NODES} "
            f"--node-rank {rank} --master-addr {address} --master-port {first_step.PORT} train.py"
        )
        line = f"tar -c -C {folder.parent} uv {folder.name} | {ssh} {shlex.quote(script)}"
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(["sh", "-c", line], stdout=pipe, stderr=pipe, text=True))
    outputs = [process.communicate(timeout=1200) for process in running]
    assert not any(process.returncode for process in running), outputs
    return first_step.last("".join(out for out, _ in outputs)) - began


if __name__ == "__main__":
    alone(measure, __doc__)
