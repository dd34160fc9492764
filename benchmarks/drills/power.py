"""A drill with rack hosts: one of three loses its power, sometimes the first host (--min-nodes 2).

Nothing arrives any more from a host that is cut, not even the end of its connections; it boots afterwards. The drill
hits Muster's own trainer, and a script: a bare DDP loop whose rank 0 saves every 100 steps, and which continues from
there. The rival is `torchrun --nnodes 2:3` (c10d) in the same containers with the same script, with one start for each
cut.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.drills import BATCH, NEVER_S, RECIPE, Hit, first_step, hit_often, options, rows
from benchmarks.drills.spaces import wait
from benchmarks.figure import result
from benchmarks.venv import FAB, HOME
from lab.rack import Rack

IMAGE = "muster-trainer:cpu"
# The name that a deploy gives the image on the hosts, with the script's folder.
ON_HOSTS = "muster-script:latest"
LIMIT_S, SAVED = 5.0, 100
# By default gloo waits half an hour for a host that sends nothing: the rival needs a shorter timeout.
SCRIPT = f"""
import datetime, os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
saved = dist.get_rank() == 0 and os.path.exists("last.pt")
step = torch.tensor([torch.load("last.pt")["step"] + 1 if saved else 0])
dist.broadcast(step, 0)
while True:
    model(torch.ones(8, 1)).sum().backward()
    if dist.get_rank() == 0 and int(step) % {SAVED} == 0:
        torch.save({{"step": int(step), "model": model.state_dict()}}, "last.tmp")
        os.replace("last.tmp", "last.pt")
    with open("steps-" + os.environ.get("MUSTER_NODE", "") + ".log", "a") as file:
        file.write(f"{{time.time()}} {{int(step)}} {{dist.get_world_size()}}\\n")
    step += 1
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Step:
    """A step that a host did: when, its number, and with how many ranks."""

    t: float
    number: int
    world: int


Steps = Callable[[str, float, int], Step | None]


def measure_host(quick: bool) -> dict[str, Any]:
    """For each side, the time from the cut until both other hosts have done a step."""
    cuts, rival_cuts, draw = 2 if quick else 10, 1 if quick else 5, random.Random(0)
    with nodes.scratch() as scratch, racks.rack(3, "classic") as rack:
        trainer = _ours(rack, scratch, cuts, draw)
        script = _script(rack, scratch, cuts, draw)
        theirs = [_rival(rack, rack.hosts[number % 3]) for number in range(1, rival_cuts + 1)]
    found = [
        *rows("a power cut of a host of three: Muster's trainer", trainer, cuts, LIMIT_S, theirs),
        *rows("a power cut of a host of three: a script", script, cuts, LIMIT_S, theirs),
    ]
    return result(found, [f"containers with sshd and an engine as hosts; the script saves every {SAVED} steps"])


def _ours(rack: Rack, scratch: Path, cuts: int, draw: random.Random) -> list[Hit]:
    run, folder = f"going-{int(time.time())}", scratch / "code"
    folder.mkdir()
    (folder / "counts.py").write_text(RECIPE)
    words = " ".join([*options("counts.py"), "--batch", str(BATCH)])

    def first(name: str, since: float, world: int) -> Step | None:
        path = f"~/.muster/runs/{run}/ranks/rank-{rack.hosts.index(name)}.jsonl"
        lines = _on(rack, name, f"tail -n 400 {path} 2>/dev/null; true").splitlines()
        t = first_step([json.loads(line) for line in lines if line.endswith("}")], since)
        return Step(t, 0, world) if t else None

    return _cut_often(rack, run, cuts, draw, first, "--folder", str(folder), "--args", words)


def _script(rack: Rack, scratch: Path, cuts: int, draw: random.Random) -> list[Hit]:
    run, folder = f"script-{int(time.time())}", scratch / "script"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    first = _steps_in(rack, f"cd ~/.muster/runs/{run}/work")
    more = ("--restarts", "100", "--script", "train.py")
    return _cut_often(rack, run, cuts, draw, first, "--folder", str(folder), *more)


