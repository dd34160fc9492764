"""What is said first when a run on three hosts breaks: is a wrong culprit or a wrong cause ever named?

    make rack RACK=faults NODES=3
    python -m benchmarks.run_faults faults [NAME ...]     one fault after the other; some minutes in all

Each fault is made for real, in a run of our trainer or of a script, on the hosts of a rack. The first line that
`fab deploy` says of it counts: right, silent (nothing in time), unsure ("could not tell"), or wrong.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.venv import HOME

FAB, BASE, HOSTS = HOME / ".venv" / "bin" / "fab", "muster-trainer:cpu", ("rack-1", "rack-2", "rack-3")
ALL_GOES_WELL = re.compile(r"^(step |muster preflight|  hosts|ready|.* runs on |training |held-out|all is|step$)")
TELLS = re.compile(
    r"\(rank \d+\)|^error:|could not tell|the connection to|out of sight|checkpoint at step \d+ failed|alone"
)
RECIPE = """
import ctypes, math, os, signal, sys, threading, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

RANK, calls = int(os.environ["RANK"]), 0
DONE = os.environ["MUSTER_RUN_DIR"] + "/.fault-done"

def model():
    return nn.Linear(4, 1)

def datasets(data):
    x = torch.sin(torch.arange(4096.0)).view(-1, 4)
    return TensorDataset(x, x.sum(1, keepdim=True)), TensorDataset(x[:16], x[:16].sum(1, keepdim=True))

def loss(model, batch):
    global calls
    calls += 1
    time.sleep(0.02)
    x, y = batch
    value = ((model(x) - y) ** 2).mean()
    if RANK == 1 and calls == 120 and not os.path.exists(DONE):
        open(DONE, "w").close()
        {inside}
    return value
"""
SCRIPT = """
import datetime, os, signal, sys, time
import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
dist.init_process_group("gloo"{more})
print("begins", flush=True)
for step in range(100_000):
    if RANK == 1 and step == 60:
        {inside}
    dist.all_reduce(torch.ones(3))
    time.sleep(0.05)
"""
PATIENCE = ", timeout=datetime.timedelta(seconds=8)"


class Hosts:
    """The rack called `name`: its hosts are containers of this machine's engine."""

    def __init__(self, name: str) -> None:
        self.name, self.config = name, HOME / "rack" / f".state-{name}" / "ssh_config"

    def container(self, host: str) -> str:
        """The container that is the host."""
        return f"muster-{self.name}-{host.removeprefix('rack-')}"

    def root(self, host: str, command: str) -> str:
        """A command on the host, as root and past SSH."""
        line = ["docker", "exec", self.container(host), "sh", "-c", command]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    def engine(self, *words: str) -> None:
        """A command of the engine that the hosts run on."""
        subprocess.run(["docker", *words], capture_output=True, timeout=60, check=True)

    def up(self, host: str) -> bool:
        """Whether the host's engine answers over SSH."""
        line = [
            "ssh",
            "-F",
            str(self.config),
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=3",
            host,
            "docker",
            "version",
        ]
        return subprocess.run(line, capture_output=True).returncode == 0


Act = Callable[[Hosts, str], object]


@dataclass(frozen=True)
class Fault:
    """One fault: code `inside` rank 1 at a step, or what is done from `outside`; what a right word on it looks like."""

    right: str
    inside: str = ""
    outside: Act | None = None
    mend: Act | None = None
    before: Act | None = None
    script: str = ""
    job: str = ""
    limit_s: float = 60.0

    @property
    def file(self) -> str:
        """The name of its script, or of its recipe."""
        return "train.py" if self.script else "mine.py"

    @property
    def source(self) -> str:
        """What stands in that file."""
        body = textwrap.indent(self.inside or "pass", "        ").strip()
        return (self.script or RECIPE).replace("{inside}", body).replace("{more}", "")


def _node(host: str, verb: str) -> Act:
    return lambda hosts, run: hosts.root(host, f"docker {verb} muster-{run}")


def _power(host: str, verb: str) -> Act:
    return lambda hosts, run: hosts.engine(verb, hosts.container(host))


def _between(flag: str) -> Act:
    def act(hosts: Hosts, run: str) -> None:
        address = hosts.root("rack-3", "hostname -i").split()[0]
        for chain, way in (("INPUT", "-s"), ("OUTPUT", "-d")):
            hosts.root("rack-2", f"iptables {flag} {chain} {way} {address} -j DROP")

    return act


def _small(hosts: Hosts, run: str) -> None:
    user = hosts.root("rack-1", "ls /home").split()[0]
    folder = f"/home/{user}/.muster/runs"
    own = f"uid=$(id -u {user}),gid=$(id -g {user})"
    hosts.root("rack-1", f"mkdir -p {folder}; mount -t tmpfs -o size=20m,mode=700,{own} tmpfs {folder}")


