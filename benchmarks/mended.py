"""Hangs of an unchanged DDP script that a restart mends, and long pauses that are none: `fab up --restarts 1`.

    python -m benchmarks.mended [--quick]        ONLY="a rank asleep": this case

The hangs are those of `benchmarks.hangs` in which a rank is missing, planted in the first attempt alone. One counts as
mended when the run ends well, in its second attempt. A pause of a minute counts when the run ends well in its first.
The rival is torchrun alone with the same script and one restart, three ranks on one node: does it end within LIMIT_S?
"""

# ruff: noqa: E501 (a script of several lines stands on one)
from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import hangs
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.hangs import Case

LIMIT_S = 180.0
AT_ONCE, STEPS, RIVALS = 2, 80, 4
_ONCE = 'if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":\n    return\n'
# In these all ranks wait for each other: nobody is missing.
_MISMATCHES = ("out of the loop early", "another collective", "a receive that nobody sends", "a broadcast of one rank")
HANGS = [case for case in hangs.HANGS if case.name not in _MISMATCHES]
PAUSES = (
    Case("rank 0 computes alone for a minute", "end = time.time() + 60\nwhile time.time() < end: torch.randn(200, 200) @ torch.randn(200, 200)", ranks=(0,)),
    Case("a rank looks every 5 s for a file, for a minute", "for n in range(12): time.sleep(5); os.path.exists('ready')"),
    Case("a checkpoint written for a minute", "f = open('big', 'wb')\nfor n in range(600): f.write(b'x' * 100_000); f.flush(); time.sleep(0.1)", ranks=(0,)),
    Case("a child computes for a minute", "subprocess.run([sys.executable, '-c', 'import time\\nend = time.time() + 60\\nwhile time.time() < end: pass'])", ranks=(0,)),
    Case("a socket that sends slowly for a minute", "a, b = socket.socketpair()\nt = threading.Thread(target=lambda: [(b.send(b'x' * 1000), time.sleep(2)) for n in range(30)])\nt.start()\nfor n in range(30): a.recv(1000)"),
    Case("threads compute for a minute", "end = time.time() + 60\ndef work():\n    while time.time() < end: torch.randn(100, 100) @ torch.randn(100, 100)\nt = threading.Thread(target=work)\nt.start()\nt.join()"),
    Case("another rank computes while this one sleeps", "time.sleep(60) if rank == 1 else None\nend = time.time() + 60\nwhile rank == 2 and time.time() < end: torch.randn(100, 100) @ torch.randn(100, 100)", ranks=(1, 2)),
    Case("an evaluation of all by all_reduce", "for n in range(600): dist.all_reduce(torch.zeros(1000)); time.sleep(0.1)", ranks=(0, 1, 2)),
    Case("steps of 15 s", "pass", more="time.sleep(15)", at=1),
)  # fmt: skip


def measure(quick: bool) -> dict[str, Any]:
    """Both lists; `quick`: every fifth of them."""
    only = os.environ.get("ONLY", "")
    planted, pauses = ([case for case in cases if only in case.name][:: 5 if quick else 1] for cases in (HANGS, PAUSES))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        after = list(pool.map(mended, planted))
        ended = list(pool.map(ended_in_first, pauses))
        theirs = list(pool.map(rival, planted[:: max(1, len(planted) // RIVALS)][:RIVALS]))
    well = [seconds for seconds in after if seconds]
    rows = [
        Row(
            "hangs mended: all ranks train again",
            f"{len(well)} of {len(after)}",
            f"torchrun {sum(theirs)} of {len(theirs)} within {LIMIT_S:.0f} s",
            target="all",
            met=len(well) == len(after),
        ),
        Row("... from the hang to the next end of a step", f"{spread(well)} s" if well else ""),
        Row(
            "pauses of a minute that a restart cut off",
            f"{ended.count(False)} of {len(ended)}",
            target="0",
            met=all(ended),
        ),
    ]
    missed = [case.name for case, good in zip((*planted, *pauses), (*after, *ended), strict=True) if not good]
    return result(rows, ["3 processes, gloo", *(f"missed: {name}" for name in missed)])


def mended(case: Case) -> float:
    """Seconds from the hang until the script is in its loop again; 0 where it never is, or the run ends badly."""
    stall = case.stall.replace("rank == 1", 'rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"')
    once = replace(case, plant=_ONCE + case.plant, stall=stall, steps=STEPS, more=_again())
    with hangs.Folder(once) as folder:
        code, text = _to_end(folder)
    times = [float(t) for t in re.findall(r"(?:planted|again) ([\d.]+)", text)]
    seconds = max(times, default=0.0) - min(times, default=0.0)
    good = code == 0 and "and its node ended it" in text
    say(f"{'mended' if good else 'MISSED'} {case.name}: {f'{seconds:.0f} s' if good else f'code {code}'}")
    return seconds if good else 0.0


def ended_in_first(case: Case) -> bool:
    """Whether a run with a long pause ends well without a restart."""
    steps = 4 if "15 s" in case.name else STEPS
    with hangs.Folder(replace(case, steps=steps)) as folder:
        code, text = _to_end(folder)
    good = code == 0 and "and its node ended it" not in text
    say(f"{'whole ' if good else 'CUT   '} {case.name}: code {code}")
    return good


def rival(case: Case) -> bool:
    """Whether torchrun alone ends well within the limit, with one restart."""
    once = replace(case, plant=_ONCE + case.plant, steps=STEPS, more=_again())
    with hangs.Folder(once) as folder:
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=3",
            "--max-restarts=1",
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        run = subprocess.Popen(
            [*torchrun, "train.py"], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return run.wait(LIMIT_S) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            run.terminate()
            run.wait(60)


def _again() -> str:
    """The first step of the second attempt says when it is done."""
    return 'if step == 0 and rank == 0 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1": print("again", time.time(), flush=True)'


def _to_end(folder: Path) -> tuple[int, str]:
    fab = hangs.start(folder, ["--restarts", "1"])
    try:
        code = fab.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        code = -1
    finally:
        hangs.end_run(fab)
    return code, (folder / "said").read_text()


def main(words: Sequence[str]) -> None:
    """As the other figures."""
    alone(measure, __doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
