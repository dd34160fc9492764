"""A script follows preflight's fixes to the letter: is the cluster green afterwards?

python -m benchmarks.preflight_fixes                  each fault that stops a run, into docs/evidence/preflight-fixes.md
python -m benchmarks.preflight_fixes --only NAME...   some of them, and nothing is written
python -m benchmarks.preflight_fixes --drawn 50       faults drawn at random (lab/drawn/), and nothing is written

A script breaks hosts of the laboratory (lab/faults/), runs preflight, takes the commands out of the fix that it prints
(lab/fixes.py), runs them on the host that they name, and runs preflight again: up to three times, for several faults.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from lab import fault, fixes, job, network, trial
from lab.drawn import score
from lab.drawn.draw import draw
from lab.network import HOSTS_FILES

HOME = Path(__file__).resolve().parents[1]
PAGE = HOME / "lab/scores/preflight-fixes.md"
AT_ONCE, MOST_TIMES = 4, 3
GREEN, RED, NONE, MISSED = "green", "not green", "no command", "no fault said"
# The commands fixed their fault; of two faults the other one is left, and no command on a host fixes it.
OTHER = "another is left"
# Real hosts have a service that sets their clocks; the laboratory has none.
NOT_HERE, ELSEWHERE = ("sudo timedatectl",), "not to be tried here"
LETTERS = {"nofile": "n", "fsize": "f", "cpu": "t", "as": "v", "data": "d", "stack": "s"}


_HEAD = """\
# Do preflight's fixes work?

