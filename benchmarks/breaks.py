"""A real run is broken on purpose: do the first words name who failed first, and why?

    make rack RACK=breaks NODES=3
    python -m benchmarks.breaks [--rack breaks] [--seed 1] [--part seen|unseen|all] [--kind script|trainer]

The runs are a plain DDP script that knows nothing of Muster, and Muster's own trainer, on three nodes: processes of
this machine for the faults of one rank, three hosts of a rack (--rack) for all of them. --seed draws the culprit. The
first line that speaks of the fault counts: right, silent (nothing in time), unsure ("could not tell"), or WRONG.

--seed also draws a third of the faults, and pairs of them, that serve for the score alone: --part unseen, --pairs N.
--image: what the hosts run (muster-trainer:cpu). --torchrun: plain torchrun runs the script, and its own words count.
--to-end: if no run survives the fault: does it end within 60 s after --wait-lost 20s, and with which words and cause;
do `fab explain RUN` and the page then tell the same?
"""

from __future__ import annotations

import argparse
import html
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import break_fresh, break_newest, break_strange, break_unforeseen, break_unlisted
from benchmarks.break_faults import CAUSES, HERE, ON_HOSTS, Fault
from benchmarks.break_others import OTHERS, OTHERS_ON_HOSTS
from benchmarks.break_scripts import source
from benchmarks.break_strangers import HARMLESS, STRANGE_HERE, STRANGE_ON_HOSTS, TOGETHER
from benchmarks.venv import HOME

FAB = str(HOME / ".venv" / "bin" / "fab")
HOSTS = ("rack-1", "rack-2", "rack-3")
WAIT_LOST_S, END_S = 20, 60
# By --list: the faults of one rank, and those that need hosts.
_LISTS: dict[str, tuple[Sequence[Fault], Sequence[Fault]]] = {
    "known": (HERE, ON_HOSTS),
    "strange": (break_strange.STRANGE, []),
    "strangers": ([*STRANGE_HERE, *HARMLESS, *TOGETHER], STRANGE_ON_HOSTS),
    "others": (OTHERS, OTHERS_ON_HOSTS),
    "fresh": (break_fresh.FRESH, break_fresh.FRESH_ON_HOSTS),
    "newest": (break_newest.NEWEST, []),
    "unlisted": (break_unlisted.UNLISTED, []),
    "unforeseen": (break_unforeseen.UNFORESEEN, []),
}
_WORDS = CAUSES | break_strange.CAUSES | break_fresh.CAUSES | break_newest.CAUSES | break_unlisted.CAUSES
_WORDS |= break_unforeseen.CAUSES
_HERE = {"master": "rack-1", "worker-1": "rack-2", "worker-2": "rack-3"}
_SPEAKS = re.compile(
    r"\(ranks? \d+\)|\brank \d+ \(|^error:|could not tell|is lost|cut off|is paused|out of sight|is slow|other weights|"
    r"clock of|no rank has made|step \d+ failed|alone|does not answer|is gone|is full"
)
_QUIET = re.compile(
    r"^(step |muster preflight|  hosts|ready|.* runs on rack-|training |held-out|all is|step$|cause|fix)"
)
_TRAINER = "--recipe mine.py --steps 1000000 --batch 96 --checkpoint-every 20 --eval-every 0 --log-every 5"


class Rack:
    """Hosts that are containers of this machine's engine. Without a name: processes of this machine."""

    def __init__(self, name: str, image: str, names: tuple[str, ...] = HOSTS) -> None:
        self.name, self.image, self.config = name, image, HOME / "rack" / f".state-{name}" / "ssh_config"
        self.names = names

    def container(self, host: str) -> str:
        """The container that is the host."""
        return f"muster-{self.name}-{host.removeprefix('rack-')}"

    def root(self, host: str, command: str) -> str:
        """A command on the host, as root and past SSH."""
        line = ["docker", "exec", self.container(host), "sh", "-c", command]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    def engine(self, *words: str) -> None:
        """A command of the engine that the hosts run on."""
        subprocess.run(["docker", *words], capture_output=True, timeout=60, check=True)

    @property
    def environment(self) -> dict[str, str]:
        """What `fab` gets."""
        own = {"MUSTER_SSH_CONFIG": str(self.config)} if self.name else {}
        return {**os.environ, **own, "NO_COLOR": "1", "COLUMNS": "300", "PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1"}

    def command(self, fault: Fault, kind: str, run: str, folder: Path) -> list[str]:
        """The command that starts the run."""
        what = ["--script", "train.py", "--folder", str(folder)]
        if kind == "trainer":
            what = ["--args", _TRAINER.replace("mine.py", "mine.py" if self.name else str(folder / "mine.py"))]
        fab = [FAB, "--search-root", str(HOME)]
        if not self.name:
            return [*fab, "up", *what, "--backend", "processes", "--workers", "2", "--run", run]
        rows = "".join(f'[[hosts]]\nname = "{host}"\n' for host in HOSTS)
        (folder / "cluster.toml").write_text(f"[job]\n{fault.job}\n{rows}")
        where = ["--cluster", str(folder / "cluster.toml"), "--allow-folder", "--image", self.image]
        own = ["--folder", str(folder)] if kind == "trainer" else []
        return [*fab, "deploy", *what, *where, "--run", run, "--wait-lost", f"{WAIT_LOST_S}s", *own]

    def plant(self, run: str, rank: int, folder: Path) -> None:
        """Tell the rank that now is the time."""
        if self.name:
            self.root(HOSTS[rank], f"touch /home/*/.muster/runs/{run}/now-{rank} || true; "
                      f"for d in /home/*/.muster/runs/{run}; do touch $d/now-{rank}; done")  # fmt: skip
        else:
            (folder / "runs" / run / f"now-{rank}").touch()

    def up(self) -> bool:
        """Whether the engines of all hosts answer over SSH."""
        ssh = ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=3"]
        return all(
            subprocess.run([*ssh, host, "docker", "version"], capture_output=True).returncode == 0
            for host in self.names
        )


