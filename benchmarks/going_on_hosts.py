"""A host of three loses its power, the first one included: when do the others train on?

    python -m benchmarks.going_on_hosts [--quick]

Three hosts of a rack. Nothing of a host that is cut arrives any more, not even the end of its connections; it boots
afterwards. Ours is `fab deploy --min-nodes 2`: in one run, hosts drawn at random are cut one after the other, and the
next one only once all three train again. The rival is `torchrun --nnodes 2:3 --rdzv-backend c10d` in the same
containers, with a bare DDP loop that saves nothing; each cut meets a start of its own, and counts as never after 90 s.
"""

from __future__ import annotations

import json
import random
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.going_on import RECIPE
from benchmarks.racks import Rack
from benchmarks.venv import HOME

FAB, IMAGE = HOME / ".venv" / "bin" / "fab", "muster-trainer:cpu"
# As a deploy names it on the hosts, with the folder of `_ours`.
ON_HOSTS = "muster-code:latest"
LIMIT_S, NEVER_S = 5.0, 90.0
T = TypeVar("T")
ARGS = "--recipe counts.py --batch 24 --steps 1000000 --eval-every 0 --checkpoint-every 25 --log-every 1"
# gloo waits half an hour for a host that sends nothing: the rival gets a shorter patience.
RIVAL = """
import datetime, os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
while True:
    model(torch.ones(8, 1)).sum().backward()
    with open("/rival/steps", "a") as file:
        file.write(f"{time.time()}\\n")
    time.sleep(0.02)
"""


def measure(quick: bool) -> dict[str, Any]:
    """Of each side: the seconds from the cut until both other hosts have done a step."""
    with nodes.scratch() as scratch, racks.rack(3, "classic") as rack:
        return figures(rack, scratch, IMAGE, *((2, 1) if quick else (10, 3)))


def figures(rack: Rack, scratch: Path, image: str, cuts: int, rival_cuts: int) -> dict[str, Any]:
    """The figure on a rack that is up."""
    draw = random.Random(0)
    ours = _ours(rack, scratch, image, cuts, draw)
    theirs = [_rival(rack, ON_HOSTS, host) for host in rack.names[:rival_cuts]]
    lived = [seconds for seconds in theirs if seconds is not None]
    rows = [
        Row(
            "others train on after a power cut of a host of three, the first included",
            f"{len(ours)} of {cuts}, after {spread(ours)} s" if ours else "never",
            f"torchrun {len(lived)} of {rival_cuts}" + (f", after {spread(lived)} s" if lived else ""),
            target=f"{cuts} of {cuts} within {LIMIT_S:.0f} s",
            met=len(ours) == cuts and max(ours) <= LIMIT_S,
        )
    ]
    return result(rows, ["containers with sshd and a Docker engine as hosts; 3 ranks on CPUs"])


def _ours(rack: Rack, scratch: Path, image: str, cuts: int, draw: random.Random) -> list[float]:
    folder, run = scratch / "code", f"going-{int(time.time())}"
    folder.mkdir()
    (folder / "counts.py").write_text(textwrap.dedent(RECIPE))
    seconds: list[float] = []
    hosts = ["--hosts", ",".join(rack.names), "--run", run]
    more = ["--image", image, "--folder", str(folder), "--min-nodes", "2", "--detach", "--args", ARGS]
    subprocess.run([FAB, "deploy", *hosts, *more], cwd=HOME, check=True, capture_output=True)

    def step_since(t: float, names: list[str]) -> float | None:
        firsts = [
            _first(rack, name, f"~/.muster/runs/{run}/ranks/rank-{rack.names.index(name)}.jsonl", t) for name in names
        ]
        return max(first for first in firsts if first) if all(firsts) else None

    try:
        _until(lambda: step_since(0.0, [*rack.names]))
        for _ in range(cuts):
            time.sleep(draw.uniform(1.0, 3.0))
            name = draw.choice(rack.names)
            others = [other for other in rack.names if other != name]
            began = _cut(rack, name)
            after = _until(lambda: step_since(began + 0.5, others), NEVER_S)  # noqa: B023
            _boot(rack, name)
            if not after:
                say(f"{name}: the others do not train after {NEVER_S:.0f} s")
                break
            seconds.append(after - began)
            say(f"cut of {name}: the others step after {seconds[-1]:.2f} s")
            back = time.time()
            _until(lambda: step_since(back, [name]), 120.0)  # noqa: B023
    finally:
        subprocess.run([FAB, "down", *hosts], cwd=HOME, capture_output=True)
    return seconds


