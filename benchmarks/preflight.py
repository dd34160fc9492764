"""Preflight under every fault of lab/, compared with torchrun alone and a plain `nc -vz`; and on healthy clusters.

    make bench-preflight                                      into lab/scores/ (root, a quarter of an hour)
    python -m benchmarks.preflight --only NAME ...            some faults of lab/faults/; nothing is written
    python -m benchmarks.preflight --rack NAME [--only ...]   faults of SSH, engines and images, on a rack of three
    python -m benchmarks.preflight --recorded                 faults of GPUs and RDMA, in recordings

What torchrun does under each fault is measured separately: python -m benchmarks.preflight_truth
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks import preflight_truth, score_page
from deploy.causes.finding import FAULT
from lab import fault, gpu_hosts, healthy, job, network, rack_faults, trial
from lab.rack import Rack

AT_ONCE, RACK_COUNTS = 2, (2, 3)


@dataclass(frozen=True)
class Trial:
    """One fault on `count` hosts: the right answer, and preflight's answer.

    The last two fields: whether `nc` alarms, and whether torchrun names the cause.
    """

    name: str
    count: int
    expected: str
    where: str
    said: str
    said_where: str
    right: bool
    right_where: bool
    alarm: bool
    seconds: float = 0.0
    truth: str = job.FAILS
    nc_alarms: bool = False
    torchrun_names: bool = False


def try_fault(case: fault.Case, truth: str) -> Trial:
    """Try one case of lab/faults."""
    with fault.laboratory(case) as lab:
        expected = fault.inject(case, lab)
        expected = fault.Expected() if truth == job.FINE else expected
        verdict, seconds = trial.preflight(lab, case.fault)
        nc = trial.nc(lab, case.fault)
    right = trial.says_the_cause(verdict, expected)
    where = right and (not expected.cause or trial.says_where(verdict, expected))
    if expected.parts:
        where = where and trial.says_all(verdict, expected)
    return Trial(
        case.fault.words, case.count, expected.cause, expected.where, verdict.cause, ", ".join(verdict.hosts),
        right, where, not verdict.ok, seconds, truth, nc.alarms,
        trial.torchrun_names(preflight_truth.output(case), expected),
    )  # fmt: skip


def try_on_rack(kind: rack_faults.Trouble, rack: Rack, count: int) -> Trial:
    """Try one fault of lab/rack_faults.py on `count` hosts of a rack."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = rack_faults.FaultyHosts(rack, rack.hosts[:count], folder)
        host = cluster.hosts[kind.place(count)]
        with kind.on_host(cluster, host) as words:
            began = time.monotonic()
            _, verdict = cluster.preflight(*words)
            seconds = time.monotonic() - began
    hosts = cluster.hosts if kind.on == "all" else [host]
    right = rack_faults.is_right(kind, verdict)
    return Trial(
        kind.words, count, kind.cause, ", ".join(hosts) if kind.cause else "", verdict["cause"],
        ", ".join(sorted(verdict["hosts"])), right, right and rack_faults.names_where(kind, verdict, hosts),
        verdict["cause"] != "", seconds,
    )  # fmt: skip


def try_recordings() -> Iterable[Trial]:
    """Try each recorded fault of GPUs and RDMA, and healthy hosts that only look odd.

    A warning is right if training would run.
    """
    for number, case in enumerate(gpu_hosts.CASES):
        for count in RACK_COUNTS:
            verdict, hosts = gpu_hosts.tried(case, count, number % count)
            first = gpu_hosts.first(verdict, case.level)
            cause, where = (first.cause, first.hosts) if first else ("", ())
            right = cause == case.cause and verdict.ok != (case.level == FAULT)
            yield Trial(case.name, count, case.cause, ", ".join(hosts), cause, ", ".join(where), right,
                        right and where == hosts, not verdict.ok)  # fmt: skip
    for name, base, section, old, new in gpu_hosts.WELL:
        well = gpu_hosts.sections(base)
        odd = well if old == "*" and new is None else gpu_hosts.changed(well, section, old, new)
        verdict = gpu_hosts.judged([odd, well, odd])
        yield Trial(name, 3, "", "", verdict.cause, ", ".join(verdict.hosts), verdict.ok, verdict.ok, not verdict.ok)


def try_healthy(cluster: healthy.Healthy) -> Trial:
    """Try a healthy cluster that only looks odd."""
    with network.Lab(cluster.count, cluster.families) as lab:
        cluster.peculiar(lab)
        verdict, seconds = trial.preflight(lab, cluster)
    where = ", ".join(verdict.hosts)
    return Trial(cluster.name, cluster.count, "", "", verdict.cause, where, verdict.ok, verdict.ok, not verdict.ok,
                 seconds, job.FINE)  # fmt: skip


def seconds_of(count: int, dropped: bool = False) -> float:
    """Seconds of one preflight of `count` hosts while nothing else runs.

    With `dropped`, one host drops all data ports.
    """
    with network.Lab(count) as lab:
        if dropped:
            lab.hosts[-1].firewall("INPUT -i eth0 -p tcp -j DROP")
        return trial.preflight(lab, fault.Fault("timed"))[1]


def tried(some: Iterable[Callable[[], Trial]], at_once: int = AT_ONCE) -> list[Trial]:
    """Run trials, `at_once` in parallel, and print a line for each."""

    def one(make: Callable[[], Trial]) -> Trial:
        done = make()
        mark = "right" if done.right_where else "where" if done.right else "WRONG"
        print(f"{mark} {done.name:58} {done.count} wanted {done.expected or 'nothing'} {done.where}; "
              f"said {done.said or 'nothing'} {done.said_where}, {done.seconds:.1f} s", flush=True)  # fmt: skip
        return done

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, some))


