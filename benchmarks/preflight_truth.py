"""What real torchrun does under each fault of lab/: the truth against which preflight is measured.

    python -m benchmarks.preflight_truth                 measure what is missing in lab/truth.json
    python -m benchmarks.preflight_truth --again NAME    measure these faults again

Each case is a job of lab/job.py. The output of failed jobs is kept in lab/recordings.tar.xz.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import fault, job, network, recordings

HERE = Path(__file__).resolve().parents[1]
COUNTS, AT_ONCE, MOST_KEPT = (2, 3, 4, 5), 2, 12_000
HEALTHY = fault.Fault("healthy", on="first")
_writing = threading.Lock()


def output(case):
    """The output of a failed job, by host."""
    return recordings.load().get(_recorded_as(case), {})


def _recorded_as(case):
    return case.id.replace("/", "-")


def measure(case, folder, healthy_round_s=None):
    """Run one real job under one fault."""
    with fault.laboratory(case) as lab:
        if case.fault is not HEALTHY:
            fault.inject(case, lab)
        return job.run(lab, case.fault, Path(folder), healthy_round_s)


def keep(case, ran):
    """Write the result of a job to truth.json, and the output of a failed one to the recordings."""
    with _writing:
        every = fault.truths()
        every[case.id] = {"outcome": ran.outcome, "codes": ran.codes, "round_s": ran.round_s, "seconds": ran.seconds}
        fault.TRUTH.write_text(
            "".join(["{\n", ",\n".join(f'"{id}": {json.dumps(every[id])}' for id in sorted(every)), "\n}\n"])
        )
        cases = recordings.load()
        cases.pop(_recorded_as(case), None)
        if ran.outcome == job.FAILS and any(text.strip() for text in ran.texts.values()):
            cases[_recorded_as(case)] = {host: _shorter(text) for host, text in ran.texts.items()}
        recordings.store(cases)


def _shorter(text):
    """Shorten a long text, and remove the paths of this machine."""
    text = re.sub(r"[^\s\"']*/(site-packages|lib/python[\d.]+)/", r"\1/", text.replace(str(HERE), "~"))
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("frame #"))
    return text if len(text) <= MOST_KEPT else text[: MOST_KEPT // 2] + "\n[...]\n" + text[-MOST_KEPT // 2 :]


def main():
    """Measure what is missing, or what was asked for."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--again", nargs="*", default=[])
    again = asked.parse_args().again
    if lacking := network.missing():
        sys.exit(f"error: {lacking}")
    before = fault.truths()
    for case in (fault.case(HEALTHY, count) for count in COUNTS):
        if case.id not in before:
            with tempfile.TemporaryDirectory() as folder:
                keep(case, measure(case, folder))
    healthy = {count: fault.truths()[fault.case(HEALTHY, count).id]["round_s"] for count in COUNTS}
    every = fault.cases(fault.catalogue().values())
    wanted = [case for case in every if case.fault.name in again or (not again and case.id not in before)]

    def measured_case(case):
        with tempfile.TemporaryDirectory() as folder:
            ran = measure(case, folder, healthy[case.count])
        keep(case, ran)
        print(f"{case.id:60} {ran.outcome:6} {ran.seconds:5.1f} s  {ran.codes} {ran.round_s or ''}", flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(measured_case, case) for case in wanted]:
            done.result()


if __name__ == "__main__":
    main()
