"""Preflight under faults that the laboratory of namespaces has not: SSH, Docker, images on a rack; recorded GPUs, RDMA.

python -m benchmarks.preflight_rack                 on a rack of its own, into its page (5 minutes)
python -m benchmarks.preflight_rack --only NAME...  some of lab/rack_faults.py, one line a trial
python -m benchmarks.preflight_rack --rack NAME     on a rack of three that is up and has the image
python -m benchmarks.preflight_rack --recorded      the recordings alone, on no rack
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import racks
from deploy.causes.finding import FAULT
from lab import gpu_hosts, rack_faults
from lab.rack import Rack

COUNTS = (2, 3)
PAIRS = (
    ("host_key_is_not_known", "user_is_not_in_the_docker_group"),
    ("rendezvous_port_is_dropped", "sshd_is_down"),
    ("data_ports_are_rejected", "home_is_read_only"),
    ("home_is_read_only", "folder_of_the_runs_is_full"),
    ("rendezvous_port_is_dropped", "docker_is_not_installed"),
    ("engine_is_stopped", "key_is_not_accepted"),
    ("gpus_without_their_container_toolkit", "name_does_not_resolve"),
    ("dockers_folder_is_full", "user_has_no_shell"),
)
TITLES = ("## SSH, Docker and images: real servers of a rack", "## GPUs and RDMA: recordings, not machines")
HOME = Path(__file__).resolve().parents[1]
PAGE, RECORDED = HOME / "lab/scores/preflight-score.md", HOME / "lab/rack_score.json"


def trial(kind, rack, count):
    """One fault on so many hosts of the rack, as a dict of what was right to say and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = rack_faults.FaultyHosts(rack, rack.hosts[:count], folder)
        host = cluster.hosts[kind.place(count)]
        with kind.on_host(cluster, host) as words:
            began = time.monotonic()
            _, verdict = cluster.preflight(*words)
            seconds = round(time.monotonic() - began, 1)
    hosts = cluster.hosts if kind.on == "all" else [host]
    right = rack_faults.is_right(kind, verdict)
    return {
        "name": kind.words, "count": count, "expected": kind.cause, "where": ", ".join(hosts) if kind.cause else "",
        "said": verdict["cause"], "said_where": ", ".join(sorted(verdict["hosts"])), "right": right,
        "right_where": right and rack_faults.names_where(kind, verdict, hosts), "seconds": seconds,
    }  # fmt: skip


def of_pairs(rack):
    """Two faults at once, on different hosts of three: right where both are named with their hosts, nothing else."""
    trials = []
    for names in PAIRS:
        kinds = [rack_faults.TROUBLES[name] for name in names]
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            cluster = rack_faults.FaultyHosts(rack, rack.hosts, folder)
            # The first one may have to be on the first host.
            hosts = cluster.hosts if kinds[0].on == "first" else cluster.hosts[1:]
            for kind, host in zip(kinds, hosts, strict=False):
                stack.enter_context(kind.on_host(cluster, host))
            began = time.monotonic()
            _, verdict = cluster.preflight()
            seconds = round(time.monotonic() - began, 1)
        faults = {
            finding["cause"]: ", ".join(finding["hosts"])
            for finding in verdict["findings"]
            if finding["level"] != "warning"
        }
        wanted = {kind.cause: host for kind, host in zip(kinds, hosts, strict=False)}
        trials.append(_progress({
            "name": " + ".join(kind.words for kind in kinds), "count": 3, "expected": " + ".join(sorted(wanted)),
            "where": ", ".join(wanted[cause] for cause in sorted(wanted)), "said": " + ".join(sorted(faults)),
            "said_where": ", ".join(faults[cause] for cause in sorted(faults)), "right": faults.keys() == wanted.keys(),
            "right_where": faults == wanted, "seconds": seconds,
        }))  # fmt: skip
    return trials


def _progress(trial):
    mark = "right" if trial["right_where"] else "where" if trial["right"] else "WRONG"
    print(f"{mark} {trial['name']:45} {trial['count']} wanted {trial['expected'] or 'nothing'} {trial['where']}; said "
          f"{trial['said'] or 'nothing'} {trial['said_where']}, {trial['seconds']} s", flush=True)  # fmt: skip
    return trial


def of_recordings():
    """The same for each recorded fault (a warning is right where training would run), and for what only looks odd."""
    trials = []
    for number, case in enumerate(gpu_hosts.CASES):
        for count in COUNTS:
            verdict, hosts = gpu_hosts.tried(case, count, number % count)
            first = gpu_hosts.first(verdict, case.level)
            cause, where = (first.cause, first.hosts) if first else ("", ())
            alarm = verdict.ok != (case.level == FAULT)
            right = cause == case.cause and alarm
            trials.append({
                "name": case.name, "count": count,
                "expected": case.cause + ("" if case.level == FAULT else " (warning)"),
                "where": ", ".join(hosts), "said": cause, "said_where": ", ".join(where), "right": right,
                "right_where": right and where == hosts,
            })  # fmt: skip
    for name, base, section, old, new in gpu_hosts.WELL:
        well = gpu_hosts.sections(base)
        odd = well if old == "*" and new is None else gpu_hosts.changed(well, section, old, new)
        verdict = gpu_hosts.judged([odd, well, odd])
        trials.append({
            "name": name, "count": 3, "expected": "", "where": "", "said": verdict.cause,
            "said_where": ", ".join(verdict.hosts), "right": verdict.ok, "right_where": verdict.ok,
        })  # fmt: skip
    return trials


