"""Do all places report the same about a run? Faults are drawn; each place is read during the run, and at its end.

    python -m benchmarks.breaks.story [--seed 38] [--count 40]           the faults of a rank, on this machine
    python -m benchmarks.breaks.story --rack breaks [--count 14]         the faults of a host

A place is the view (text, or the lines of --json in every third run), its last line, outcome.json, timeline.jsonl,
`muster explain RUN` and the page. All must name the same cause, rank and host: those of the first trouble that ends
the run. If the fault does not end the run, it is stopped as with Ctrl-C, and explain must still name the earlier
trouble.
"""

from __future__ import annotations

import argparse
import html
import importlib
import json
import random
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.breaks import FAULTS, Fault
from benchmarks.breaks.trial import HOSTS, WAIT_LOST_S, Rack, Trial, attempt, printed
from benchmarks.venv import FAB_THERE

FILES = ("ends", "raises", "stalls", "collectives", "together", "hosts")
_ENDS_S, _SETTLES_S = 14.0, 3.0
Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """What one place reports: the cause's group, the rank (or None) and the node (or an empty text)."""

    cause: str
    rank: int | None
    node: str

    def __str__(self) -> str:
        who = f"rank {self.rank} on {self.node}" if self.rank is not None else self.node or "nobody"
        return f"{self.cause or 'no cause'}, {who}"


class Story(Trial):
    """A trial in which the places are compared."""

    def __init__(self, rack: Rack, fault: Fault, kind: str, culprit: int, as_json: bool) -> None:
        super().__init__(rack, fault, kind, culprit, as_json=as_json)

    def _read_end(self, fab: subprocess.Popen[bytes], output: Path, folder: Path, since: float) -> str:
        differ = []
        try:
            fab.wait((WAIT_LOST_S if self.fault.needs_hosts else 0) + _ENDS_S)
        except subprocess.TimeoutExpired:
            differ += self._living(folder)
            fab.send_signal(signal.SIGINT)
            fab.wait(90)
        return "; ".join([*differ, *self._ended(folder)]) or "agree"

    def _living(self, folder: Path) -> list[str]:
        """For a run that still runs: compare explain and the page with the view."""
        (trouble, text), shown, page = self._trouble(folder), self._explain(folder), self._page(folder)
        differ = [] if not text or text in page else [f"page of the living run lacks: {text[:80]}"]
        told = Place(shown.get("group") or "", *_who(shown.get("first") or ""))
        if trouble and not _same(trouble, told):
            differ.append(f"explain of the living run: {told}; story: {trouble}")
        return differ

    def _ended(self, folder: Path) -> list[str]:
        run = self._home(folder) / "runs" / self.run
        outcome, shown, page = json.loads((run / "outcome.json").read_text()), self._explain(folder), self._page(folder)
        (trouble, text), told = self._trouble(folder), Place(shown.get("group") or "", *_who(shown.get("first") or ""))
        output = printed(folder / "output")
        head = outcome["message"].partition("\n")[0]
        end = Place(outcome.get("cause") or "", outcome.get("rank"), outcome.get("node") or "")
        differ = [] if head in page else [f"page lacks the outcome: {head[:80]}"]
        if " ".join(head.split()) not in " ".join(output.split()):
            differ.append(f"last line lacks the outcome: {head[:80]}")
        if text and " ".join(text.split()) not in " ".join(output.split()):
            differ.append(f"view lacks: {text[:80]}")
        if outcome["verdict"] == "failed":
            if not _same(end, told):
                differ.append(f"explain: {told}; outcome: {end}")
            if trouble and not _same(trouble, end):
                differ.append(f"outcome: {end}; story: {trouble}")
        elif outcome["verdict"] == "stopped":
            trouble = None if trouble and trouble.cause == "ended-from-outside" else trouble
            before = re.search(r"before that: (.*)", shown.get("what") or "")
            if trouble and (before is None or before[1] != text):
                differ.append(f"explain of the stopped run: {before and before[1][:80]}; story: {text[:80]}")
            if trouble and (trouble.rank, trouble.node) != (told.rank, told.node):
                differ.append(f"explain of the stopped run: first {told}; story: {trouble}")
        else:
            differ.append(f"verdict {outcome['verdict']}")
        return differ

    def _trouble(self, folder: Path) -> tuple[Place | None, str]:
        """The first trouble of the last attempt in timeline.jsonl, unless a later line takes it back, and its text."""
        file = self._home(folder) / "runs" / self.run / "timeline.jsonl"
        rows: list[Row] = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        place, text = None, ""
        for row in rows:
            if row.get("restart") or row.get("moves"):
                place, text = None, ""
            if (trouble := row.get("trouble")) and place is None:
                place, text = Place(trouble["cause"], trouble["rank"], trouble["node"]), row["text"].partition("\n")[0]
        return place, text

    def _explain(self, folder: Path) -> Row:
        line = [*FAB_THERE, "explain", self.run, "--json"]
        ran = subprocess.run(
            line, cwd=folder, env=self.rack.environment, capture_output=True, text=True, timeout=120, check=False
        )
        return json.loads(ran.stdout or "{}")

    def _page(self, folder: Path) -> str:
        line = [*FAB_THERE, "report", "--run", self.run]
        subprocess.run(line, cwd=folder, env=self.rack.environment, capture_output=True, timeout=120, check=False)
        return html.unescape((self._home(folder) / "runs" / self.run / "report.html").read_text())


