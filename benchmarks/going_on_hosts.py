"""A host of three loses its power, the first one included: when do the others train on?

    python -m benchmarks.going_on_hosts [--quick]

Three hosts of a rack. Nothing of a host that is cut arrives any more, not even the end of its connections; it boots
afterwards. Ours is `fab deploy --min-nodes 2`: in one run, hosts drawn at random are cut one after the other, and the
next one only once all three train again. It is measured with Muster's own trainer, and with a script: a bare DDP loop
whose rank 0 saves every 100 steps and which goes on from there. The rival is `torchrun --nnodes 2:3` (c10d) in the same
containers with the same script; each cut meets a start of its own, and counts as never after 90 s.
"""

from __future__ import annotations

import json
import random
import subprocess
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.going_on import RECIPE
from benchmarks.racks import Rack
from benchmarks.venv import HOME

FAB, IMAGE = HOME / ".venv" / "bin" / "fab", "muster-trainer:cpu"
# As a deploy names it on the hosts, with the folder of `_script`.
ON_HOSTS = "muster-script:latest"
LIMIT_S, NEVER_S = 5.0, 90.0
T = TypeVar("T")
# Of a host: when it did which step, and of how many ranks.
Steps = list[tuple[float, int, int]]
ARGS = "--recipe counts.py --batch 24 --steps 1000000 --eval-every 0 --checkpoint-every 25 --log-every 1"
# gloo waits half an hour for a host that sends nothing: the rival needs a shorter patience.
SCRIPT = """
import datetime, os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
saved = dist.get_rank() == 0 and os.path.exists("last.pt")
step = torch.tensor([torch.load("last.pt")["step"] + 1 if saved else 0])
dist.broadcast(step, 0)
while True:
    model(torch.ones(8, 1)).sum().backward()
    if dist.get_rank() == 0 and int(step) % 100 == 0:
        torch.save({"step": int(step), "model": model.state_dict()}, "last.tmp")
        os.replace("last.tmp", "last.pt")
    with open("steps-" + os.environ.get("MUSTER_NODE", "") + ".log", "a") as file:
        file.write(f"{time.time()} {int(step)} {dist.get_world_size()}\\n")
    step += 1
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Trial:
    """After how many seconds the others trained on, and how many steps were done again."""

    seconds: float
    again: int = 0


def measure(quick: bool) -> dict[str, Any]:
    """Of each side: the seconds from the cut until both other hosts have done a step."""
    with nodes.scratch() as scratch, racks.rack(3, "classic") as rack:
        return figures(rack, scratch, IMAGE, *((2, 2, 1) if quick else (10, 10, 5)))


def figures(rack: Rack, scratch: Path, image: str, cuts: int, script_cuts: int, rival_cuts: int) -> dict[str, Any]:
    """The figure on a rack that is up."""
    draw = random.Random(0)
    ours = _ours(rack, scratch, image, cuts, draw) if cuts else []
    scripts = _script(rack, scratch, image, script_cuts, draw)
    hosts = [rack.names[number % len(rack.names)] for number in range(1, rival_cuts + 1)]
    theirs = [_rival(rack, ON_HOSTS, host) for host in hosts]
    rows = [
        _row("Muster's trainer", [Trial(each) for each in ours], cuts, theirs),
        _row("a script", scripts, script_cuts, theirs),
        Row(
            "... steps done again by the script, of 100 between two checkpoints",
            spread([each.again for each in scripts], ".0f") if scripts else "",
            f"torchrun {spread([each.again for each in theirs if each], '.0f')}" if any(theirs) else "",
            target="<= 200: a checkpoint may be on its way",
            met=bool(scripts) and max(each.again for each in scripts) <= 200,
        ),
    ]
    return result(rows, ["containers with sshd and a Docker engine as hosts; 3 ranks on CPUs"])


def _row(what: str, ours: Sequence[Trial], cuts: int, theirs: Sequence[Trial | None]) -> Row:
    seconds, lived = [each.seconds for each in ours], [each.seconds for each in theirs if each]
    return Row(
        f"others train on after a power cut of a host of three, the first included: {what}",
        f"{len(seconds)} of {cuts}, after {spread(seconds)} s" if seconds else "never",
        f"torchrun {len(lived)} of {len(theirs)}" + (f", after {spread(lived)} s" if lived else ""),
        target=f"{cuts} of {cuts} within {LIMIT_S:.0f} s",
        met=len(seconds) == cuts and bool(cuts) and max(seconds) <= LIMIT_S,
    )


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


def _script(rack: Rack, scratch: Path, image: str, cuts: int, draw: random.Random) -> list[Trial]:
    """The same with a script, and the steps that were done again."""
    folder, run = scratch / "script", f"script-{int(time.time())}"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    trials: list[Trial] = []
    hosts = ["--hosts", ",".join(rack.names), "--run", run]
    more = ["--image", image, "--folder", str(folder), "--min-nodes", "2", "--restarts", "100"]
    more += ["--detach", "--script", "train.py"]
    subprocess.run([FAB, "deploy", *hosts, *more], cwd=HOME, check=True, capture_output=True)

    def steps(name: str) -> Steps:
        return _steps(rack, name, f"cd ~/.muster/runs/{run} && tail -n 2000 work/steps-{name}.log")

    try:
        _until(lambda: _begun(steps, rack.names, 0.0, 3))
        for _ in range(cuts):
            time.sleep(draw.uniform(8.0, 12.0))
            name = draw.choice(rack.names)
            others = [other for other in rack.names if other != name]
            trial = _trial(rack, name, others, steps)
            if not trial:
                say(f"{name}: the others do not train after {NEVER_S:.0f} s")
                break
            trials.append(trial)
            say(f"script, cut of {name}: after {trial.seconds:.2f} s, {trial.again} steps again")
            back = time.time()
            _until(lambda: _begun(steps, rack.names, back, 3), 120.0)  # noqa: B023
            say(f"all three train again {time.time() - back:.1f} s after {name} has booted")
    finally:
        subprocess.run([FAB, "down", *hosts], cwd=HOME, capture_output=True)
    return trials


def _trial(rack: Rack, name: str, others: Sequence[str], steps: Callable[[str], Steps]) -> Trial | None:
    """Cut a host, and let it boot once the others train on; None if they do not."""
    began = _cut(rack, name)
    after = _until(lambda: _begun(steps, others, began + 0.5, 2), NEVER_S)
    _boot(rack, name)
    if not after:
        return None
    reached = max((step for other in others for t, step, world in steps(other) if world == 3), default=0)
    return Trial(max(t for t, _ in after) - began, max(0, reached + 1 - min(step for _, step in after)))


def _begun(steps: Callable[[str], Steps], names: Sequence[str], since: float, world: int) -> list[tuple[float, int]]:
    """The first step of each of these hosts with so many ranks since then; nothing while one of them has none."""
    firsts = [next(((t, step) for t, step, of in steps(name) if t > since and of == world), None) for name in names]
    return [first for first in firsts if first] if all(firsts) else []


def _steps(rack: Rack, name: str, command: str) -> Steps:
    """When a host did which step, and of how many ranks."""
    rows = [line.split() for line in _on(rack, name, f"{command} 2>/dev/null; true").splitlines()]
    return [(float(row[0]), int(row[1]), int(row[2])) for row in rows if len(row) == 3]


def _first(rack: Rack, name: str, path: str, since: float) -> float | None:
    """When a rank of the host has done its first step after a start since then."""
    lines = _on(rack, name, f"tail -n 400 {path} 2>/dev/null; true").splitlines()
    events = [json.loads(line) for line in lines if line.endswith("}")]
    starts = [place for place, event in enumerate(events) if event["kind"] == "started" and event["t"] > since]
    return next((event["t"] for event in events[starts[-1] :] if event["kind"] == "step"), None) if starts else None


def _rival(rack: Rack, image: str, cut: str) -> Trial | None:
    """The same for torchrun: None if the others have not stepped after a while."""
    first = _on(rack, rack.names[0], "ip -4 -o addr show eth0").split()[3].partition("/")[0]
    words = "--nnodes 2:3 --nproc-per-node 1 --max-restarts 100 --rdzv-backend c10d --rdzv-id bench"
    words += f" --rdzv-endpoint {first}:29400 /rival/train.py"
    for name in rack.names:
        _on(
            rack,
            name,
            f"mkdir -p -m 777 /tmp/rival && rm -f /tmp/rival/* && cat >/tmp/rival/train.py <<'END'\n{SCRIPT}\nEND",
        )
        variables = "-e TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 -e GLOO_SOCKET_IFNAME=eth0"
        start = "docker run -d --name rival --network host --workdir /rival -v /tmp/rival:/rival"
        start += f" {variables} -e MUSTER_NODE={name} --entrypoint torchrun {image}"
        _on(rack, name, f"{start} {words}")
    others = [name for name in rack.names if name != cut]

    def steps(name: str) -> Steps:
        return _steps(rack, name, f"tail -n 2000 /tmp/rival/steps-{name}.log")

    try:
        _until(lambda: _begun(steps, rack.names, 0.0, 3))
        time.sleep(8.0)
        trial = _trial(rack, cut, others, steps)
    finally:
        for name in rack.names:
            _on(rack, name, "docker rm -f rival; true")
    words = f"after {trial.seconds:.2f} s, {trial.again} steps again" if trial else "never"
    say(f"torchrun, cut of {cut}: {words}")
    return trial


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