def of_rack(rack, only=()):
    """All trials on a rack, one after the other: they share the hosts."""
    trials = []
    for kind in rack_faults.TROUBLES.values():
        for count in COUNTS if not only or kind.name in only else ():
            trials.append(_progress(trial(kind, rack, count)))
    return trials if only else trials + of_pairs(rack)


def bring_image(rack):
    """The image under the name of the trials on all hosts."""
    subprocess.run(
        [rack_faults.FAB, "push", "--hosts", ",".join(rack.hosts), "--image", rack_faults.BASE], cwd=HOME, check=True
    )
    for host in rack.hosts:
        pushed = "$(docker image ls --format '{{.Repository}}' 'muster*')"
        line = f"docker tag {pushed} {rack_faults.IMAGE}; docker rmi {pushed}"
        subprocess.run(["docker", "exec", rack.container(host), "sh", "-c", line], check=True)


def sections():
    """Both parts of the page, from the rack's last trials and from the recordings."""
    recorded = json.loads(RECORDED.read_text())
    return "\n".join([_rack(recorded), _recorded(of_recordings())])


def into(page):
    """The page with both parts replaced, before the parts that were not measured."""
    head = page.split(TITLES[0])[0].split("## Not measured here")[0]
    return f"{head}{sections()}\n## Not measured here{page.split('## Not measured here', 1)[1]}"


def _rack(trials):
    took = [trial["seconds"] for trial in trials if not trial["expected"]]
    return "\n".join([
        TITLES[0], "",
        "Hosts are containers with an OpenSSH server and a Docker engine each (rack.md), and `fab preflight",
        "--json --quick` is the real one. Each fault of `lab/rack_faults.py` is tried on 2 and on 3 hosts, on",
        "another one each. What SSH, an engine or `docker run` refuses is a fault by itself; another image under one",
        "name is refused on purpose. The rules know these faults by now. At the first look every fault of SSH was one",
        "cause, `ssh`; an engine that was away was told as other software (10 of 10 trials), a full disk and a missing",
        "Python as a dead probe, a home that cannot be written to not at all, and broken settings of the user's docker",
        "command as a missing engine. Eight faults were written when all that was mended: five were named at the first",
        "look; a missing runtime, an unknown Docker context, a full folder of the runs were not. All pairs were.", "",
        *_figures(trials, "where nothing keeps a run from starting"),
        f"| a preflight where nothing alarms, start of Python and SSH included | {statistics.median(took):.1f} s |", "",
        "Command: `python -m benchmarks.preflight_rack`", "", *_table(trials), ""])  # fmt: skip


def _recorded(trials):
    return "\n".join([
        TITLES[1], "",
        "**No GPU and no RDMA device was asked.** `lab/hosts/` has what nvidia-smi, the driver, sysfs and",
        "the kernel's log say, in their documented forms; each fault is one change of a recording, judged on 2 and on",
        "3 hosts (`lab/gpu_hosts.py`). Whether NCCL would fail so is read in its documentation, not measured.", "",
        *_figures(trials, "where it is only odd, and well"), "",
        "Command: `python -m benchmarks.preflight_rack --recorded`", "", *_table(trials), ""])  # fmt: skip


def _figures(trials, harmless):
    real, well = [trial for trial in trials if trial["expected"]], [trial for trial in trials if not trial["expected"]]
    right = [trial for trial in real if trial["right"]]
    pairs = [trial for trial in real if " + " in trial["expected"]]
    kinds = f"{len({trial['name'] for trial in real}) - len(pairs)} kinds" + (f", {len(pairs)} pairs" if pairs else "")
    return [
        "| figure | measured |",
        "|---|---|",
        f"| faults ({kinds}), right cause first | {len(right)} of {len(real)} |",
        f"| right host, of those | {sum(trial['right_where'] for trial in right)} of {len(right)} |",
        f"| alarms {harmless} | {sum(not trial['right'] for trial in well)} of {len(well)} |",
    ]


def _table(trials):
    timed = "seconds" in trials[0]
    lines = ["| fault | hosts | expected | said | where |", "|---|---|---|---|---|"]
    lines = [line + (more if timed else "") for line, more in zip(lines, (" s |", "---|"), strict=True)]
    for trial in trials:
        named = trial["said"] or "nothing"
        named = named if trial["right"] else f"**{named}**"
        where = trial["said_where"] if trial["right_where"] else f"**{trial['said_where']}** (not {trial['where']})"
        row = f"| {trial['name']} | {trial['count']} | {trial['expected'] or 'nothing'} | {named} | {where} |"
        lines.append(row + (f" {trial['seconds']:.1f} |" if timed else ""))
    return lines


def main():
    """Measure, and write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--rack", default="")
    asked.add_argument("--recorded", action="store_true")
    options = asked.parse_args()
    if options.rack:
        trials = of_rack(Rack(options.rack, 3), options.only)
    elif not options.recorded:
        with racks.rack(3, "classic"):
            rack = Rack("bench", 3)
            bring_image(rack)
            trials = of_rack(rack, options.only)
    if options.only:
        return
    if not options.recorded:
        RECORDED.write_text("[\n" + ",\n".join(json.dumps(trial) for trial in trials) + "\n]\n")
    PAGE.write_text(into(PAGE.read_text()))
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
