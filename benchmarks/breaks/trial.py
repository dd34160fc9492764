"""One broken run: it starts and trains, the fault happens, and the first words about it are read and judged."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.breaks import CAUSES, Fault
from benchmarks.breaks.scripts import source
from benchmarks.venv import FAB_THERE, HOME
from lab import rack

HOSTS = ("rack-1", "rack-2", "rack-3")
WAIT_LOST_S, MENDED_S = 20, 180
_MENDED_TEXT = "and its node ended it"
_HERE = {"master": "rack-1", "worker-1": "rack-2", "worker-2": "rack-3"}
_FAULT_LINE = re.compile(
    r"\(ranks? \d+\)|\brank \d+ \(|^error:|could not tell|is lost|cut off|is paused|out of sight|is slow|"
    r"cannot be reached|(?:other|different) weights|clock of|no rank has made|"
    r"step \d+ failed|alone|does not answer|is gone|is full"
)
_HARMLESS_LINE = re.compile(
    r"^(step |muster preflight|  hosts|ready|.* runs on rack-|training |held-out|all is|step$|cause|fix)"
)
_TRAINER = "--recipe mine.py --steps 1000000 --batch 96 --checkpoint-every 20 --eval-every 0 --log-every 5"


@dataclass(frozen=True)
class Rack(rack.Rack):
    """Hosts that have the image `image`. If the rack has no name: processes on this machine."""

    image: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment for `fab`."""
        own = {"MUSTER_SSH_CONFIG": str(self.ssh_config)} if self.name else {}
        return {**os.environ, **own, "NO_COLOR": "1", "COLUMNS": "300", "PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1"}

    def command(self, fault: Fault, kind: str, run: str, folder: Path, *more: str) -> list[str]:
        """The command that starts the run, with `more` options."""
        what = ["--script", "train.py", "--folder", str(folder)]
        if kind == "trainer":
            what = ["--args", _TRAINER.replace("mine.py", "mine.py" if self.name else str(folder / "mine.py"))]
        if not self.name:
            return [*FAB_THERE, "up", *what, "--backend", "processes", "--workers", "2", "--run", run, *more]
        rows = "".join(f'[[hosts]]\nname = "{host}"\n' for host in HOSTS)
        (folder / "cluster.toml").write_text(f"[job]\n{fault.job}\n{rows}")
        where = ["--cluster", str(folder / "cluster.toml"), "--allow-folder", "--image", self.image]
        own = ["--folder", str(folder)] if kind == "trainer" else []
        return [*FAB_THERE, "deploy", *what, *where, "--run", run, "--wait-lost", f"{WAIT_LOST_S}s", *own, *more]

    def plant(self, run: str, rank: int, folder: Path) -> None:
        """Signal the rank that it is time for its fault."""
        if self.name:
            self.shell(HOSTS[rank], f"touch /home/*/.muster/runs/{run}/now-{rank} || true; "
                      f"for d in /home/*/.muster/runs/{run}; do touch $d/now-{rank}; done")  # fmt: skip
        else:
            (folder / "runs" / run / f"now-{rank}").touch()

    def up(self) -> bool:
        """Whether all hosts answer over SSH, and so do their engines if they have one."""
        with suppress(subprocess.TimeoutExpired):
            return all(map(self.is_up, self.hosts))
        return False


@dataclass(frozen=True)
class Told:
    """The judgement on the first words, and, if it was asked for, how the run ended."""

    verdict: str
    after_s: float = 0.0
    words: str = ""
    end: str = ""


