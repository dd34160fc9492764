"""A run ends in twelve ways, and nobody looks: does `--on-end` say how, once, and how soon?

    python -m benchmarks.on_end [--quick]

Three hosts of a rack; `fab deploy --detach` has left before anything happens. Counted is a run whose command ran
exactly once on all hosts, with the right MUSTER_END; measured is the time from when no node of it lives any more on a
host that is up. No rival does it: dstack and SkyPilot tell while their server lives.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say
from benchmarks.racks import Rack
from benchmarks.venv import HOME

FAB = HOME / ".venv" / "bin" / "fab"
IMAGE = "muster-trainer:cpu"
WITHIN_S = 5.0
COMMAND = 'echo "$MUSTER_END $MUSTER_EXIT_CODE $(date +%s.%N)" >>ended'
SCRIPT = """
import datetime, os, sys, time
import torch, torch.distributed as dist
# A peer that goes without a word is noticed after this time, not after gloo's half an hour.
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank, end = dist.get_rank(), time.time() + float(sys.argv[1])
open(f"began-{rank}", "w").close()
while time.time() < end:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.1)
if sys.argv[2:] == [str(rank), "fails"]:
    raise RuntimeError("as asked")
if sys.argv[2:] == [str(rank), "grows"]:
    held = []
    while True:
        held.append(bytearray(b"x" * (64 << 20)))
dist.all_reduce(torch.ones(1))
"""
CLUSTER = "".join(f'[[hosts]]\nname = "rack-{number}"\n' for number in (1, 2, 3)) + '[job]\nmemory = "900m"\n'


@dataclass(frozen=True)
class Kind:
    """A kind of end: what MUSTER_END may say, the script's words, more words of the deploy, and what is done to it."""

    name: str
    ends: tuple[str, ...]
    script: str = "600"
    options: tuple[str, ...] = ()
    hit: Callable[[Rack, str], None] | None = None


def _fab(*words: str) -> Callable[[Rack, str], None]:
    def run(rack: Rack, name: str) -> None:
        subprocess.run([FAB, *words, "--hosts", ",".join(rack.names), "--run", name], cwd=HOME, capture_output=True)

    return run


def _node(host: str, command: str) -> Callable[[Rack, str], None]:
    return lambda rack, name: rack.on(host, command.format(run=name)) and None


def _machine(host: str, *words: str) -> Callable[[Rack, str], None]:
    return lambda rack, name: subprocess.run(["docker", *words, rack.containers[host]], capture_output=True) and None


# As the user of the host, whose processes these are.
TOP = "kill -9 $(docker top muster-{run} -eo pid,args | awk '/%s/ {{pid = $1}} END {{print pid}}'); true"
AGENT, RANK = TOP % "-P -m muster.trainer.node agent", TOP % "train.py 600"
KINDS = (
    Kind("done", ("done",), "4"),
    Kind("a rank of the first host fails", ("failed",), "4 0 fails"),
    Kind("a rank of the last host fails", ("failed",), "4 2 fails"),
    Kind("a rank runs out of memory", ("out-of-memory",), "4 1 grows"),
    Kind("fab stop", ("stopped",), hit=_fab("stop")),
    Kind("fab stop --now", ("killed",), hit=_fab("stop", "--now")),
    Kind("fab down", ("killed",), hit=_fab("down")),
    Kind("--max-hours", ("max-hours",), options=("--max-hours", "0.003")),
    Kind("kill -9 of a rank", ("failed",), hit=_node("rack-2", RANK)),
    Kind("kill -9 of an agent", ("killed", "failed"), hit=_node("rack-3", AGENT)),
    # Its engine kills the containers before the machine goes down.
    Kind("a host reboots", ("killed", "lost", "failed"), hit=_machine("rack-2", "restart", "--time", "1")),
    Kind("the first host loses its power", ("lost", "failed"), hit=_machine("rack-1", "kill")),
)