def of_laboratory(only: list[str]) -> list[Trial]:
    """Try every fault of lab/faults whose truth is known, or only some."""
    kinds = [kind for kind in fault.catalogue().values() if not only or kind.name in only]
    truths = fault.truths()
    known = [case for case in fault.cases(kinds) if case.id in truths]
    return tried(lambda case=case: try_fault(case, truths[case.id]["outcome"]) for case in known)


def of_rack(rack: Rack, only: list[str]) -> list[Trial]:
    """Try every fault of lab/rack_faults.py, or some, one after the other, because they share the hosts."""
    kinds = [kind for kind in rack_faults.TROUBLES.values() if not only or kind.name in only]
    return tried((lambda k=k, n=n: try_on_rack(k, rack, n) for k in kinds for n in RACK_COUNTS), 1)


def bring_image(rack: Rack) -> None:
    """Load the image of the trials on the hosts that do not have it, without SSH, which would encrypt gigabytes."""
    for name in map(rack.container, rack.hosts):
        inside = ["docker", "exec", "-i", name, "docker"]
        if subprocess.run([*inside, "image", "inspect", rack_faults.IMAGE], capture_output=True).returncode:
            save = subprocess.Popen(["docker", "save", rack_faults.BASE], stdout=subprocess.PIPE)
            subprocess.run([*inside, "load", "--quiet"], stdin=save.stdout, check=True)
            subprocess.run([*inside, "tag", rack_faults.BASE, rack_faults.IMAGE], check=True)


def share(some: list[Trial], of: list[Trial]) -> str:
    """The number, and the share of all."""
    return f"{len(some)} of {len(of)} ({100 * len(some) / len(of):.1f} %)" if of else "none tried"


def figures(trials: list[Trial], well: list[Trial]) -> list[str]:
    """The rows of a table about faults and healthy clusters."""
    real = [each for each in trials if each.expected]
    well = [*well, *(each for each in trials if not each.expected)]
    right = [each for each in real if each.right]
    kinds = len({each.name for each in real})
    return [
        "| figure | measured | reach |",
        "|---|---|---|",
        f"| faults ({kinds} kinds), right cause named first | {share(right, real)} | ≥ 95 % |",
        f"| right host, pair or direction, of those | {share([one for one in right if one.right_where], right)} "
        "| ≥ 97 % |",
        f"| well or harmless, with an alarm | {share([one for one in well if one.alarm], well)} | 0 |",
    ]


def misses(trials: list[Trial]) -> list[str]:
    """The wrong answers, as lines of a table."""
    lines = ["| fault | hosts | torchrun | expected | said |", "|---|---|---|---|---|"]
    for each in trials:
        if not each.right_where:
            lines.append(f"| {each.name} | {each.count} | {each.truth} | {each.expected or 'nothing'} {each.where} "
                         f"| {each.said or 'nothing'} {each.said_where} |")  # fmt: skip
    return lines


def section(trials: list[Trial], well: list[Trial]) -> str:
    """The section of the page about the laboratory."""
    real, harmless = [one for one in trials if one.expected], [one for one in trials if not one.expected]
    names, nc = [one for one in real if one.torchrun_names], [one for one in real if one.nc_alarms]
    eight = min(seconds_of(8) for _ in range(3))
    return "\n".join([
        "## Every fault of the laboratory", "",
        f"{time.strftime('%Y-%m-%d')}, by `make bench-preflight`. Where real torchrun trains (`lab/truth.json`),",
        "an alarm is an error of ours, whatever was broken.", "",
        *figures(trials, well),
        f"| 8 hosts, healthy; one of them drops all; 64 hosts | {eight:.2f}, {seconds_of(8, dropped=True):.2f}, "
        f"{seconds_of(64):.2f} s | ≤ 2, ≤ 5 s; - |", "",
        "| beside it | points at a fault | names the cause | harmless, alarmed |", "|---|---|---|---|",
        f"| `muster preflight` | {share([one for one in real if one.alarm], real)} "
        f"| {share([one for one in real if one.right], real)} "
        f"| {share([one for one in harmless if one.alarm], harmless)} |",
        f"| `torchrun` alone, after up to 50 s | {share(real, real)} | {share(names, real)} | - |",
        f"| `nc -vz` to the rendezvous | {share(nc, real)} | 0 "
        f"| {share([one for one in harmless if one.nc_alarms], harmless)} |", "",
        "Not right:", "", *misses([*trials, *well]), ""])  # fmt: skip


def main() -> None:
    """Try what was asked for; only a trial of the whole laboratory is written to the page."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--rack", default="")
    asked.add_argument("--recorded", action="store_true")
    given = asked.parse_args()
    if given.recorded:
        trials = list(try_recordings())
    elif given.rack:
        bring_image(rack := Rack(given.rack, 3))
        trials = of_rack(rack, given.only)
    elif lacking := network.missing() or ("" if shutil.which("nc") else "no nc: install netcat-openbsd"):
        sys.exit(f"error: {lacking}")
    else:
        trials = of_laboratory(given.only)
    if given.recorded or given.rack or given.only:
        print("\n".join([*figures(trials, []), "", *misses(trials)]))
        return
    well = tried(lambda cluster=cluster: try_healthy(cluster) for cluster in healthy.clusters())
    score_page.write("laboratory", section(trials, well))
    print(f"wrote {score_page.PAGE.name}, load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