Made by `python -m benchmarks.preflight_fixes`: a script breaks hosts of the fault laboratory in each way that stops or
slows real torchrun (`lab/faults/`), asks preflight, takes the commands out of the fix that it prints, types them on the
hosts that they name, and asks again, up to three times. The hosts are network namespaces: `hostnamectl` and `interface`
are done as the laboratory does them. Nobody mends a cable or a clock here.
"""


def of_case(case):
    """A fault of lab/faults, in the form that `follow` accepts."""
    return case.id, lambda: fault.laboratory(case), lambda lab: fault.inject(case, lab), case.fault


def of_draw(drawn):
    """A draw of lab/drawn, in the form that `follow` accepts."""
    return drawn.id, drawn.lab, drawn.break_hosts, drawn.cast.run


def follow(identity, laboratory, inject, run):
    """Follow preflight's fixes for one fault.

    Returns what preflight said, how it ended, and which commands were run.
    """
    typed, said, tried_on = [], [], set()
    with laboratory() as lab:
        inject(lab)
        for _ in range(MOST_TIMES):
            verdict, _ = trial.preflight(lab, run)
            if verdict.ok:
                break
            said.append((verdict.cause, verdict.fix))
            commands = fixes.steps(verdict.fix)
            run, set_ = _set(lab, run, fixes.settings(verdict.fix))
            typed += set_
            tried_on |= {verdict.cause} if commands or set_ else set()
            if not commands and not set_:
                break
            for step in (step for step in commands if not step.other):
                typed += _typed(lab, step)
            for step in (step for step in commands if step.other):
                if trial.preflight(lab, run)[0].ok:
                    break
                typed += _typed(lab, step)
        else:
            verdict, _ = trial.preflight(lab, run)
    if not verdict.ok and any(line.partition(": ")[2].startswith(NOT_HERE) for line in typed):
        typed, end = [], ELSEWHERE
    else:
        mended = tried_on and verdict.cause not in tried_on and not fixes.steps(verdict.fix)
        end = GREEN if verdict.ok else OTHER if mended else RED if typed else NONE
    cause, fix = said[0] if said else ("", "")
    return {"id": identity, "cause": cause, "fix": fix, "end": end if said else MISSED, "typed": typed,
            "left": "" if verdict.ok else f"{verdict.cause}: {verdict.fix}"}  # fmt: skip


def _typed(lab, step):
    """Run the commands on a host, which has no systemd, and whose /etc/hosts is a file of the laboratory."""
    host = next(host for host in lab.hosts if host.name == step.host)
    for command in step.commands:
        line = command.replace("sudo ", "").replace("/etc/hosts", str(HOSTS_FILES / host.space / "hosts"))
        if line.startswith("hostnamectl set-hostname "):
            host.setup = [entry for entry in host.setup if not entry.startswith("hostname ")]
            host.setup.append(f"hostname {line.split()[2]}")
            line = line.partition(" && ")[2] or "true"
        if line.startswith("export "):
            host.environment |= dict(pair.split("=", 1) for pair in line.split()[1:])
            continue
        done = host.run("sh", "-c", line)
        if done.returncode:
            return [f"{step.host}: {command} ({done.stderr.strip()[:120]})"]
    return [f"{step.host}: {command}" for command in step.commands]


def _set(lab, run, settings):
    """Apply the settings of a fix to the whole run; returns the run, and the settings in words."""
    for name, value in settings.items():
        kind, _, what = name.partition(" ")
        if kind == "interface":
            host = next(host for host in lab.hosts if host.name == what)
            host.environment |= {"GLOO_SOCKET_IFNAME": value, "NCCL_SOCKET_IFNAME": f"={value}"}
        elif kind == "ulimit":
            for host in lab.hosts:
                host.setup = [line for line in host.setup if not line.startswith(f"ulimit -{LETTERS.get(what)}")]
        elif what:
            host = next(host for host in lab.hosts if host.name == what)
            host.environment |= {kind: value}
            host.environment = {known: given for known, given in host.environment.items() if given}
        else:
            run = replace(run, endpoint=value.strip("[]"))
    return run, [f"{name} = {value}" for name, value in settings.items()]


def tried(broken):
    """Call `follow`, with a line on standard error."""
    try:
        done = follow(*broken)
    except Exception as failed:  # after a failed trial, the benchmark continues with the others
        done = {"id": broken[0], "cause": "", "fix": "", "end": MISSED, "typed": [], "left": repr(failed)}
    print(
        f"  .. {done['end']:13} {done['id']} {done['cause']}: {done['fix'][:90]} {done['left'][:200]}", file=sys.stderr
    )
    return done


def page(results):
    """The text of the page."""
    counts = Counter(one["end"] for one in results)
    helped, said = counts[GREEN] + counts[OTHER], len(results) - counts[MISSED]
    commands = helped + counts[RED]
    lines = [
        *_HEAD.splitlines(), "",
        f"{time.strftime('%Y-%m-%d')}, {len(results)} kinds of fault, {said} of them refused.", "",
        "| figure | measured | reach |", "|---|---|---|",
        f"| fixes with a command: its fault is gone | {score.share(helped, commands)} | ≥ 95 % |",
        f"| ... and all is green | {score.share(counts[GREEN], commands)} |  |",
        f"| all faults: green after the fix | {score.share(counts[GREEN], said)} |  |",
        f"| the fix is no command: it asks a person | {score.share(counts[NONE], said)} |  |",
        f"| the fix sets a clock, which the laboratory has not | {score.share(counts[ELSEWHERE], said)} |  |", "",
        "## Not green after the commands, or no command", "",
        "| fault | said | fix | end |", "|---|---|---|---|",
        *(f"| {one['id']} | {one['cause']} | {one['fix'].replace('|', chr(92) + '|')} | {one['end']}"
          f"{'; then ' + one['left'].partition(':')[0] if one['end'] in (RED, OTHER) else ''} |"
          for one in results if one["end"] in (RED, OTHER, NONE, ELSEWHERE)), "",
        "## Green", "", "| fault | said | typed |", "|---|---|---|",
        *(f"| {one['id']} | {one['cause']} | `{'`, `'.join(one['typed']).replace('|', chr(92) + '|')}` |"
          for one in results if one["end"] == GREEN), "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Measure, and write the page."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--drawn", type=int, default=0, help="so many draws that are meant to break a run, instead")
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = asked.parse_args()
    only = given.only
    if lacking := network.missing():
        sys.exit(f"error: {lacking}")
    truth = fault.truths()
    every = [fault.case(kind, kind.counts[-1]) for kind in fault.catalogue().values()]
    every = [case for case in every if truth.get(case.id, {}).get("outcome", job.FAILS) != job.FINE]
    wanted = [case for case in every if not only or case.fault.name in only]
    broken = [of_case(case) for case in wanted]
    if given.drawn:
        broken = [of_draw(draw(given.seed, 2 * number)) for number in range(given.drawn)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(tried, broken))
    print(page(results))
    if not only and not given.drawn:
        PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
