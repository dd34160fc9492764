"""The score of preflight as a page. Text only: what was measured comes in, its page goes out."""

from __future__ import annotations

from benchmarks import preflight_nccl, preflight_rack
from benchmarks.preflight_ablation import INSIDE, PARTS
from lab import job

NOT_MEASURED = """\
- Real GPUs and RDMA devices: the rules for them have seen recordings alone.
- NCCL: no GPU here. Every truth above is gloo's.
- A full connection table, a limit on processes, VLAN devices and `nft`: this kernel has them for the machine only, not
  for a root user, or not at all.
- Probing in the container: the laboratory's hosts have none. Outside of it means here: without the environment, the
  limits and the mounts that the run has; the host's names, clock and network stay.
- All rules know all faults of this page by now; what they make of one they do not know is the first look above.
  Where two causes say the same of what was done (`also` in `lab/faults/`), either counts as right; of two hosts,
  both ends of a broken path do.
"""


def page(trials, well, times, more, later):
    """The whole page. trials: of faults, as dicts; well: healthy clusters; times: seconds by count; more: figures;

    later: the part on faults written after the rules.
    """
    real = [trial for trial in trials if trial["expected"]]
    harmless = [trial for trial in trials if not trial["expected"]]
    parts = [_HEAD, preflight_nccl.SECTION, _figures(trials, real, well, times, more), _beside(real, harmless), later,
             _earned(real),
             _list("Faults, one by one", real), _list("Broken in some way, and torchrun trains all the same", harmless),
             _wrong(well), preflight_rack.sections(), "## Not measured here\n\n" + NOT_MEASURED]  # fmt: skip
    return "\n".join(parts)


_HEAD = """\
# How good is preflight?

Measured in the fault laboratory (`lab/`: hosts as network namespaces, real probes, real torchrun). Made by
`make bench-preflight`; do not edit by hand. What torchrun really does under each fault is in `lab/truth.json`,
made by `python -m benchmarks.preflight_truth`: torch 2.13 on CPU with gloo, an `all_reduce` of 4 MB on 2 or
more hosts, 15 s patience instead of 60 s and 30 min, ended after 50 s. **Where torchrun trains fine, an alarm is our
error**, whatever was broken. Faults are tried on 2 and on 3 hosts, those written later on 2 to 5; on which differs.
"""


def _share(some, all_):
    return f"{len(some)} of {len(all_)} ({100 * len(some) / len(all_):.1f} %)" if all_ else "none tried"


def _met(good):
    return "met" if good else "**not met**"


def _figures(trials, real, well, times, more):
    right = [trial for trial in real if trial["right"]]
    where = [trial for trial in right if trial["right_where"]]
    kinds = len({trial["name"] for trial in real})
    green = [trial for trial in trials if not trial["alarm"]]
    red = [trial for trial in trials if trial["alarm"]]
    green_good = [trial for trial in green if trial["truth"] == job.FINE]
    red_good = [trial for trial in red if trial["truth"] != job.FINE]
    alarmed = [name for name, causes, _ in well if causes]
    grown = times["grown"]
    rows = [
        (f"faults that stop or slow torchrun ({kinds} kinds), right cause named first", _share(right, real), "≥ 95 %",
         len(right) >= 0.95 * len(real)),
        ("right host, pair or direction named, of those", _share(where, right), "≥ 97 %",
         len(where) >= 0.97 * len(right)),
        ("healthy clusters that vary, with an alarm", f"{len(alarmed)} of {len(well)}", "0 in ≥ 100",
         not alarmed and len(well) >= 100),
        ("green, and torchrun works", _share(green_good, green), "≥ 99 %", len(green_good) >= 0.99 * len(green)),
        ("red, and torchrun fails or is 3 × slower", _share(red_good, red), "≥ 97 %", len(red_good) >= 0.97 * len(red)),
        ("8 hosts, healthy, start of the probes included", f"{times[8]:.2f} s", "≤ 2 s", times[8] <= 2),
        ("8 hosts, one drops all", f"{times['dropped']:.2f} s", "≤ 5 s", times["dropped"] <= 5),
        ("64 hosts against 8, all pairs, the whole command with one SSH session each",
         f"{grown['ratio']} ({grown['ours']}; {grown['rival']})", "≤ 6 ×", grown["met"]),
        *more,
    ]  # fmt: skip
    lines = ["| figure | measured | reach | |", "|---|---|---|---|"]
    lines += [f"| {what} | {value} | {reach} | {_met(good)} |" for what, value, reach, good in rows]
    return "\n".join(["## Figures", "", *lines, "", "Command: `make bench-preflight`. Times: all hosts on this",
                      f"one machine; its load was {times['load']:.0f} as they were begun. The probes alone, not the",
                      f"whole command over SSH: 64 hosts {times[64]:.2f} s, {times[64] / times[8]:.1f} × those of 8,",
                      "as many Pythons on the same cores. Growth: `python -m benchmarks.preflight_growth`.",
                      ""])  # fmt: skip


def _beside(real, harmless):
    """Three ways to look at the same faults."""
    names = [trial for trial in real if trial["torchrun_names"]]
    nc = [trial for trial in real if trial["nc_alarms"]]
    false_nc = [trial for trial in harmless if trial["nc_alarms"]]
    false = [trial for trial in harmless if trial["alarm"]]
    return "\n".join([
        "## Beside torchrun alone and `nc -vz`",
        "",
        "| | faults it points at | names the cause | harmless cases alarmed |",
        "|---|---|---|---|",
        f"| `fab preflight` | {_share([trial for trial in real if trial['alarm']], real)} | "
        f"{_share([trial for trial in real if trial['right']], real)} | {_share(false, harmless)} |",
        f"| `torchrun` alone, in its own words, after up to 50 s | {_share(real, real)} | {_share(names, real)} | - |",
        f"| `nc -vz` from each host to the rendezvous | {_share(nc, real)} | 0: it has no words for causes | "
        f"{_share(false_nc, harmless)} |",
        "",
        "`nc -vz` counts as pointing at a fault where it shows anything but the `refused` that is normal while nobody",
        "listens. `torchrun` counts as naming a cause where its output has words that fit few other causes.",
        "",
    ])  # fmt: skip


def _earned(real):
    lines = ["## What each part earns", "", "The same answers, judged without one part: what is no longer named right.",
             "", "| without | lost | which |", "|---|---|---|"]  # fmt: skip
    for part in (*PARTS, INSIDE):
        without = sorted({trial["name"] for trial in real if part in trial["lost"]})
        lines.append(f"| {part} | {len(without)} kinds | {', '.join(without) or '-'} |")
    return "\n".join([*lines, ""])


def _list(title, trials):
    lines = [
        f"## {title}",
        "",
        "| fault | hosts | torchrun | expected | said | where | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for trial in trials:
        named = trial["said"] or "nothing"
        named = named if trial["right"] else f"**{named}**"
        where = trial["said_where"] if trial["right_where"] else f"**{trial['said_where']}** (not {trial['where']})"
        where = where if trial["right"] and trial["expected"] else trial["said_where"]
        lines.append(f"| {trial['name']} | {trial['count']} | {trial['truth']} | {trial['expected'] or 'nothing'} | "
                     f"{named} | {where} | {trial['seconds']:.1f} |")  # fmt: skip
    return "\n".join([*lines, ""])


def _wrong(well):
    alarmed = [f"- {name}: {', '.join(causes)}" for name, causes, _ in well if causes]
    return "\n".join(["## Healthy clusters", "", f"{len(well)} tried (`lab/healthy.py`). Alarms:", "",
                      *(alarmed or ["- none"]), ""])  # fmt: skip