def _who(first: str) -> tuple[int | None, str]:
    if match := re.fullmatch(r"rank (\d+)(?: on (\S+))?", first):
        return int(match[1]), match[2] or ""
    return None, first


def _same(one: Place, other: Place) -> bool:
    return one == other


def drawn(seed: int, count: int, on_hosts: bool) -> list[tuple[str, str, int]]:
    """Draw `count` faults as (kind, fault, culprit), each at most once for a kind: faults of hosts, or of ranks."""
    for file in FILES:
        importlib.import_module(f"benchmarks.breaks.{file}")
    draw = random.Random(seed)
    faults = [fault for fault in FAULTS.values() if "harmless" not in fault.cause]
    faults = [fault for fault in faults if on_hosts == fault.needs_hosts]
    pairs = [(kind, fault.name) for fault in faults for kind in fault.kinds]
    return [(*pair, draw.randrange(3)) for pair in draw.sample(pairs, len(pairs))][:count]


def main() -> None:
    """Draw faults, break runs, compare the places, and print a row for each."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seed", type=int, default=38)
    asked.add_argument("--count", type=int, default=40)
    asked.add_argument("--skip", type=int, default=0)
    asked.add_argument("--rack", default="")
    asked.add_argument("--image", default="muster-trainer:cpu")
    asked.add_argument("--only", action="append", default=[])
    given = asked.parse_args()
    rack, agree, right, victims = Rack(given.rack, len(HOSTS), given.image), 0, 0, 0
    draws = list(enumerate(drawn(given.seed, given.skip + given.count, bool(given.rack))))[given.skip :]
    draws = [draw for draw in draws if not given.only or draw[1][1] in given.only]
    if not given.skip:
        print("| kind | fault | culprit | first words | after | places |\n|---|---|---|---|---|---|", flush=True)
    for number, (kind, name, culprit) in draws:
        began = time.time()
        story = Story(rack, FAULTS[name], kind, culprit, as_json=number % 3 == 2)
        told = attempt(story)
        agree, right = agree + (told.end == "agree"), right + (told.verdict == "right")
        victims += told.verdict == "WRONG"
        shown = (told.words or "(nothing)").replace("|", "/")[:200]
        how = " (json)" if story.as_json else ""
        row = f"| {kind}{how} | {name} | {HOSTS[story.culprit]} | {told.verdict}: {shown} | {told.after_s:.1f} s "
        print(f"{row}| {told.end} | {time.time() - began:.0f} s", flush=True)
    print(f"agree {agree} of {len(draws)}; first words right {right} of {len(draws)}; wrong {victims}")


if __name__ == "__main__":
    main()
