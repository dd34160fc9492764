"""Machines as people have them (lab/machines/), on a rack: what a real deploy does, and what preflight said before it.

    python -m benchmarks.preflight_machines --rack NAME                 all rows, on several pairs of hosts in parallel
    python -m benchmarks.preflight_machines --rack NAME --of engine     the rows of a file
    python -m benchmarks.preflight_machines --rack NAME --third SEED    a random third of them: the score of new rows
    python -m benchmarks.preflight_machines --rack NAME --only "the engine is a swarm of one"

The rack has an even number of hosts, each with the image from --image. One line of JSON for each row is appended to the
file from --into.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from deploy.causes.finding import FAULT, UNKNOWN
from lab.drawn import score
from lab.machines.row import ROWS, Row
from lab.rack import HOME, Rack

FAB, STEPS = Path(sys.executable).with_name("fab"), HOME / "lab/drawn/steps.py"
DEADLINE_S, PATIENCE_S = 75, 20
FILES = ("login", "engine", "network", "disk", "limits")


def mark(row: Row, trains: bool, verdict: dict[str, Any], hosts: list[str]) -> str:
    """The mark for a verdict, given what the run did."""
    first = next((each for each in verdict["findings"] if each["level"] in (FAULT, UNKNOWN)), None)
    if trains:
        return score.REFUSED if first or not verdict["ok"] else score.QUIET
    if not first:
        return score.GREEN
    if not row.is_named(first):
        return score.WRONG if first["level"] == FAULT else score.UNSURE
    if not row.is_placed(first, hosts):
        return score.PLACE
    return score.CAUSE if first["cause"] in row.causes else score.OBSERVED


class Pair:
    """Two hosts of a rack, and the actions on them."""

    def __init__(self, rack: Rack, hosts: list[str], image: str) -> None:
        self.rack, self.hosts, self.image = rack, hosts, image
        self.env = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config)}

    def attempt(self, row: Row) -> dict[str, Any]:
        """Try one row: break it, run preflight, deploy, mend it.

        If preflight says ok, a run counts as failed only if it fails twice.
        """
        host, peer = self.hosts[row.on], self.hosts[1 - row.on]
        try:
            self._root(host, peer, row.breaks)
            verdict = self._preflight()
            trains, words = self._deploy()
            if not trains and verdict["ok"]:
                trains, words = self._deploy()
        finally:
            self._mend(row, host, peer)
        first = next(iter(verdict["findings"]), {})
        said = {name: first.get(name, "") for name in ("cause", "level", "hosts", "text", "evidence")}
        made = mark(row, trains, verdict, self.hosts)
        return {"row": row.name, "host": host, "trains": trains, "mark": made, **said, "run": words}

    def _root(self, host: str, peer: str, script: str) -> None:
        self.rack.root(host, "sh", "-c", f"PEER={self.rack.address(peer)}; {script}", timeout=60)

    def _preflight(self) -> dict[str, Any]:
        line = [FAB, "preflight", "--hosts", ",".join(self.hosts), "--image", self.image, "--json"]
        done = subprocess.run(line, cwd=HOME, env=self.env, capture_output=True, text=True, timeout=300)
        return json.loads(done.stdout) if done.stdout.startswith("{") else {"ok": False, "findings": []}

    def _deploy(self) -> tuple[bool, str]:
        """Whether a small training finishes in time, whatever preflight says; and its last words."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(STEPS.read_text())
            where = ["--hosts", ",".join(self.hosts), "--image", self.image, "--folder", folder]
            what = ["--script", f"train.py {PATIENCE_S}", "--env", "LAB_HOSTS=2", "--force"]
            line = ["timeout", "-k", "10", str(DEADLINE_S), FAB, "deploy", *where, *what]
            done = subprocess.run(line, cwd=HOME, env=self.env, capture_output=True, text=True)
        return done.returncode == 0, f"{done.returncode}: {(done.stdout + done.stderr)[-700:]}"

    def _mend(self, row: Row, host: str, peer: str) -> None:
        # A deploy that lost the host leaves its lock there, because of which the next row's deploy would fail.
        left = "/home/muster/.muster/runs/* /home/muster/.muster/lock-*"
        self._root(host, peer, f"{row.mends}; true")
        for each in self.hosts:
            self._root(each, peer, f"docker ps -aq | xargs -r docker rm -f >/dev/null 2>&1; rm -rf {left}; true")
        for _ in range(30):
            if all(self.rack.is_up(each) for each in self.hosts):
                return
            time.sleep(0.5)
        raise RuntimeError(f"{row.name}: {host} is not mended")


def attempts(rack: Rack, rows: list[Row], image: str, into: Path) -> list[dict[str, Any]]:
    """Try all rows, each on the next free pair of hosts. A host that cannot be mended ends the trial."""
    free = Queue[Pair]()
    for place in range(0, rack.size, 2):
        free.put(Pair(rack, rack.hosts[place : place + 2], image))

    def one(row: Row) -> dict[str, Any] | None:
        pair = free.get()
        try:
            return pair.attempt(row)
        except (subprocess.SubprocessError, AssertionError, OSError, ValueError) as failed:
            print(f"  .. could not be made: {row.name}: {failed!r}", flush=True)
            return None
        finally:
            free.put(pair)

    done = []
    with ThreadPoolExecutor(rack.size // 2) as pool:
        for each in filter(None, pool.map(one, rows)):
            done.append(each)
            with into.open("a") as file:
                file.write(json.dumps(each) + "\n")
            ran = "trains" if each["trains"] else "fails"
            print(
                f"{each['mark']:8} {ran:6} {each['row']}: {each['cause']} {each['hosts']} {each['text'][:150]}",
                flush=True,
            )
    return done


def main() -> None:
    """Print a line for each row, then the number of rows with each mark."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--rack", required=True)
    command.add_argument("--size", type=int, default=2)
    command.add_argument("--image", default="muster-trainer:cpu")
    command.add_argument("--into", type=Path, default=Path("machines.jsonl"))
    command.add_argument("--of", choices=FILES, action="append")
    command.add_argument("--third", type=int)
    command.add_argument("--only", nargs="*")
    options = command.parse_args()
    for name in options.of or FILES:
        importlib.import_module(f"lab.machines.{name}")
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    if options.third is not None:
        rows = random.Random(options.third).sample(rows, len(rows) // 3)
    began, load = time.monotonic(), os.getloadavg()[0]
    done = attempts(Rack(options.rack, options.size), rows, options.image, options.into)
    for trains in (False, True):
        of = [one for one in done if one["trains"] == trains]
        counts = Counter(one["mark"] for one in of)
        print("trains" if trains else "fails", len(of), {word: score.share(n, len(of)) for word, n in counts.items()})
    print(f"{len(done)} rows, {time.monotonic() - began:.0f} s, load {load:.1f} at the beginning")


if __name__ == "__main__":
    main()
