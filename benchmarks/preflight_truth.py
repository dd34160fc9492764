"""What real torchrun does under each fault of tests/lab/: the truth that preflight is measured against.

    python -m benchmarks.preflight_truth                 measure what tests/lab/truth.json lacks
    python -m benchmarks.preflight_truth --again NAME    measure these faults again

Each case is a job of tests/lab/job.py. What the failed ones said is kept under tests/lab/recordings/.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab import fault, job, network

HERE = Path(__file__).resolve().parents[1]
TRUTH, RECORDINGS = HERE / "tests/lab/truth.json", HERE / "tests/lab/recordings"
COUNTS, AT_ONCE, MOST_KEPT = (2, 3, 4, 5), 2, 12_000
HEALTHY = fault.Fault("healthy", "", lambda lab, host: None, on="first")
_writing = threading.Lock()


def known():
    """What was measured before, by case."""
    return json.loads(TRUTH.read_text()) if TRUTH.exists() else {}


def said(case):
    """What a failed job said, by host."""
    return {path.stem: path.read_text() for path in (RECORDINGS / case.id.replace("/", "-")).glob("*.log")}


def measure(case, folder, healthy_round_s=None):
    """One real job under one fault."""
    with fault.laboratory(case) as lab:
        if case.fault is not HEALTHY:
            fault.inject(case, lab)
        return job.run(lab, case.fault, Path(folder), healthy_round_s)


def keep(case, ran):
    """Into truth.json, and the output of a failed job beside it."""
    with _writing:
        every = known()
        every[case.id] = {"outcome": ran.outcome, "codes": ran.codes, "round_s": ran.round_s, "seconds": ran.seconds}
        TRUTH.write_text(
            "".join(["{\n", ",\n".join(f'"{id}": {json.dumps(every[id])}' for id in sorted(every)), "\n}\n"])
        )
    folder = RECORDINGS / case.id.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    if ran.outcome == job.FAILS and any(text.strip() for text in ran.texts.values()):
        folder.mkdir(parents=True)
        for host, text in ran.texts.items():
            (folder / f"{host}.log").write_text(_shorter(text))


def _shorter(text):
    """Without the paths of this machine, and not endless."""
    text = re.sub(r"[^\s\"']*/(site-packages|lib/python[\d.]+)/", r"\1/", text.replace(str(HERE), "~"))
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("frame #"))
    return text if len(text) <= MOST_KEPT else text[: MOST_KEPT // 2] + "\n[...]\n" + text[-MOST_KEPT // 2 :]


def main():
    """Measure what is lacking, or what was asked for."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--again", nargs="*", default=[])
    again = asked.parse_args().again
    if lacking := network.missing():
        sys.exit(f"error: {lacking}")
    before = known()
    for case in (fault.case(HEALTHY, count) for count in COUNTS):
        if case.id not in before:
            with tempfile.TemporaryDirectory() as folder:
                keep(case, measure(case, folder))
    healthy = {count: known()[fault.case(HEALTHY, count).id]["round_s"] for count in COUNTS}
    every = fault.cases(fault.catalogue().values())
    wanted = [case for case in every if case.fault.name in again or (not again and case.id not in before)]

    def one(case):
        with tempfile.TemporaryDirectory() as folder:
            ran = measure(case, folder, healthy[case.count])
        keep(case, ran)
        print(f"{case.id:60} {ran.outcome:6} {ran.seconds:5.1f} s  {ran.codes} {ran.round_s or ''}", flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(one, case) for case in wanted]:
            done.result()


if __name__ == "__main__":
    main()