class Trial:
    """One run that is broken once, or twice (`fault.then`, on another rank)."""

    def __init__(
        self,
        rack: Rack,
        fault: Fault,
        kind: str,
        culprit: int,
        mended: bool = False,
        as_json: bool = False,
    ) -> None:
        self.rack, self.fault, self.kind, self.mended = rack, fault, kind, mended
        self.as_json = as_json
        self.culprit = 0 if fault.first else culprit
        self.other = (self.culprit + 1) % 3
        self.run = f"break-{uuid.uuid4().hex[:6]}"

    def go(self) -> Told:
        """Break the run, and read what is reported about it."""
        host = HOSTS[self.culprit]
        with tempfile.TemporaryDirectory(prefix="muster-breaks-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            self._write(folder)
            if self.fault.before:
                self.fault.before(self.rack, self.run, host)
            output = folder / "output"
            with output.open("wb") as out:
                more = [*["--restarts", "1"] * self.mended, *["--json"] * self.as_json]
                line = self.rack.command(self.fault, self.kind, self.run, folder, *more)
                fab = subprocess.Popen(line, cwd=folder, env=self.rack.environment, stdout=out, stderr=out)
            try:
                if not self._trains(output, fab, folder):
                    return Told("NOT STARTED", 0.0, _last(output))
                before = len(printed(output))
                since = self._break(folder, host)
                words = self._first_words(output, fab, before, since + self.fault.limit_s)
                took = time.time() - since
                end = self._read_end(fab, output, folder, since)
            finally:
                self._end(fab, folder, host)
        return Told(self._judged(words), took, words, end)

    def _judged(self, words: str) -> str:
        first = judgement(self.fault, self.culprit, words)
        if self.fault.then and first != "right":  # both are close in time: either may be named
            return judgement(self.fault.then, self.other, words)
        return first

    def _read_end(self, fab: subprocess.Popen[bytes], output: Path, folder: Path, since: float) -> str:
        """How the run ended after the first words, if that was asked for."""
        return self._read_mend(output, folder, since) if self.mended else ""

    def _read_mend(self, output: Path, folder: Path, since: float) -> str:
        """Whether the node ended the hanging rank, and all ranks trained again; a harmless fault ends no rank."""
        cut, end = 0.0, time.time() + (0.0 if "harmless" in self.fault.cause else MENDED_S)
        while True:
            cut = cut or (time.time() if _MENDED_TEXT in output.read_text(errors="replace") else 0.0)
            files = (self._home(folder) / "runs" / self.run / "ranks").glob("rank-*.jsonl")
            if cut and all(self._last_step(file) > cut for file in files):
                return f"all train again after {time.time() - since:.0f} s"
            if time.time() > end:
                return "CUT OFF" if cut else "not cut off" if "harmless" in self.fault.cause else "NOT MENDED"
            time.sleep(0.5)

    @staticmethod
    def _last_step(file: Path) -> float:
        steps = [line for line in file.read_text(errors="replace").splitlines() if '"kind": "step"' in line]
        return float(json.loads(steps[-1])["t"]) if steps and steps[-1].endswith("}") else 0.0

    def again(self) -> Trial:
        """The same trial, in a run with another name."""
        return Trial(self.rack, self.fault, self.kind, self.culprit, self.mended)

    def _write(self, folder: Path) -> None:
        inside = self.fault.inside
        if self.fault.then:  # the second fault belongs to another rank, and has its own time
            inside = _by_rank(inside or "pass", self.culprit, self.fault.then.inside)
        text = source(replace(self.fault, inside=inside), self.kind)
        (folder / ("train.py" if self.kind == "script" else "mine.py")).write_text(text)

    def _trains(self, output: Path, fab: subprocess.Popen[bytes], folder: Path) -> bool:
        end = time.time() + 120
        while fab.poll() is None and time.time() < end:
            events = [
                folder / "runs" / self.run / "ranks" / "rank-0.jsonl",
                HOME / "runs" / self.run / "ranks" / "rank-0.jsonl",
            ]
            if any(path.exists() and path.read_text().count('"kind": "step"') >= 3 for path in events):
                time.sleep(1.0)
                return True
            time.sleep(0.3)
        return False

    def _break(self, folder: Path, host: str) -> float:
        time.sleep(8.0 if "slow" in self.fault.cause or "weights" in self.fault.cause else 2.0)
        since = time.time()
        if self.fault.outside:
            self.fault.outside(self.rack, self.run, host)
        else:
            self.rack.plant(self.run, self.culprit, self._home(folder))
        if self.fault.then:
            time.sleep(self.fault.gap_s)
            self.rack.plant(self.run, self.other, self._home(folder))
        return since

    def _home(self, folder: Path) -> Path:
        return folder if (folder / "runs" / self.run).exists() else HOME

    def _first_words(self, output: Path, fab: subprocess.Popen[bytes], before: int, until: float) -> str:
        while time.time() < until:
            ended = fab.poll() is not None
            if line := first_words(printed(output)[before:]):
                return _named(line)
            if ended:
                return _named(_last(output))
            time.sleep(0.2)
        return ""

    def _end(self, fab: subprocess.Popen[bytes], folder: Path, host: str) -> None:
        if self.fault.mend:
            self.fault.mend(self.rack, self.run, host)
        for _ in range(2):
            if fab.poll() is None:
                fab.send_signal(signal.SIGINT)
                time.sleep(1.5)
        try:
            fab.wait(20)
        except subprocess.TimeoutExpired:
            fab.kill()
            fab.wait()
        if self.rack.name:
            end = time.time() + 60
            while not self.rack.up() and time.time() < end:
                time.sleep(1.0)
            down = [*FAB_THERE, "down", "--hosts", ",".join(HOSTS), "--run", self.run]
            subprocess.run(down, cwd=folder, env=self.rack.environment, capture_output=True, timeout=120)
        keep = os.environ.get("KEEP")
        for path in (folder / "runs" / self.run, HOME / "runs" / self.run):
            if keep and path.exists():
                pipes = shutil.ignore_patterns(".*", "work", "home")
                shutil.copytree(path, Path(keep) / f"{self.run}", dirs_exist_ok=True, symlinks=True, ignore=pipes)
                shutil.copy(folder / "output", Path(keep) / f"{self.run}" / "output")
            shutil.rmtree(path, ignore_errors=True)


def attempt(trial: Trial) -> Told:
    """Run the trial; if the fault cannot be made, the verdict is NOT STARTED."""
    try:
        return trial.go()
    except (subprocess.SubprocessError, OSError) as fault:
        return Told("NOT STARTED", 0.0, f"the benchmark could not make this fault: {fault}")


def printed(output: Path) -> str:
    """What the run printed; with --json, its story and its end in the form that a person would read."""
    lines = []
    for line in output.read_text(errors="replace").splitlines():
        row = json.loads(line) if line.startswith('{"') and line.endswith("}") else None
        if row is None:
            lines.append(line)
        elif row.get("kind") == "story":
            lines.append(row["text"])
        elif row.get("kind") == "result" and row["verdict"] == "failed":
            head, who = row["message"].partition("\n")[0], f"{row['node']} (rank {row['rank']})"
            lines.append(f"error: {head if not row['node'] or row['node'] in head else f'{who}: {head}'}")
        elif row.get("kind") == "result":
            lines.append(f"{row['verdict']}  {row['message']}")
    return "\n".join(lines)


def first_words(said: str) -> str:
    """The first line about a fault."""
    speaks = (line for line in said.splitlines() if _FAULT_LINE.search(line) and not _HARMLESS_LINE.match(line))
    return next((line.strip() for line in speaks if not line.startswith("|")), "")


def _by_rank(first: str, culprit: int, second: str) -> str:
    lines = [f"if RANK == {culprit}:", textwrap.indent(first, "    "), "else:", textwrap.indent(second, "    ")]
    return "\n".join(lines)


def _last(output: Path) -> str:
    lines = [line for line in printed(output).splitlines() if line.strip()]
    return next((line for line in lines if line.startswith(("error:", "stopped "))), lines[-1] if lines else "")


def _named(text: str) -> str:
    for node, host in _HERE.items():
        text = re.sub(rf"\b{node}\b", host, text)
    return text


def judgement(fault: Fault, culprit: int, words: str) -> str:
    """Judge the first words."""
    if "harmless" in fault.cause:
        return "WRONG" if words else "right"
    if not words:
        return "silent"
    host = HOSTS[culprit]
    if fault.culprit == "rank":
        own = rf"{host} \(rank {culprit}\)|rank {culprit} \({host}\)"
        who = rf"{own}|ranks? {culprit} called|rank {culprit} in|on rank {culprit} "
    else:
        who = rf"\b{host}\b"
    # The part after a semicolon is about the victims.
    head = words if "do not agree" in words or "different places" in words else words.partition(";")[0]
    named = re.search(who, head) is not None
    if fault.culprit == "pair":
        named = named and HOSTS[(culprit + 1) % 3] in head
    why = any(re.search(CAUSES[cause], words) for cause in fault.cause)
    if "could not tell" in words or "none is missing" in words:
        return "unsure"
    return "right" if named and why else "culprit only" if named else "WRONG"