def _cut_often(rack: Rack, run: str, cuts: int, draw: random.Random, first: Steps, *words: str) -> list[Hit]:
    """One run in which randomly drawn hosts are cut one after the other, each after all three train again."""
    hosts = ["--hosts", ",".join(rack.hosts), "--run", run]
    line = [FAB, "deploy", *hosts, "--image", IMAGE, "--min-nodes", "2", "--detach", *words]
    subprocess.run(line, cwd=HOME, check=True, capture_output=True)

    def once(_: int) -> Hit | None:
        time.sleep(draw.uniform(8.0, 12.0))
        name = draw.choice(rack.hosts)
        hit, back = _cut_once(rack, name, first)
        wait(lambda: all(first(each, back, 3) for each in rack.hosts), 120.0)
        return hit

    try:
        wait(lambda: all(first(each, 0.0, 3) for each in rack.hosts), 120.0)
        return hit_often(cuts, once, run)
    finally:
        subprocess.run([FAB, "down", *hosts], cwd=HOME, capture_output=True)


def _cut_once(rack: Rack, name: str, first: Steps) -> tuple[Hit | None, float]:
    """Cut a host, and let it boot when the others train again or the limit is over.

    Returns the hit, None if the others do not train again, and when the host booted.
    """
    others = [other for other in rack.hosts if other != name]
    container, began = rack.container(name), time.time()
    subprocess.run(["docker", "exec", container, "iptables", "-I", "OUTPUT", "-j", "DROP"], check=True)
    subprocess.run(["docker", "kill", container], check=True, capture_output=True)

    def all_step() -> Sequence[Step]:
        steps = [first(other, began + 0.5, 2) for other in others]
        return [step for step in steps if step] if all(steps) else []

    after: Sequence[Step] = wait(all_step, NEVER_S)
    before = [first(other, 0.0, 3) for other in others]
    booted = time.time()
    subprocess.run(["docker", "start", container], check=True, capture_output=True)
    wait(lambda: _on(rack, name, "docker version >/dev/null && echo up"), 90.0)
    if not after:
        return None, booted
    reached = max((step.number for step in before if step), default=0)
    again = reached + 1 - min(step.number for step in after) if reached else 0
    return Hit(max(step.t for step in after) - began, max(0, again)), booted


def _steps_in(rack: Rack, folder: str) -> Steps:
    """A function that reads the script's log: the first step after `since` with `world` ranks.

    With since 0, the last.
    """

    def first(name: str, since: float, world: int) -> Step | None:
        said = _on(rack, name, f"{folder} && tail -n 2000 steps-{name}.log 2>/dev/null; true").splitlines()
        steps = [Step(float(a), int(b), int(c)) for a, b, c in (line.split() for line in said if line.count(" ") == 2)]
        found = [step for step in steps if step.t > since and step.world == world]
        return found[0 if since else -1] if found else None

    return first


def _rival(rack: Rack, cut: str) -> Hit | None:
    """Cut a host of a torchrun run; None if the others have done no step within the limit."""
    at = _on(rack, rack.hosts[0], "ip -4 -o addr show eth0").split()[3].partition("/")[0]
    words = "--nnodes 2:3 --nproc-per-node 1 --max-restarts 100 --rdzv-backend c10d --rdzv-id bench"
    words += f" --rdzv-endpoint {at}:29400 /rival/train.py"
    for name in rack.hosts:
        made = "mkdir -p -m 777 /tmp/rival && rm -f /tmp/rival/*"
        _on(rack, name, f"{made} && cat >/tmp/rival/train.py <<'END'\n{SCRIPT}\nEND")
        variables = "-e TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 -e GLOO_SOCKET_IFNAME=eth0"
        start = "docker run -d --name rival --network host --workdir /rival -v /tmp/rival:/rival"
        _on(rack, name, f"{start} {variables} -e MUSTER_NODE={name} --entrypoint torchrun {ON_HOSTS} {words}")
    first = _steps_in(rack, "cd /tmp/rival")
    try:
        wait(lambda: all(first(name, 0.0, 3) for name in rack.hosts), 120.0)
        time.sleep(8.0)
        return _cut_once(rack, cut, first)[0]
    finally:
        for name in rack.hosts:
            _on(rack, name, "docker rm -f rival; true")


def _on(rack: Rack, name: str, command: str) -> str:
    """The output of a command on a host; empty if the host does not answer."""
    done = subprocess.run([*rack.line(name), command], capture_output=True, text=True)
    return "" if done.returncode == 255 else done.stdout.strip()