def _filled(hosts: Hosts, run: str) -> None:
    hosts.root("rack-1", f"cat /dev/zero > $(ls -d /home/*/.muster/runs)/{run}/filler; true")


def _roomy(hosts: Hosts, run: str) -> None:
    hosts.root("rack-1", "umount -l $(ls -d /home/*/.muster/runs); true")


KILL, STOP, LEAVE = "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), signal.SIGSTOP)", "os._exit(0)"
HANGS = r"rack-2 \(rank 1\) did not answer"
FAULTS = {
    "kill -9": Fault(r"rack-2 \(rank 1\) was killed by SIGKILL", KILL),
    "segfault": Fault(r"rack-2 \(rank 1\) was killed by SIGSEGV", "ctypes.string_at(0)"),
    "SIGSTOP": Fault(HANGS, STOP, limit_s=90),
    "deadlock": Fault(HANGS, "lock = threading.Lock(); lock.acquire(); lock.acquire()", limit_s=90),
    "node paused": Fault(r"rack-2", "", _node("rack-2", "pause"), _node("rack-2", "unpause")),
    "partition of two hosts": Fault("could not tell|rack-2|rack-3", "", _between("-I"), _between("-D")),
    "docker kill worker": Fault(r"rack-2.*was killed by SIGKILL", "", _node("rack-2", "kill")),
    "docker kill master": Fault(r"rack-1.*was killed by SIGKILL", "", _node("rack-1", "kill")),
    "power cut worker": Fault(r"rack-2", "", _power("rack-2", "kill"), _power("rack-2", "start")),
    "power cut first host": Fault(r"rack-1", "", _power("rack-1", "kill"), _power("rack-1", "start")),
    "exception": Fault(r"rack-2 \(rank 1\).*ValueError: bad sample", "raise ValueError('bad sample 7')"),
    "NaN": Fault(r"nan on rank 1 \(rack-2\)", "value = value * math.nan"),
    "leaves with 0": Fault(r"rack-2 \(rank 1\).*left", LEAVE),
    "memory eaten": Fault(
        r"rack-2 \(rank 1\) was killed by SIGKILL \(out of memory", "hog = [bytearray(1 << 24) for _ in range(400)]",
        job='memory = "1200m"',
    ),
    "disk full": Fault("checkpoint at step .* failed", "", _filled, _roomy, before=_small),
    "straggler": Fault("straggler|slow", "real = time.sleep; time.sleep = lambda _: real(0.25)", limit_s=20),
    "weight corrupted": Fault("differ", "next(model.parameters()).data.add_(1e-3)", limit_s=20),
    "script: exception": Fault(r"rack-2 \(rank 1\).*ValueError", "raise ValueError('bad sample 7')", script=SCRIPT),
    "script: mismatched collective": Fault("mismatch", "dist.all_reduce(torch.ones(9))", script=SCRIPT),
    "script: kill -9": Fault(r"rack-2 \(rank 1\).*was killed by SIGKILL", KILL, script=SCRIPT),
    "script: SIGSTOP, gloo waits 30 min": Fault(HANGS, STOP, script=SCRIPT, limit_s=20),
    "script: SIGSTOP, gloo waits 8 s": Fault(HANGS, STOP, script=SCRIPT.replace("{more}", PATIENCE)),
    "script: power cut": Fault(r"rack-2", "", _power("rack-2", "kill"), _power("rack-2", "start"), script=SCRIPT),
    "script: leaves with 0": Fault(r"rack-2 \(rank 1\).*left", LEAVE, script=SCRIPT),
    "script: a backend that torch lacks": Fault(
        r"RuntimeError: Distributed package", "pass",
        script=SCRIPT.replace('"gloo"', '"nccl"'),
    ),
    "script: fails while the others compute": Fault(
        r"rack-2 \(rank 1\).*ValueError", "raise ValueError('bad sample 7')",
        script=SCRIPT.replace("    dist.all_reduce", "    if step == 60: time.sleep(20)\n    dist.all_reduce"),
    ),
    "script: trains alone on every host": Fault(
        "alone", "", script="import torch\nmodel = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nprint('begins', flush=True)\n"
        "for step in range(20):\n    model(torch.ones(4, 2)).mean().backward()\n    optimizer.step()\n",
    ),
}  # fmt: skip