def _first(rack: Rack, name: str, path: str, since: float) -> float | None:
    """When a rank of the host has done its first step after a start since then."""
    lines = _on(rack, name, f"tail -n 400 {path} 2>/dev/null; true").splitlines()
    events = [json.loads(line) for line in lines if line.endswith("}")]
    starts = [place for place, event in enumerate(events) if event["kind"] == "started" and event["t"] > since]
    return next((event["t"] for event in events[starts[-1] :] if event["kind"] == "step"), None) if starts else None


def _rival(rack: Rack, image: str, cut: str) -> float | None:
    """The same for torchrun: None if the others have not stepped after a while."""
    first = _on(rack, rack.names[0], "ip -4 -o addr show eth0").split()[3].partition("/")[0]
    words = "--nnodes 2:3 --nproc-per-node 1 --max-restarts 100 --rdzv-backend c10d --rdzv-id bench"
    words += f" --rdzv-endpoint {first}:29400 /rival/train.py"
    for name in rack.names:
        _on(
            rack,
            name,
            f"mkdir -p -m 777 /tmp/rival && rm -f /tmp/rival/* && cat >/tmp/rival/train.py <<'END'\n{RIVAL}\nEND",
        )
        variables = "-e TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 -e GLOO_SOCKET_IFNAME=eth0"
        start = (
            f"docker run -d --name rival --network host {variables} -v /tmp/rival:/rival --entrypoint torchrun {image}"
        )
        _on(rack, name, f"{start} {words}")
    others = [name for name in rack.names if name != cut]

    def stepped(t: float, names: list[str]) -> float | None:
        lines = [_on(rack, name, "tail -n 300 /tmp/rival/steps 2>/dev/null; true").split() for name in names]
        firsts = [next((float(each) for each in own if float(each) > t), None) for own in lines]
        return max(first for first in firsts if first) if all(firsts) else None

    try:
        _until(lambda: stepped(0.0, [*rack.names]))
        time.sleep(2.0)
        began = _cut(rack, cut)
        after = _until(lambda: stepped(began + 1.0, others), NEVER_S)
        _boot(rack, cut)
    finally:
        for name in rack.names:
            _on(rack, name, "docker rm -f rival; true")
    say(f"torchrun, cut of {cut}: " + (f"after {after - began:.2f} s" if after else "never"))
    return after - began if after else None


def _cut(rack: Rack, name: str) -> float:
    """Take the host's power: first nothing of it arrives any more."""
    container = rack.containers[name]
    began = time.time()
    subprocess.run(["docker", "exec", container, "iptables", "-I", "OUTPUT", "-j", "DROP"], check=True)
    subprocess.run(["docker", "kill", container], check=True, capture_output=True)
    return began


def _boot(rack: Rack, name: str) -> None:
    subprocess.run(["docker", "start", rack.containers[name]], check=True, capture_output=True)
    _until(lambda: _on(rack, name, "docker version >/dev/null && echo up"), 90.0)


def _on(rack: Rack, name: str, command: str) -> str:
    """What a command on a host prints; nothing if the host does not answer."""
    done = subprocess.run([*rack.ssh(name), "-o", "ConnectTimeout=5", command], capture_output=True, text=True)
    return "" if done.returncode == 255 else done.stdout.strip()


def _until(condition: Callable[[], T | None], limit_s: float = 120.0) -> T | None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    return None


if __name__ == "__main__":
    alone(measure, __doc__)