@dataclass(frozen=True)
class Told:
    """The judgement of the first words, and with --to-end of the end: what outcome.json says, and how late it came."""

    verdict: str
    after_s: float = 0.0
    words: str = ""
    end: str = ""


class Trial:
    """One run that is broken once, or twice (`then`: another fault, of another rank, two seconds later)."""

    def __init__(self, rack: Rack, fault: Fault, kind: str, culprit: int, then: Fault | None = None) -> None:
        self.rack, self.fault, self.kind, self.then, self.to_end = rack, fault, kind, then or fault.then, False
        self.culprit = 0 if fault.first else culprit
        self.other = (self.culprit + 1) % 3
        self.run = f"break-{uuid.uuid4().hex[:6]}"
        self.ended: float | None = None

    def go(self) -> Told:
        """Break the run, and read what is said of it."""
        host = HOSTS[self.culprit]
        with tempfile.TemporaryDirectory(prefix="muster-breaks-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            self._write(folder)
            if self.fault.before:
                self.fault.before(self.rack, self.run, host)
            output = folder / "output"
            with output.open("wb") as out:
                line = self.rack.command(self.fault, self.kind, self.run, folder)
                fab = subprocess.Popen(line, cwd=folder, env=self.rack.environment, stdout=out, stderr=out)
            try:
                if not self._trains(output, fab, folder):
                    return Told("NOT STARTED", 0.0, _last(output))
                before = len(output.read_text(errors="replace"))
                since = self._break(folder, host)
                words = self._first_words(output, fab, before, since + self.fault.limit_s)
                took = time.time() - since
                end = self._read_end(fab, folder, since + took) if self.to_end else ""
            finally:
                self._end(fab, folder, host)
        return Told(self._judged(words), took, words, end)

    def _judged(self, words: str) -> str:
        first = judgement(self.fault, self.culprit, words)
        if self.fault.then and first != "right":  # both are near in time: either will do
            return judgement(self.fault.then, self.other, words)
        return first

    def _read_end(self, fab: subprocess.Popen[bytes], folder: Path, since: float) -> str:
        """How the run ended, if it did so in time after its first words."""
        try:
            fab.wait(WAIT_LOST_S + END_S)
        except subprocess.TimeoutExpired:
            return f"STILL RUNS after {time.time() - since:.0f} s"
        took = time.time() - since
        outcome = json.loads((self._home(folder) / "runs" / self.run / "outcome.json").read_text())
        message, who = outcome["message"].partition("\n")[0], f"{outcome['node']} (rank {outcome['rank']})"
        message = _named(message if who in message or not outcome["node"] else f"{who}: {message}")
        judged = judgement(self.fault, self.culprit, f"error: {message}")
        places = "; ".join(self._read_places(folder, outcome)) or "explain and the page say the same"
        return f"{judged}, {outcome['cause']}, {took:.0f} s: {message} [{places}]"

    def _read_places(self, folder: Path, outcome: dict[str, Any]) -> list[str]:
        """Where `fab explain RUN` and the page tell another cause, rank or host than the outcome does."""
        line = [FAB, "--search-root", str(HOME), "explain", self.run, "--json"]
        ran = subprocess.run(
            line, cwd=folder, env=self.rack.environment, capture_output=True, text=True, timeout=120, check=False
        )
        told = json.loads(ran.stdout or "{}")
        page = html.unescape((self._home(folder) / "runs" / self.run / "report.html").read_text())
        head, who = outcome["message"].partition("\n")[0], f"rank {outcome['rank']} on {outcome['node']}"
        others = []
        if told.get("group") != outcome["cause"]:
            others.append(f"OTHER explain: {told.get('cause')} ({told.get('group')}) {told.get('what', '')[:120]}")
        if outcome["node"] and told.get("first") not in (who, outcome["node"]):
            others.append(f"OTHER explain: first {told.get('first')}, not {who}")
        if head not in page:
            others.append("OTHER page")
        return others

    def again(self) -> Trial:
        """The same in a run of another name."""
        other = Trial(self.rack, self.fault, self.kind, self.culprit, self.then)
        other.to_end = self.to_end
        return other

    def _write(self, folder: Path) -> None:
        merged = replace(self.fault, inside=self.fault.inside)
        text = source(merged, self.kind)
        if self.then:
            # The second fault is another rank's: it has its own time.
            text = source(
                replace(self.fault, inside=_by_rank(self.fault.inside or "pass", self.culprit, self.then.inside)),
                self.kind,
            )
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
        if self.then:
            time.sleep(self.fault.gap_s)
            self.rack.plant(self.run, self.other, self._home(folder))
        return since

    def _home(self, folder: Path) -> Path:
        return folder if (folder / "runs" / self.run).exists() else HOME

    def _first_words(self, output: Path, fab: subprocess.Popen[bytes], before: int, until: float) -> str:
        while time.time() < until:
            ended = fab.poll() is not None
            if line := first_words(output.read_text(errors="replace")[before:]):
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
            down = [FAB, "--search-root", str(HOME), "down", "--hosts", ",".join(HOSTS), "--run", self.run]
            subprocess.run(down, cwd=folder, env=self.rack.environment, capture_output=True, timeout=120)
        keep = os.environ.get("KEEP")
        for path in (folder / "runs" / self.run, HOME / "runs" / self.run):
            if keep and path.exists():
                pipes = shutil.ignore_patterns(".*", "work", "home")
                shutil.copytree(path, Path(keep) / f"{self.run}", dirs_exist_ok=True, symlinks=True, ignore=pipes)
                shutil.copy(folder / "output", Path(keep) / f"{self.run}" / "output")
            shutil.rmtree(path, ignore_errors=True)


def first_words(said: str) -> str:
    """The first line that speaks of a fault."""
    speaks = (line for line in said.splitlines() if _SPEAKS.search(line) and not _QUIET.match(line))
    return next((line.strip() for line in speaks if not line.startswith("|")), "")


def _by_rank(first: str, culprit: int, second: str) -> str:
    lines = [f"if RANK == {culprit}:", textwrap.indent(first, "    "), "else:", textwrap.indent(second, "    ")]
    return "\n".join(lines)


def _last(output: Path) -> str:
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return next((line for line in lines if line.startswith(("error:", "stopped "))), lines[-1] if lines else "")


def _named(text: str) -> str:
    for node, host in _HERE.items():
        text = re.sub(rf"\b{node}\b", host, text)
    return text


def judgement(fault: Fault, culprit: int, words: str) -> str:
    """What the first words are worth."""
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
    # What stands behind a semicolon is about the victims.
    head = words if "do not agree" in words or "different places" in words else words.partition(";")[0]
    named = re.search(who, head) is not None
    if fault.culprit == "pair":
        named = named and HOSTS[(culprit + 1) % 3] in head
    why = any(re.search(_WORDS[cause], words) for cause in fault.cause)
    if "could not tell" in words or "none is missing" in words:
        return "unsure"
    return "right" if named and why else "culprit only" if named else "WRONG"


def by_torchrun(fault: Fault, culprit: int, limit_s: float) -> str:
    """What plain torchrun is worth with the same script: any of its words within the time count, also the last ones."""
    with tempfile.TemporaryDirectory(prefix="muster-breaks-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "train.py").write_text(source(fault, "script"))
        meets = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", *meets, "train.py"]
        with (folder / "output").open("wb") as out:
            environment = {**os.environ, "BREAKS_DIR": str(folder), "OMP_NUM_THREADS": "1", "MUSTER_RUN_DIR": ""}
            run = subprocess.Popen(line, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True)
        try:
            end = time.time() + 60
            while "trains" not in (folder / "output").read_text(errors="replace") and time.time() < end:
                time.sleep(0.3)
            before = (folder / "output").stat().st_size
            (folder / f"now-{culprit}").touch()
            with suppress(subprocess.TimeoutExpired):
                run.wait(limit_s)
            words = (folder / "output").read_bytes()[before:].decode(errors="replace")
        finally:
            _end_tree(run)
    if not words.strip():
        return "silent"
    root = re.search(r"Root Cause.*?rank\s*: (\d+)", words, re.DOTALL)
    named = root is not None and int(root[1]) == culprit
    why = any(
        re.search(_WORDS[cause] + r"|Signal \d+ \(SIG\w+\)" * (cause == "killed"), words) for cause in fault.cause
    )
    return "right" if named and why else "culprit only" if named else "WRONG"


def _end_tree(run: subprocess.Popen[bytes]) -> None:
    """End torchrun and its ranks, which lead sessions of their own; a stopped one needs SIGKILL."""
    for child in _children(run.pid):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        run.kill()
    run.wait()


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [each for child in own for each in (*_children(int(child)), int(child))]
    return []


def drawn(seed: int, faults: Sequence[Fault]) -> tuple[list[Fault], list[Fault]]:
    """The faults to work with, and a third of them that serve for the score alone."""
    order = sorted(faults, key=lambda fault: fault.name)
    random.Random(seed).shuffle(order)
    unseen = {fault.name for fault in order[: len(order) // 3]}
    return [f for f in faults if f.name not in unseen], [f for f in faults if f.name in unseen]


def pairs(seed: int, count: int) -> list[tuple[Fault, Fault]]:
    """Two faults of different ranks in one run, the second two seconds after the first."""
    draw = random.Random(seed * 7 + 1)
    plain = [fault for fault in HERE if fault.kinds == ("script", "trainer") and "slow" not in fault.cause]
    return [(first, second) for first, second in (draw.sample(plain, 2) for _ in range(count))]


def main() -> None:
    """Break runs, one after the other, and print a row for each."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rack", default="")
    asked.add_argument("--image", default="muster-trainer:cpu")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--part", choices=("seen", "unseen", "all"), default="all")
    asked.add_argument("--kind", choices=("script", "trainer"), action="append")
    asked.add_argument("--only", action="append", default=[])
    asked.add_argument("--torchrun", action="store_true")
    asked.add_argument("--pairs", type=int, default=0)
    asked.add_argument("--list", default="known", choices=_LISTS)
    asked.add_argument("--hosts-only", action="store_true", help="with --rack: only the faults that need hosts")
    asked.add_argument("--to-end", action="store_true")
    options = asked.parse_args()
    rack = Rack(options.rack, options.image)
    here, on_hosts = _LISTS[options.list]
    faults = [*([] if options.hosts_only else here), *(on_hosts if options.rack else [])]
    seen, unseen = drawn(options.seed, [*here, *on_hosts])
    chosen = {"seen": seen, "unseen": unseen, "all": [*seen, *unseen]}[options.part]
    faults = [fault for fault in faults if fault in chosen and (not options.only or fault.name in options.only)]
    draw = random.Random(options.seed)
    if options.torchrun:
        own = [
            fault for fault in faults if "script" in fault.kinds and not (fault.outside or fault.job or fault.before)
        ]
        kinds = [(fault.name, by_torchrun(fault, draw.randrange(3), 40.0)) for fault in own]
        print("\n".join(f"| {name} | {kind} |" for name, kind in kinds))
        print(f"\ntorchrun: {sum(kind == 'right' for _, kind in kinds)} of {len(kinds)} right")
        return
    trials = [
        (Trial(rack, fault, kind, draw.randrange(3)), fault.name)
        for kind in options.kind or ("script", "trainer")
        for fault in faults
        if kind in (fault.ends if options.to_end else fault.kinds)
    ]
    for trial, _ in trials:
        trial.to_end = options.to_end
    for first, then in pairs(options.seed, options.pairs):
        kind = draw.choice(options.kind or ("script", "trainer"))
        trials.append((Trial(rack, first, kind, draw.randrange(3), then), f"{first.name}, then {then.name}"))
    _run(trials)


def _run(trials: Sequence[tuple[Trial, str]]) -> None:
    counts: dict[str, int] = {}
    print("| kind | fault | culprit | | said first | after |\n|---|---|---|---|---|---|", flush=True)
    for trial, name in trials:
        told = _tried(trial)
        if told.verdict == "NOT STARTED":  # it says nothing of the fault: try once more
            told = _tried(trial.again())
        counts[told.verdict] = counts.get(told.verdict, 0) + 1
        shown, end = (text.replace("|", "/")[:260] for text in (told.words or "(nothing)", told.end))
        row = f"| {trial.kind} | {name} | {trial.culprit} | {told.verdict} | {shown} | {told.after_s:.1f} s |"
        print(row + f" {end} |" * trial.to_end, flush=True)
    print(f"\n{counts.get('right', 0)} of {len(trials)} right: {counts}")


def _tried(trial: Trial) -> Told:
    try:
        return trial.go()
    except (subprocess.SubprocessError, OSError) as fault:
        return Told("NOT STARTED", 0.0, f"the benchmark could not make this fault: {fault}")


if __name__ == "__main__":
    main()
