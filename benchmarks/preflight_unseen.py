"""Faults that no rule was written for, on hosts of a rack: what a real deploy does, and what preflight said before.

python -m benchmarks.preflight_unseen --rack NAME          the rows for looking at, on pairs of hosts at once
python -m benchmarks.preflight_unseen --rack NAME --score  the third that is for the score
python -m benchmarks.preflight_unseen --rack NAME --only "the log driver is none"
python -m benchmarks.preflight_unseen --rack NAME --list rented [--score]     the second list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list campus [--score]     the third list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list homelab [--score]    the fourth list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list inherited [--score]  the fifth list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list borrowed [--score]   the sixth list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list sublet [--score]     the seventh list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list salvaged [--score]   the eighth list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list makeshift [--score]   the ninth list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list timeworn [--score]   the tenth list, drawn apart
python -m benchmarks.preflight_unseen --rack NAME --list managed [--score]   the eleventh list, drawn apart

The rack has an even number of hosts, each with the image that --image names. A line of JSON a row is appended to
the file that --into names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from deploy.causes.finding import FAULT, UNKNOWN
from lab.drawn import score
from lab.rack import HOME, Rack
from lab.unseen import (
    borrowed,
    campus,
    faults,
    homelab,
    inherited,
    makeshift,
    managed,
    oddities,
    rented,
    salvaged,
    sublet,
    timeworn,
)
from lab.unseen.row import ROWS, SEED, Row, of_score, to_look_at

FAB, STEPS = Path(sys.executable).with_name("fab"), HOME / "lab/drawn/steps.py"
DEADLINE_S, PATIENCE_S = 75, 20
LISTS = (faults, oddities, rented, campus, homelab, inherited, borrowed, sublet, salvaged, makeshift, timeworn, managed)
# What --list may say: the rows, and the seed that they are drawn with. The modules of the first list fill ROWS.
DRAWN = {
    "first": (ROWS, SEED),
    "rented": (rented.RENTED, rented.SEED),
    "campus": (campus.CAMPUS, campus.SEED),
    "homelab": (homelab.HOMELAB, homelab.SEED),
    "inherited": (inherited.INHERITED, inherited.SEED),
    "borrowed": (borrowed.BORROWED, borrowed.SEED),
    "sublet": (sublet.SUBLET, sublet.SEED),
    "salvaged": (salvaged.SALVAGED, salvaged.SEED),
    "makeshift": (makeshift.MAKESHIFT, makeshift.SEED),
    "timeworn": (timeworn.TIMEWORN, timeworn.SEED),
    "managed": (managed.MANAGED, managed.SEED),
}


def mark(row: Row, trains: bool, verdict: dict[str, Any], hosts: list[str]) -> str:
    """The mark of a verdict, by what the run did."""
    first = next((each for each in verdict["findings"] if each["level"] in (FAULT, UNKNOWN)), None)
    if trains:
        return score.REFUSED if first or not verdict["ok"] else score.QUIET
    if not first:
        return score.GREEN
    if row.is_named(first):
        return (
            (score.CAUSE if first["cause"] in row.causes else score.OBSERVED)
            if row.is_placed(first, hosts)
            else score.PLACE
        )
    return score.WRONG if first["level"] == FAULT else score.UNSURE


class Pair:
    """Two hosts of a rack, and what is done on them."""

    def __init__(self, rack: Rack, hosts: list[str], image: str) -> None:
        self.rack, self.hosts, self.image = rack, hosts, image
        self.env = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config)}

    def attempt(self, row: Row) -> dict[str, Any]:
        """One row: broken, preflight, deploy, mended. A run of a row that is not named twice fails only if both do."""
        host, peer = self.hosts[row.on], self.hosts[1 - row.on]
        try:
            self._root(host, peer, row.breaks)
            began = time.monotonic()
            verdict, errors = self._preflight()
            seconds = time.monotonic() - began
            trains, words = self._deploy()
            if not trains and verdict["ok"]:
                trains, words = self._deploy()
        finally:
            self._mend(row, host, peer)
        first = next(iter(verdict["findings"]), {})
        return {
            "row": row.name, "host": host, "trains": trains, "mark": mark(row, trains, verdict, self.hosts),
            "cause": first.get("cause", ""), "level": first.get("level", ""), "named": first.get("hosts", []),
            "text": first.get("text", ""), "evidence": first.get("evidence", ()), "seconds": round(seconds, 1),
            "errors": errors, "run": words,
        }  # fmt: skip

    def _root(self, host: str, peer: str, script: str) -> None:
        self.rack.root(host, "sh", "-c", f"PEER={self.rack.address(peer)}; {script}", timeout=60)

    def _preflight(self) -> tuple[dict[str, Any], str]:
        line = [FAB, "preflight", "--hosts", ",".join(self.hosts), "--image", self.image, "--json"]
        done = subprocess.run(line, cwd=HOME, env=self.env, capture_output=True, text=True, timeout=300)
        nothing = {"ok": False, "findings": []}
        return (json.loads(done.stdout) if done.stdout.startswith("{") else nothing), done.stderr[-400:]

    def _deploy(self) -> tuple[bool, str]:
        """Whether a small training runs to its end in time, whatever preflight says; and its last words."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(STEPS.read_text())
            line = [
                FAB, "deploy", "--hosts", ",".join(self.hosts), "--image", self.image, "--folder", folder, "--script",
                f"train.py {PATIENCE_S}", "--env", "LAB_HOSTS=2", "--force",
            ]  # fmt: skip
            started = subprocess.Popen(
                ["timeout", "-k", "10", str(DEADLINE_S), *line], cwd=HOME, env=self.env,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            words = started.communicate()[0]
        return started.returncode == 0, f"{started.returncode}: {words[-700:]}"

    def _mend(self, row: Row, host: str, peer: str) -> None:
        # A deploy that lost the host leaves its lock there, which the next row's deploy would fail by.
        left = "/home/muster/.muster/runs/* /home/muster/.muster/lock-*"
        clean = f"docker ps -aq | xargs -r docker rm -f >/dev/null 2>&1; rm -rf {left}"
        self._root(host, peer, f"{row.mends}; true")
        for each in self.hosts:
            self._root(each, peer, f"{clean}; true")
        for _ in range(30):
            if all(self.rack.is_up(each) for each in self.hosts):
                return
            time.sleep(0.5)
        raise RuntimeError(f"{row.name}: {host} is not mended")


def attempts(rack: Rack, rows: list[Row], image: str, into: Path) -> list[dict[str, Any]]:
    """All rows, each pair of hosts with the next one."""
    waiting: Queue[Row] = Queue()
    for row in rows:
        waiting.put(row)
    done, lock = [], threading.Lock()

    def work(pair: Pair) -> None:
        while True:
            try:
                row = waiting.get_nowait()
            except Empty:
                return
            try:
                one = pair.attempt(row)
            except Exception as failed:
                print(f"  .. could not be made: {row.name}: {failed!r}", flush=True)
                if "is not mended" in str(failed):
                    return
                continue
            with lock, into.open("a") as file:
                done.append(one)
                file.write(json.dumps(one) + "\n")
                ran = "trains" if one["trains"] else "fails"
                print(
                    f"{one['mark']:8} {ran:6} {one['row']}: {one['cause']} {one['named']} {one['text'][:150]}",
                    flush=True,
                )

    pairs = [Pair(rack, rack.hosts[place : place + 2], image) for place in range(0, rack.size, 2)]
    threads = [threading.Thread(target=work, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def main() -> None:
    """Each row a line, then how many have which mark."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--rack", required=True)
    command.add_argument("--size", type=int, default=4)
    command.add_argument("--image", default="muster-trainer:cpu")
    command.add_argument("--into", type=Path, default=Path("unseen.jsonl"))
    command.add_argument("--list", choices=DRAWN, default="first")
    command.add_argument("--score", action="store_true")
    command.add_argument("--only", nargs="*")
    options = command.parse_args()
    listed, seed = DRAWN[options.list]
    rows = of_score(seed, listed) if options.score else to_look_at(seed, listed)
    if options.only:
        rows = [row for row in listed if row.name in options.only]
    began, load = time.monotonic(), os.getloadavg()[0]
    done = attempts(Rack(options.rack, options.size), rows, options.image, options.into)
    for trains in (False, True):
        of = [one for one in done if one["trains"] == trains]
        counts = Counter(one["mark"] for one in of)
        print("trains" if trains else "fails", len(of), {word: score.share(n, len(of)) for word, n in counts.items()})
    print(f"seed {seed}, {len(done)} rows, {time.monotonic() - began:.0f} s, load {load:.1f} at the beginning")


if __name__ == "__main__":
    main()
