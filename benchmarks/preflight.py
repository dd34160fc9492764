"""Preflight under every fault of lab/ and on healthy clusters, beside torchrun alone and a plain `nc -vz`.

    make bench-preflight                             all of it, into docs/evidence/preflight-score.md
    python -m benchmarks.preflight --only NAME ...   some faults, nothing written
    python -m benchmarks.preflight --first-look      faults written later, before a rule is mended: kept as said
What torchrun does under each fault was measured before: python -m benchmarks.preflight_truth
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import (
    preflight_ablation,
    preflight_bandwidth,
    preflight_drawn,
    preflight_explained,
    preflight_growth,
    preflight_later,
    preflight_leftovers,
    preflight_score,
    preflight_truth,
)
from deploy.preflight import judge
from lab import fault, healthy, job, network, trial

AT_ONCE = 2
PAGE = Path(__file__).resolve().parents[1] / "lab/scores/preflight-score.md"


@dataclass(frozen=True)
class Trial:
    """One fault on so many hosts: what was right to say, and what was said."""

    id: str
    name: str
    count: int
    truth: str
    expected: str
    where: str
    said: str
    said_where: str
    right: bool
    right_where: bool
    alarm: bool
    seconds: float
    nc_alarms: bool
    torchrun_names: bool
    all_named: bool
    later: bool
    lost: tuple[str, ...] = ()


def try_fault(case, truth):
    """One trial of a case; a crash of ours is an answer that is wrong."""
    with fault.laboratory(case) as lab:
        expected = fault.inject(case, lab)
        expected = fault.Expected() if truth == job.FINE else expected
        began = time.monotonic()
        answers = trial.answers(lab, case.fault)
        verdict, seconds = judge(answers), time.monotonic() - began
        nc = trial.nc(lab, case.fault)
        right, outside = trial.says_the_cause(verdict, expected), None
        if right and expected.cause and preflight_ablation.differs_outside(lab):
            outside = trial.answers(lab, case.fault, inside=False)
    where = right and (not expected.cause or trial.says_where(verdict, expected))
    return Trial(
        case.id, case.fault.words, case.count, truth, expected.cause, expected.where, verdict.cause,
        ", ".join(verdict.hosts), right, where, not verdict.ok, round(seconds, 2), nc.alarms,
        trial.torchrun_names(preflight_truth.output(case), expected),
        where and trial.says_all(verdict, expected), case.fault.later,
        tuple(preflight_ablation.lost(answers, expected, outside)) if right and expected.cause else (),
    )  # fmt: skip


def try_healthy(cluster):
    """Faults alarmed on a cluster that is well: (name, causes, seconds)."""
    with network.Lab(cluster.count, cluster.families) as lab:
        cluster.peculiar(lab)
        verdict, seconds = trial.preflight(lab, cluster)
    return cluster.name, [finding.cause for finding in (*verdict.faults, *verdict.unknown)], round(seconds, 2)


def timed(count, dropped=False):
    """Seconds of one preflight of `count` hosts, nothing else running; with the data ports dropped on one of them."""
    run = fault.Fault("timed", "", lambda lab, host: None)
    with network.Lab(count) as lab:
        if dropped:
            lab.hosts[-1].firewall("INPUT -i eth0 -p tcp -j DROP")
        return round(trial.preflight(lab, run)[1], 2)


def everything(cases):
    """All trials of faults, two at a time."""
    truths = preflight_truth.known()

    def measured(case):
        trial = try_fault(case, truths[case.id]["outcome"])
        mark = "right" if trial.right_where else "where" if trial.right else "WRONG"
        print(f"{mark} {trial.id:58} {trial.truth:5} wanted {trial.expected or 'nothing':22} {trial.where:16} "
              f"said {trial.said or 'nothing'} {trial.said_where}", flush=True)  # fmt: skip
        return trial

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(measured, [case for case in cases if case.id in truths]))


def whole(faults):
    """All measurements, and the page."""
    trials = [asdict(each) for each in everything(fault.cases(faults))]
    more = preflight_bandwidth.rows(preflight_bandwidth.measure())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        well = list(pool.map(try_healthy, healthy.clusters()))
    stops, left = preflight_leftovers.measure()
    more += preflight_explained.rows(preflight_explained.score())
    more.append(("stopped (Ctrl-C, `kill -9`) at 8 moments each, leftovers", f"{left} of {stops}", "0", left == 0))
    later = preflight_later.section(preflight_later.known(), [each for each in trials if each["later"]])
    times = {"load": os.getloadavg()[0], 8: min(timed(8) for _ in range(3)), 64: timed(64)}
    times["dropped"] = timed(8, dropped=True)
    times["grown"] = preflight_growth.measure(quick=False)["rows"][0]
    drawn, lists = preflight_drawn.written(), lists_of(PAGE.read_text())
    PAGE.write_text(preflight_score.page(trials, well, times, more, later))
    preflight_drawn.write(drawn)
    PAGE.write_text(with_lists(PAGE.read_text(), lists))
    print(f"wrote {PAGE.name}")


def lists_of(page):
    """What people wrote of the lists of others: it stands between the draws and the log of NCCL."""
    return page.partition(preflight_drawn.END)[2].partition(preflight_drawn.NEXT)[0]


def with_lists(page, lists):
    """The page with that in its place."""
    head, end, rest = page.partition(preflight_drawn.END)
    return head + end + lists + preflight_drawn.NEXT + rest.partition(preflight_drawn.NEXT)[2]


def main():
    """Measure, and write the page."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--first-look", action="store_true")
    given = asked.parse_args()
    if lacking := network.missing() or ("" if shutil.which("nc") else "no nc: install netcat-openbsd"):
        sys.exit(f"error: {lacking}")
    faults = list(fault.catalogue().values())
    if given.first_look:
        new = [
            case
            for case in fault.cases(each for each in faults if each.later)
            if case.id not in preflight_later.known()
        ]
        preflight_later.keep([asdict(each) for each in everything(new)])
    elif given.only:
        everything(fault.cases(each for each in faults if each.name in given.only))
    else:
        whole(faults)


if __name__ == "__main__":
    main()
