"""A rank is killed, or stopped for good: how long until all train again, and until somebody says that it hangs?

    python -m benchmarks.rivals_on_faults [--times 3] [--only torchft]

The same DDP loop with 10 MB of weights (rivals/lossy_loop.py), three processes of this machine, gloo: below `muster up
--restarts`, torchrun, torchft, and both ways of nvidia-resiliency-ext: its launcher, and its wrapper in the process.
The rivals are in an environment of their own, .venv-rivals (requirements/rivals.txt), with their defaults and the
values of their own examples.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figure import spread
from benchmarks.venv import HOME
from lab.ports import free_port
from lab.waiting import holds_within

RIVALS = HOME / ".venv-rivals" / "bin"
LOOP = str(HOME / "benchmarks" / "rivals" / "lossy_loop.py")
START_S, KILLED_S, HANG_S, STEPS = 60.0, 60.0, 100.0, 30
INFINITY = float("inf")
_HEAD = "| below | a rank is killed: all train again | the others train again | a rank is stopped |\n|---|---|---|---|"
# Words with which somebody says that a rank hangs, or that one is gone for it.
_HANG_WORDS = re.compile(
    r"stands still|is stopped by|not getting any heartbeat|[Dd]id not get .*heartbeat|[Hh]eartbeat timeout|timed? ?out|"
    r"[Tt]imeout|Connection closed|unresponsive|SoftTimeout|HardTimeout"
)


@dataclass
class Run:
    """A run of three ranks: its processes, the file of what they say, and the folder of the steps."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, line: Sequence[str | Path], **variables: str) -> None:
        """One of its processes; what it says goes to `output`."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HOME), "NO_COLOR": "1", **variables}
        with (self.folder / "output").open("ab") as out:
            own = {"cwd": self.folder, "env": environment, "stdout": out, "stderr": out, "start_new_session": True}
            self.processes.append(subprocess.Popen([*map(str, line)], stdin=subprocess.DEVNULL, **own))  # type: ignore[call-overload]

    def steps(self, rank: int) -> list[tuple[float, int]]:
        """When this rank did steps, and as which process."""
        path = self.folder / f"steps-{rank}"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(line.split()[0]), int(line.split()[1])) for line in lines if len(line.split()) == 2]

    def said(self) -> str:
        """All that it has said."""
        return (self.folder / "output").read_text(errors="replace")

    def end(self) -> None:
        """End all of its processes."""
        marks = (str(self.folder).encode(), f"RUN_FOLDER={self.folder}".encode())
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        time.sleep(1.0)
        # A launcher may start ranks again while we look.
        for path in (each for _ in range(3) for each in Path("/proc").glob("[0-9]*")):
            with suppress(OSError):
                if any(mark in (path / name).read_bytes() for mark in marks for name in ("cmdline", "environ")):
                    os.kill(int(path.name), signal.SIGKILL)
        for process in self.processes:
            process.wait()


def muster(run: Run) -> None:
    """Below Muster."""
    shutil.copy(LOOP, run.folder / "train.py")
    fab = [HOME / ".venv" / "bin" / "fab", "--search-root", HOME, "up", "--backend", "processes", "--workers", "2"]
    run.start([*fab, "--folder", run.folder, "--restarts", "9", "--script", f"train.py plain {run.folder}"])


def torchrun(run: Run, *, program: str = "torchrun", how: str = "plain", more: Sequence[str] = ()) -> None:
    """Below torchrun, or nvidia-resiliency-ext's launcher, which takes the same options."""
    meets = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts", "9"]
    run.start([RIVALS / program, "--nproc-per-node", "3", *meets, *more, LOOP, how, run.folder])


def launcher(run: Run) -> None:
    """nvidia-resiliency-ext's launcher; the loop sends it a heartbeat each step."""
    config = run.folder / "fault_tolerance.yml"
    # Its own example has 60 s for both (examples/fault_tolerance/fault_tol_cfg_heartbeats.yaml).
    config.write_text("fault_tolerance:\n  initial_rank_heartbeat_timeout: 60\n  rank_heartbeat_timeout: 60\n")
    torchrun(run, program="ft_launcher", how="heartbeats", more=["--fault-tol-cfg-path", str(config)])


def in_process(run: Run) -> None:
    """nvidia-resiliency-ext's wrapper. Its guide starts the ranks so that nobody ends the others when one is gone."""
    port = str(free_port())
    for rank in range(3):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
        run.start([RIVALS / "python", LOOP, "in-process", run.folder], **place, MASTER_PORT=port)