def measure(quick: bool) -> dict[str, Any]:
    """How many kinds of end were told, and how soon."""
    with nodes.scratch() as scratch, racks.rack(3, "classic") as rack:
        return kinds(rack, KINDS[::4] if quick else KINDS, scratch)


def kinds(rack: Rack, tried: tuple[Kind, ...], scratch: Path) -> dict[str, Any]:
    """The figure for these kinds, on a rack that is up."""
    (scratch / "train.py").write_text(SCRIPT)
    (scratch / "cluster.toml").write_text(CLUSTER)
    notes, waits, good = [], [], 0
    for number, kind in enumerate(tried):
        told, wait = trial(rack, kind, f"end-{int(time.time())}-{number}", scratch)
        right = len(told) == 1 and told[0].split()[0] in kind.ends
        good += right and wait is not None and wait <= WITHIN_S
        waits += [wait] if wait is not None else []
        words = f"{kind.name}: {', '.join(told) or 'nothing'}" + (f", after {wait:.1f} s" if wait is not None else "")
        say(words)
        notes.append(words)
    most = f", {max(waits):.1f} s at most" if waits else ""
    reach = f"{len(tried)} of {len(tried)} within {WITHIN_S:.0f} s"
    row = Row(
        "ends told by --on-end, nobody looking", f"{good} of {len(tried)}{most}", "", "", reach, good == len(tried)
    )
    return result([row], notes)


def trial(rack: Rack, kind: Kind, run: str, scratch: Path) -> tuple[list[str], float | None]:
    """What the command wrote on all hosts, and how long after the run's end."""
    words = ["--cluster", str(scratch / "cluster.toml"), "--allow-folder", "--folder", str(scratch)]
    words += ["--run", run, "--image", IMAGE]
    words += [*kind.options, "--on-end", COMMAND, "--detach", "--force"]
    started = subprocess.run(
        [FAB, "deploy", *words, "--", "train.py", *kind.script.split()], cwd=HOME, capture_output=True
    )
    if started.returncode:
        return [f"not started: {started.stderr.decode()[-300:]}"], None
    _until(lambda: all("began" in _files(rack, host, run) for host in rack.names), 60)
    if kind.hit:
        kind.hit(rack, run)
    _until(lambda: not any(_lives(rack, host, run) for host in rack.names), 90)
    ended = time.time()
    _until(lambda: _told(rack, run), 30)
    time.sleep(WITHIN_S)  # for a second one
    for host in rack.names:
        subprocess.run(["docker", "start", rack.containers[host]], capture_output=True)
    _until(lambda: all(_up(rack, host) for host in rack.names), 60)
    told = _told(rack, run)
    wait = max(0.0, float(told[0].split()[2]) - ended) if told else None
    subprocess.run(
        [FAB, "down", "--hosts", ",".join(rack.names), "--run", run, "--delete"], cwd=HOME, capture_output=True
    )
    return [line.rpartition(" ")[0] for line in told], wait


def _files(rack: Rack, host: str, run: str) -> str:
    return _output(rack, host, f"ls /home/muster/.muster/runs/{run}/work")


def _told(rack: Rack, run: str) -> list[str]:
    lines = [_output(rack, host, f"cd /home/muster/.muster/runs/{run}/work && cat ended") for host in rack.names]
    return [line for text in lines for line in text.splitlines()]


def _lives(rack: Rack, host: str, run: str) -> bool:
    return bool(_output(rack, host, f"docker ps --quiet --filter label=muster.run={run}").strip())


def _up(rack: Rack, host: str) -> bool:
    return "up" in _output(rack, host, "docker version >/dev/null && echo up")


def _output(rack: Rack, host: str, command: str) -> str:
    """Past SSH, and empty where the host is down."""
    line = ["docker", "exec", rack.containers[host], "sh", "-c", command]
    return subprocess.run(line, capture_output=True, text=True, timeout=30).stdout


def _until(condition: Callable[[], bool | list[str]], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)


if __name__ == "__main__":
    alone(measure, __doc__)
