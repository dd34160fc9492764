"""Hangs planted in an unchanged DDP script, and slow but sound runs of it: is the right rank named, with its line?

    python -m benchmarks.hangs [--quick]        ONLY="a rank asleep": this case; ONLY=sound

Each script runs by `fab up --script` on 3 processes of this machine. A hang counts as named when the first verdict says
the planted rank and the line on which it stands, within 30 s of the hang. A sound run counts when it ends well and
nothing was said. The rival is torchrun alone with the same script: what it says within the same time.
"""

# ruff: noqa: E501 (a script of several lines stands on one)
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import HOME

WITHIN_S = 30.0
AT_ONCE = 2
_VERDICT = re.compile(r"no rank has made a step(?: since step \d+)?: (.*)|(\brank \d+ \(\S+\) is stopped by .*)")
_ALARM = re.compile(
    r"(?:no rank has made a step|\brank \d+ .*(?:stands still|is stopped|computes without)|is lost|cut off).*"
)
_FAB = [str(HOME / ".venv" / "bin" / "fab"), "--search-root", str(HOME)]
SCRIPT = """
import fcntl, json, os, queue, signal, socket, subprocess, sys, threading, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __init__(self, stall=None):
        self.stall = stall
    def __len__(self):
        return 10_000
    def __getitem__(self, place):
        if self.stall is not None and place == self.stall:
            time.sleep(1000)
        return torch.full((4,), float(place % 7))

def plant():
{plant}

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loader = iter(DataLoader(Numbers({stall}), batch_size=4, num_workers={workers}))
for step in range({steps}):
    batch = next(loader)
    loss = model(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == {at} and rank in {ranks}:
        print("planted", time.time(), flush=True)
        plant()
    {more}
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Case:
    """What one script does at step `at` on `ranks`. `line`: words of the line that must be named; "": none is."""

    name: str
    plant: str
    line: str = ""
    ranks: tuple[int, ...] = (1,)
    stall: str = "None"
    workers: int = 0
    steps: int = 2000
    at: int = 40
    more: str = "pass"


HANGS = (
    Case("a rank asleep", "time.sleep(1000)", "time.sleep(1000)"),
    Case("rank 0 asleep", "time.sleep(1000)", "time.sleep(1000)", ranks=(0,)),
    Case("a pipe that nobody writes", "r, w = os.pipe()\nos.read(r, 1)", "os.read(r, 1)"),
    Case("a socket that never answers", "a, b = socket.socketpair()\na.recv(1)", "a.recv(1)"),
    Case("a FIFO without a writer", "os.mkfifo('fifo')\nopen('fifo').read()", "open('fifo')"),
    Case("a lock taken twice", "lock = threading.Lock()\nlock.acquire()\nlock.acquire()", "lock.acquire()"),
    Case("an event that is never set", "threading.Event().wait()", "threading.Event().wait()"),
    Case("a queue that stays empty", "queue.Queue().get()", "queue.Queue().get()"),
    Case(
        "a thread that never ends",
        "t = threading.Thread(target=time.sleep, args=(1000,))\nt.start()\nt.join()",
        "t.join()",
    ),
    Case("a child that never ends", "subprocess.run(['sleep', '1000'])", "subprocess.run"),
    Case(
        "a file lock held",
        "f = open('l', 'w'); fcntl.flock(f, fcntl.LOCK_EX)\ng = open('l', 'w')\nfcntl.flock(g, fcntl.LOCK_EX)",
        "fcntl.flock(g",
    ),
    Case("stopped by SIGSTOP", "os.kill(os.getpid(), signal.SIGSTOP)"),
    Case("out of the loop early", "dist.barrier()", "dist.barrier()"),
    Case("another collective", "dist.all_reduce(torch.zeros(3))", "dist.all_reduce"),
    Case("a receive that nobody sends", "dist.recv(torch.zeros(1), src=0)", "dist.recv"),
    Case("a broadcast of one rank", "dist.broadcast(torch.zeros(5), src=1)", "dist.broadcast"),
    Case("input that nobody types", "os.read(os.openpty()[0], 1)", "os.read"),
    Case("two ranks asleep", "time.sleep(1000)", "time.sleep(1000)", ranks=(1, 2)),
    Case("a dead loader", "pass", "next(loader)", ranks=(0, 1, 2), stall="180 if rank == 1 else None", workers=1),
    Case("a signal that never comes", "signal.sigwait([signal.SIGUSR1])", "signal.sigwait"),
)
# fmt: off
SOUND = (
    Case(
        "rank 0 computes alone for 15 s",
        "end = time.time() + 15\nwhile time.time() < end: torch.randn(200, 200) @ torch.randn(200, 200)",
        ranks=(0,),
    ),
    Case(
        "a checkpoint written for 12 s",
        "f = open('big', 'wb')\nfor n in range(120): f.write(b'x' * 1_000_000); f.flush(); time.sleep(0.1)",
        ranks=(0,),
    ),
    Case(
        "a dataset read for 12 s",
        "f = open('big', 'wb'); f.write(b'x' * 9_000_000); f.close()\nfor n in range(120): open('big', 'rb').read(1_000_000); time.sleep(0.1)",
        ranks=(1,),
    ),
    Case(
        "an evaluation of 15 s on all",
        "end = time.time() + 15\nwhile time.time() < end: model.module(torch.randn(64, 4))",
        ranks=(0, 1, 2),
    ),
    Case("steps of 3 s", "pass", more="time.sleep(3)", steps=12, at=1),
    Case("a pause of 6 s every 20 steps", "pass", more="time.sleep(6 if step % 20 == 19 else 0)", steps=60, at=1),
    Case(
        "an evaluation by a child",
        "subprocess.run([sys.executable, '-c', 'import time\\nend = time.time() + 12\\nwhile time.time() < end: pass'])",
        ranks=(0,),
    ),
    Case("steps that grow slower", "pass", more="time.sleep(0.02 * step)", steps=60, at=1),
    Case("a slow import at its beginning", "pass", more="time.sleep(8 if step == 0 else 0)", steps=40, at=1),
    Case("one straggler", "pass", more="time.sleep(0.5 if rank == 2 else 0)", steps=40, at=1),
    Case("a rank compresses for 12 s", "import zlib\nfor n in range(240): zlib.compress(os.urandom(1_000_000)); time.sleep(0.02)", ranks=(2,)),
    Case("a rank hashes a file", "import hashlib\nfor n in range(100): hashlib.sha256(os.urandom(4_000_000)); time.sleep(0.05)"),
    Case("threads that compute", "t = threading.Thread(target=lambda: [torch.randn(300, 300) @ torch.randn(300, 300) for n in range(4000)])\nt.start()\nt.join()"),
    Case("a socket that sends slowly", "a, b = socket.socketpair()\nt = threading.Thread(target=lambda: [(b.send(b'x' * 60_000), time.sleep(0.5)) for n in range(24)])\nt.start()\nfor n in range(24): a.recv(60_000)"),
    Case("loading weights again and again", "torch.save(torch.zeros(2_000_000), 'w')\nfor n in range(60): torch.load('w'); time.sleep(0.2)", ranks=(0,)),
    Case("two pauses of 4 s", "time.sleep(4)\ntime.sleep(4) if rank > 5 else None"),
    Case("sorting for 12 s", "end = time.time() + 12\nwhile time.time() < end: sorted(os.urandom(100_000))"),
    Case("a log that grows", "f = open('log', 'a')\nfor n in range(120): f.write('x' * 50_000); f.flush(); time.sleep(0.1)", ranks=(0, 1)),
    Case("a validation of all by all_reduce", "for n in range(120): dist.all_reduce(torch.zeros(100_000)); time.sleep(0.1)", ranks=(0, 1, 2)),
    Case("JSON for 12 s", "end = time.time() + 12\nwhile time.time() < end: json.loads(json.dumps(list(range(20_000))))", ranks=(1,)),
)
# fmt: on


def measure(quick: bool) -> dict[str, Any]:
    """Both lists; `quick`: every fifth of them."""
    only = os.environ.get("ONLY", "")
    lists = ([], SOUND) if only == "sound" else (HANGS, SOUND)
    names = "" if only == "sound" else only
    hangs, sound = ([case for case in cases if names in case.name][:: 5 if quick else 1] for cases in lists)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        named = list(pool.map(hang, hangs))
        quiet = list(pool.map(sound_run, sound))
    rows = [
        Row(
            "hangs named: rank and line",
            f"{sum(named)} of {len(named)}",
            target=">= 18 of 20",
            met=sum(named) >= 0.9 * len(named),
        ),
        Row("slow but sound runs with an alarm", f"{quiet.count(False)} of {len(quiet)}", target="0", met=all(quiet)),
    ]
    missed = [case.name for case, good in zip((*hangs, *sound), (*named, *quiet), strict=True) if not good]
    return result(
        rows, [f"3 processes, gloo; a verdict within {WITHIN_S:.0f} s", *(f"missed: {name}" for name in missed)]
    )


def hang(case: Case) -> bool:
    """Whether the planted hang is named rightly."""
    with Folder(case) as folder:
        line, planted, words = _line_of(case, folder), 0.0, ""
        fab = start(folder)
        try:
            end = time.monotonic() + 120
            while time.monotonic() < end and not words:
                text = (folder / "said").read_text()
                match = _VERDICT.search(text)
                words = match[1] or match[2] if match else ""
                if not planted and "planted" in text:
                    planted = time.monotonic()
                    end = planted + WITHIN_S
                if fab.poll() is not None:
                    break
                time.sleep(0.2)
        finally:
            end_run(fab)
        first = words.partition(";")[0] if "different places" not in words else words
        ranks = (
            all(re.search(rf"\brank {rank}\b", words) for rank in case.ranks)
            if case.stall == "None"
            else "rank 1" in first
        )
        good = bool(words) and ranks and (not case.line or f"train.py:{line}" in words)
        took = f"{time.monotonic() - planted:.0f} s" if planted else "never planted"
        say(f"{'named ' if good else 'MISSED'} {case.name} ({took}, line {line}): {words or 'nothing was said'}")
        return good


def sound_run(case: Case) -> bool:
    """Whether nothing is said of a slow but sound run, and it ends well."""
    with Folder(case if case.steps < 1000 else Case(**{**case.__dict__, "steps": 120})) as folder:
        fab = start(folder)
        try:
            code = fab.wait(180)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            end_run(fab)
        match = _ALARM.search((folder / "said").read_text())
        say(f"{'quiet ' if not match and not code else 'ALARM '} {case.name}: {match[0] if match else f'code {code}'}")
        return not match and not code


class Folder:
    """A folder with a case's script, gone at the end."""

    def __init__(self, case: Case) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="muster-hang-"))
        plant = "\n".join(f"    {line}" for line in case.plant.split("\n"))
        (self.path / "train.py").write_text(
            SCRIPT.format(
                plant=plant,
                stall=case.stall,
                workers=case.workers,
                steps=case.steps,
                at=case.at,
                ranks=case.ranks,
                more=case.more,
            )
        )

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: Any) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _line_of(case: Case, folder: Path) -> int:
    lines = list(enumerate((folder / "train.py").read_text().splitlines(), 1))
    planted = [n for n, line in lines if case.line and case.line in line]
    end = next(n for n, line in lines if line.startswith("dist.init_process_group"))
    return max([n for n in planted if n < end] or planted, default=0)


def start(folder: Path, more: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """`fab up` of the folder's script on three processes, with `more` options; its words go to the file `said`."""
    words = ["up", "--script", "train.py", "--backend", "processes", "--workers", "2", "--run", "r", "--rank", "all"]
    with (folder / "said").open("w") as file:
        environment = {**os.environ, "PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [*_FAB, *words, *more], cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
        )


def end_run(fab: subprocess.Popen[bytes]) -> None:
    """Stop the run, at once where it does not stop."""
    fab.terminate()
    try:
        fab.wait(3)
    except subprocess.TimeoutExpired:
        fab.terminate()
        fab.wait(60)


def main(words: Sequence[str]) -> None:
    """As the other figures."""
    alone(measure, __doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