def torchft(run: Run) -> None:
    """torchft: a lighthouse, and a torchrun for each replica group, which has one rank."""
    port = free_port()
    options = ["--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000"]
    run.start([RIVALS / "torchft_lighthouse", "--bind", f"127.0.0.1:{port}", *options])
    for group in range(3):
        meets = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts", "9"]
        variables = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}", "GROUP": str(group)}
        run.start([RIVALS / "torchrun", "--nproc-per-node", "1", *meets, LOOP, "torchft", run.folder], **variables)


KINDS: dict[str, Callable[[Run], None]] = {
    "muster up --restarts": muster,
    "torchrun": torchrun,
    "torchft": torchft,
    "nvidia-resiliency-ext, launcher": launcher,
    "nvidia-resiliency-ext, in the process": in_process,
}


def main() -> None:
    """Print a row for each kind and drill."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--times", type=int, default=3)
    asked.add_argument("--only", default="")
    options = asked.parse_args()
    _install()
    print(f"load {os.getloadavg()[0]:.0f} at the start\n\n{_HEAD}")
    kinds = {name: start for name, start in KINDS.items() if options.only in name}
    # By turns: the load of a busy machine is then that of all of them.
    tries = [{name: _drill(start, signal.SIGKILL) for name, start in kinds.items()} for _ in range(options.times)]
    for name, start in kinds.items():
        killed = [said for each in tries if isinstance(said := each[name], tuple)]
        if not killed:
            print(f"| {name} | did not start: {tries[0][name]} | | |", flush=True)
            continue
        hang = _drill(start, signal.SIGSTOP)
        everybody, others = (_in_words([each[at] for each in killed]) for at in (0, 1))
        words = hang if isinstance(hang, str) else hang[2]
        print(f"| {name} | {everybody} | {others} | {words.replace('|', '/')} |", flush=True)
    print(f"\nload {os.getloadavg()[0]:.0f} at the end")


def _install() -> None:
    """The rivals' environment, made once."""
    if (RIVALS / "torchft_lighthouse").exists():
        return
    needs, python = HOME / "requirements", RIVALS / "python"
    subprocess.run(["python3", "-m", "venv", RIVALS.parent], check=True)
    subprocess.run([needs / "torch.sh", python], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", needs / "rivals.txt"], check=True)


def _drill(start: Callable[[Run], None], number: signal.Signals) -> tuple[float, float, str] | str:
    """Seconds until all, and until the others, train again, and what was said of a hang; words if none trained."""
    with tempfile.TemporaryDirectory(prefix="muster-rivals-", ignore_cleanup_errors=True) as name:
        run = Run(Path(name))
        os.environ["RUN_FOLDER"] = name
        try:
            start(run)
            if not holds_within(lambda: all(len(run.steps(rank)) >= STEPS for rank in range(3)), START_S):
                return run.said().strip().replace("\n", " / ")[-400:]
            pid, before, since = run.steps(1)[-1][1], len(run.said()), time.time()
            os.kill(pid, number)
            return _followed(run, before, since, pid, KILLED_S if number == signal.SIGKILL else HANG_S)
        finally:
            run.end()


def _followed(run: Run, before: int, since: float, pid: int, limit_s: float) -> tuple[float, float, str]:
    words = ""

    def over() -> bool:
        nonlocal words
        said = [line for line in run.said()[before:].splitlines() if "[INFO]" not in line and _HANG_WORDS.search(line)]
        if said and not words:
            words = f"{time.time() - since:.1f} s: `{said[0].strip()[:160]}`"
        return all(_again(run, rank, since, pid) < INFINITY for rank in range(3))

    holds_within(over, limit_s)
    again = [_again(run, rank, since, pid) for rank in range(3)]
    others = max(again[0], again[2])
    ended = [f"{who} train again {f'after {t:.1f} s' if t < INFINITY else f'not within {limit_s:.0f} s'}"
             for who, t in (("the others", others), ("all", max(again)))]  # fmt: skip
    return max(again), others, f"{words or 'nothing said'}; {', '.join(ended)}"


def _again(run: Run, rank: int, since: float, pid: int) -> float:
    """Seconds until this rank did a step again; the one that was killed as another process."""
    # A step that was under way is done at once.
    after = [t for t, own in run.steps(rank) if t > since + 0.15 and own != pid]
    return after[0] - since if after else INFINITY


def _in_words(seconds: Sequence[float]) -> str:
    lived = [each for each in seconds if each < INFINITY]
    return f"{len(lived)} of {len(seconds)}" + (f", {spread(lived)} s" if lived else "")


if __name__ == "__main__":
    main()