def trial(hosts: Hosts, fault: Fault, folder: Path) -> tuple[str, float, str]:
    """Make the fault; returns the judgement, after how many seconds it was said, and the words."""
    run = f"fault-{uuid.uuid4().hex[:6]}"
    (folder / fault.file).write_text(fault.source)
    rows = "".join(f'[[hosts]]\nname = "{host}"\n' for host in HOSTS)
    (folder / "cluster.toml").write_text(f"[job]\n{fault.job}\n{rows}")
    what = ("--script", "train.py") if fault.script else ("--args", ARGUMENTS)
    line = [str(FAB), "deploy", "--cluster", str(folder / "cluster.toml"), "--run", run, "--image", BASE, *what]
    if fault.before:
        fault.before(hosts, run)
    output = folder / "told"
    with output.open("wb") as out:
        deploy = subprocess.Popen(
            [*line, "--folder", str(folder)], cwd=HOME, env=_environment(hosts), stderr=out, stdout=out
        )
    try:
        since = _made(hosts, fault, run, deploy)
        words = _first_word(output, deploy, since + fault.limit_s)
        took = time.time() - since
    finally:
        _end(hosts, fault, run, deploy)
    return judgement(fault.right, words), took, words


ARGUMENTS = (
    "--recipe mine.py --steps 1000000 --batch 96 --checkpoint-every 20 --eval-every 0 --log-every 5 --timeout 15"
)


def _environment(hosts: Hosts) -> dict[str, str]:
    return {**os.environ, "MUSTER_SSH_CONFIG": str(hosts.config), "NO_COLOR": "1", "COLUMNS": "250"}


def _made(hosts: Hosts, fault: Fault, run: str, deploy: subprocess.Popen[bytes]) -> float:
    """Wait until the run trains, and make the fault; when that was (a rank inside makes it some seconds later)."""
    began, console = time.time(), HOME / "runs" / run
    while deploy.poll() is None and time.time() < began + 90:
        events = console / "ranks" / "rank-0.jsonl"
        trains = '"step"' in events.read_text() if events.exists() and not fault.script else False
        log = console / "logs" / "rack-1.log"
        if trains or (fault.script and log.exists() and "begins" in log.read_text()):
            break
        time.sleep(0.2)
    if fault.outside:
        time.sleep(2.0)
        fault.outside(hosts, run)
    return time.time()


def _first_word(output: Path, deploy: subprocess.Popen[bytes], until: float) -> str:
    """The first line that speaks of the fault; the line that ends the run where there was none."""
    while time.time() < until:
        ended = deploy.poll() is not None
        for line in output.read_text(errors="replace").splitlines():
            if TELLS.search(line) and not ALL_GOES_WELL.match(line):
                return line.strip()
        if ended:
            return output.read_text(errors="replace").strip().splitlines()[-1]
        time.sleep(0.2)
    return ""


def _end(hosts: Hosts, fault: Fault, run: str, deploy: subprocess.Popen[bytes]) -> None:
    if fault.mend:
        fault.mend(hosts, run)
    for number in (signal.SIGINT, signal.SIGINT):
        if deploy.poll() is None:
            deploy.send_signal(number)
            time.sleep(1.0)
    try:
        deploy.wait(30)
    except subprocess.TimeoutExpired:
        deploy.kill()
        deploy.wait()
    end = time.time() + 60
    while not all(map(hosts.up, HOSTS)) and time.time() < end:
        time.sleep(1.0)
    line = [str(FAB), "down", "--hosts", ",".join(HOSTS), "--run", run]
    subprocess.run(line, cwd=HOME, env=_environment(hosts), capture_output=True, timeout=120)
    if os.environ.get("KEEP") != "1":
        shutil.rmtree(HOME / "runs" / run, ignore_errors=True)


def judgement(right: str, words: str) -> str:
    """What the first words are worth, by the pattern of those that are `right`."""
    if not words:
        return "silent"
    return "right" if re.search(right, words) else "unsure" if "could not tell" in words else "WRONG"


def table(names: Sequence[str], trial: Callable[[Fault, Path], tuple[str, float, str]]) -> int:
    """Print a row for each fault as it is tried; returns 1 where anything wrong was said."""
    wrong = 0
    print("| fault | | said first | after |\n|---|---|---|---|", flush=True)
    for name in names:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            kind, took, words = trial(FAULTS[name], Path(folder))
        wrong += kind == "WRONG"
        print(f"| {name} | {kind} | {words[:220] or '(nothing)'} | {took:.1f} s |", flush=True)
    print(f"\nwrong: {wrong} of {len(names)}")
    return 1 if wrong else 0


def main(arguments: Sequence[str]) -> int:
    """`RACK [NAME ...]`: those faults, or all."""
    hosts = Hosts(arguments[0])
    return table(arguments[1:] or list(FAULTS), lambda fault, folder: trial(hosts, fault, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
