"""A run on hosts some of which may be lost, and what was trained on them in the end."""

import subprocess
from collections import Counter

from lab import waiting
from muster.data import StreamSampler
from tests.cluster.control import BASE, SLOW, Control

SAMPLES, BATCH = 203, 24
# Rank 0 alone writes the checkpoint, into the working folder; every rank loads it.
SCRIPT = """
import os, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
step = torch.load("last.pt")["step"] + 1 if os.path.exists("last.pt") else 0
with open(f"begins-{os.environ['MUSTER_NODE']}.log", "a") as file:
    file.write(f"{step} {dist.get_world_size()}\\n")
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    if dist.get_rank() == 0 and step % 200 == 0:
        torch.save({"step": step}, "last.tmp")
        os.replace("last.tmp", "last.pt")
    step += 1
    time.sleep(0.02)
"""


def train(checkpoint_every=10):
    """Arguments of a deploy of Muster's trainer that records on each host which samples its rank was given."""
    often = f"--steps 1000000 --checkpoint-every {checkpoint_every}"
    return (*SLOW, "--args", f"--recipe counts.py --batch {BATCH} {often} --eval-every 0")


def script(folder):
    """Make a folder with the script, and return the arguments of a deploy of it."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return "--folder", str(folder), "--script", "train.py"


class Run(Control):
    """A run that a `muster deploy` follows. `hosts`: the hosts that train, and the `more` that take part otherwise."""

    def __init__(self, rack, log, *words, hosts=None, more=(), **environment):
        super().__init__(rack)
        self.environment |= environment
        trains = hosts or rack.hosts[:3]
        self.hosts, self.log = [*trains, *more], log
        line = self.line("deploy", "--run", self.run, "--image", BASE, *words, hosts=trains)
        with log.open("wb") as file:
            self.followed = self.background(line, stdout=file, stderr=file)

    def events(self, kind):
        """Events of one kind from all hosts, sorted by time, since another host has rank 0 after a loss."""
        files = sorted((self.dir / "ranks").glob("rank-*.jsonl"))
        found = [event for path in files for event in waiting.lines(path) if event["kind"] == kind]
        return sorted(found, key=lambda event: event["t"])

    def until_said(self, words, seconds=180):
        try:
            waiting.until(lambda: words in self.log.read_text(), f"{words!r}", seconds)
        except AssertionError as late:
            told = [line for line in self.log.read_text().splitlines() if not line.startswith("step ")]
            raise AssertionError("\n".join([f"{late}; it said:", *told[-40:]])) from None

    def taken(self, last):
        """How often each sample is in the weights of step `last`: a start counts up to where the next start began."""
        plans, counted = self.events("plan"), Counter()
        ends = [plan["start_step"] for plan in plans[1:]] + [last]
        for number, (plan, end) in enumerate(zip(plans, ends, strict=True)):
            before = plans[number - 1]["t"] if number else 0.0
            for host in self.hosts:
                lives = {int(path.name.rpartition("-")[2]) / 1e9: path for path in self.dir.glob(f"seen-{host}-*")}
                for began in sorted(t for t in lives if before < t < plan["t"])[-1:]:
                    rows = lives[began].read_text().splitlines()
                    for row in rows[1 : 1 + end - plan["start_step"]]:  # the first row settles DDP's buckets
                        counted.update(map(int, row.split()))
        return counted

    def begins(self, host):
        """The step and the world size at each start of the script on a host."""
        told = self.rack.on(host, f"cd ~/.muster/runs/{self.run} && cat work/begins-{host}.log 2>/dev/null; true")
        return [tuple(map(int, line.split())) for line in told.splitlines()]

    def until_begun(self, hosts, count):
        """Wait until the last start of the script on each of `hosts` had `count` ranks; return their common step."""

        def begun():
            lasts = [(self.begins(host) or [(0, 0)])[-1] for host in hosts]
            return lasts if {world for _, world in lasts} == {count} else None

        steps = {step for step, _ in waiting.until(begun, f"{count} ranks", 120)}
        assert len(steps) == 1, steps
        return steps.pop()

    def until_kept(self, host):
        """Wait for the checkpoint, or a copy of it, on a host."""
        look = f"cd ~/.muster/runs/{self.run} && test -e work/last.pt && echo kept; true"
        waiting.until(lambda: self.rack.on(host, look), f"a checkpoint on {host}", 60)

    def cut_power(self, host):
        """Switch the host off."""
        subprocess.run(["docker", "kill", self.rack.container(host)], check=True, capture_output=True)

    def boot(self, host):
        """Switch the host on again, and wait until it answers."""
        subprocess.run(["docker", "start", self.rack.container(host)], check=True, capture_output=True)
        waiting.until(lambda: self.rack.is_up(host), f"{host} to answer", 90)

    def part(self, host, others, word="I"):
        """Drop all packets between `host` and `others` ("I"), or let them pass again ("D")."""
        for other in others:
            address = self.rack.address(other)
            for chain, way in (("INPUT", "-s"), ("OUTPUT", "-d")):
                self.rack.root(host, "iptables", f"-{word}", chain, way, address, "-j", "DROP")

    def told(self, host, text, seconds=60):
        """Wait until the node on `host` reports this text about itself to the other nodes."""
        last = f"grep says ~/.muster/runs/{self.run}/nodes/.{host}/journal.jsonl 2>/dev/null | tail -n 1"
        waiting.until(lambda: text in self.rack.on(host, last), f"{text} of {host}", seconds)

    def seen(self, host):
        """For each process of the host's rank: when it began and when it last got samples, in unix seconds."""
        look = (
            f"cd ~/.muster/runs/{self.run} && for f in seen-{host}-*; do stat -c '%n %.6Y' $f; done 2>/dev/null; true"
        )
        rows = [line.split() for line in self.rack.on(host, look).splitlines()]
        return sorted((int(name.rpartition("-")[2]) / 1e9, float(last)) for name, last in rows)

    def until_trained(self):
        """Wait for a checkpoint newer than this call."""
        known = len(self.events("checkpoint"))
        waiting.until(lambda: len(self.events("checkpoint")) > known, "a checkpoint", 120)

    def until_ended(self, host):
        """Wait until the node on `host` has ended itself and the engine has started it again."""
        look = ("docker", "inspect", "--format", "{{.RestartCount}}", f"muster-{self.run}")
        waiting.until(lambda: int(self.rack.on(host, *look)) > 0, f"the node of {host} to end itself", 90)

    def stop_and_count(self):
        """Stop the run; fail if a sample is repeated or missed in the weights of its last checkpoint."""
        assert self.fab("stop", "--run", self.run).returncode == 0
        assert self.followed.wait(90) == 75, self.log.read_text()
        assert self.fab("fetch", "--run", self.run).returncode == 0
        last = self.events("checkpoint")[-1]["step"]
        whole = StreamSampler(SAMPLES, batch=BATCH, micro_batches=1, world=1, rank=0, seed=0, consumed=0)
        assert self.taken(last) == Counter(whole.indices(0, BATCH * last))
