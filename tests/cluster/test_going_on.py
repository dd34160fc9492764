"""A host is lost or leaves, the first included: the others train on, no sample repeated or missed (`--min-nodes`)."""

import subprocess
from collections import Counter

import pytest

from lab import waiting
from muster.data import StreamSampler
from tests.cluster.control import BASE, HOME, SLOW, Control

SAMPLES, BATCH = 203, 24
TRAIN = ("--args", f"--recipe counts.py --batch {BATCH} --steps 1000000 --checkpoint-every 10 --eval-every 0")


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


class Run(Control):
    """A run on all three hosts, of which two train on; a `fab deploy` follows it."""

    def __init__(self, rack, log, *words):
        super().__init__(rack)
        self.hosts, self.log = rack.hosts, log
        line = self.line("deploy", "--run", self.run, "--image", BASE, *words, "--min-nodes", "2")
        with log.open("wb") as file:
            self.followed = subprocess.Popen(line, cwd=HOME, env=self.environment, stdout=file, stderr=file)

    def events(self, kind):
        """Events of one kind of all hosts, in the order of time: another host has rank 0 after a loss."""
        found = [event for rank in range(3) for event in waiting.events(self.dir, rank, kind)]
        return sorted(found, key=lambda event: event["t"])

    def until_said(self, words, seconds=90):
        waiting.until(lambda: words in self.log.read_text(), f"{words!r} in {self.log}", seconds)

    def taken(self, last):
        """How often each sample is in the weights of step `last`: each start counts up to where the next one began."""
        plans, counted = self.events("plan"), Counter()
        ends = [plan["start_step"] for plan in plans[1:]] + [last]
        for number, (plan, end) in enumerate(zip(plans, ends, strict=True)):
            before = plans[number - 1]["t"] if number else 0.0
            for host in self.hosts:
                lives = {int(path.name.rpartition("-")[2]) / 1e9: path for path in self.dir.glob(f"seen-{host}-*")}
                for began in sorted(t for t in lives if before < t < plan["t"])[-1:]:
                    rows = lives[began].read_text().splitlines()
                    for row in rows[1 : 1 + end - plan["start_step"]]:  # the first settles DDP's buckets
                        counted.update(map(int, row.split()))
        return counted

    def begins(self, host):
        """Step and world of each start of the script on a host."""
        told = self.rack.on(host, f"cd ~/.muster/runs/{self.run} && cat work/begins-{host}.log 2>/dev/null; true")
        return [tuple(map(int, line.split())) for line in told.splitlines()]

    def until_begun(self, hosts, count):
        """Wait until the script's last start on all of these was with so many ranks; the step, the same on all."""

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

    def end(self):
        """Nothing is left of it."""
        if self.followed.poll() is None:
            self.followed.kill()
            self.followed.wait()
        self.clean()


@pytest.fixture
def run(rack, tmp_path):
    made = Run(rack, tmp_path / "told", *SLOW, *TRAIN)
    yield made
    made.end()


@pytest.fixture
def script_run(rack, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(SCRIPT)
    made = Run(rack, tmp_path / "told", "--folder", str(tmp_path / "code"), "--script", "train.py")
    yield made
    made.end()


def test_the_first_host_loses_power_and_a_script_goes_on_from_what_rank_0_wrote_there(script_run):
    run, (first, second, third) = script_run, script_run.hosts
    run.until_begun(run.hosts, 3)
    run.until_kept(second)
    host, begun = run.rack.container(first), len(run.begins(first))
    subprocess.run(["docker", "kill", host], check=True, capture_output=True)
    try:
        run.until_said(f"{first} is lost: {second} and {third} start the script again")
        went_on = run.until_begun((second, third), 2)
    finally:
        subprocess.run(["docker", "start", host], check=True, capture_output=True)
    assert went_on > 0
    run.until_said(f"{first} is back: {first}, {second} and {third} start the script again")
    waiting.until(lambda: run.rack.is_up(first), "the host to answer", 90)
    waiting.until(lambda: len(run.begins(first)) > begun, "its rank to begin again", 120)
    assert run.until_begun(run.hosts, 3) > went_on
    assert run.fab("stop", "--run", run.run).returncode == 0
    assert run.followed.wait(90) == 75, run.log.read_text()


def test_the_first_hosts_disk_is_lost_and_a_script_goes_on_from_the_copy_of_a_neighbour(script_run, tmp_path):
    run, (first, *others) = script_run, script_run.hosts
    run.until_begun(run.hosts, 3)
    run.until_kept(others[0])
    assert run.fab("stop", "--run", run.run).returncode == 0
    assert run.followed.wait(90) == 75, run.log.read_text()
    before = {host: len(run.begins(host)) for host in others}
    run.rack.on(first, f"rm -rf ~/.muster/runs/{run.run}")
    more = ("--folder", str(tmp_path / "code"), "--script", "train.py", "--min-nodes", "2", "--detach")
    again = run.deploy(*more, hosts=run.hosts)
    assert again.returncode == 0, again.stderr
    waiting.until(lambda: all(len(run.begins(host)) > before[host] for host in others), "the next start", 90)
    assert run.until_begun(run.hosts, 3) > 0


def test_the_first_host_loses_power_and_comes_back_and_the_last_ones_node_is_killed(run):
    first, second, third = run.hosts
    waiting.until(lambda: run.events("checkpoint")[1:], "two checkpoints", 120)
    host = run.rack.container(first)
    subprocess.run(["docker", "kill", host], check=True, capture_output=True)
    try:
        run.until_said(f"{first} is lost: {second} and {third} train on from step")
    finally:
        subprocess.run(["docker", "start", host], check=True, capture_output=True)
    run.until_said(f"{first} is back: {first}, {second} and {third} train on from step")
    waiting.until(lambda: run.events("plan")[2:], "all three to train")
    run.rack.on(third, f"docker kill muster-{run.run}")
    run.until_said(f"{third} is lost: {first} and {second} train on from step")
    assert run.fab("stop", "--run", run.run).returncode == 0
    assert run.followed.wait(90) == 75, run.log.read_text()
    assert run.fab("fetch", "--run", run.run).returncode == 0
    last = run.events("checkpoint")[-1]["step"]
    whole = StreamSampler(SAMPLES, batch=BATCH, micro_batches=1, world=1, rank=0, seed=0, consumed=0)
    assert run.taken(last) == Counter(whole.indices(0, BATCH * last))


def test_the_first_host_leaves_and_comes_back_and_meanwhile_the_second_must_stay(run):
    first, second, third = run.hosts
    waiting.until(lambda: run.events("checkpoint")[1:], "two checkpoints", 120)
    left = run.fab("leave", "--run", run.run, hosts=[first])
    assert left.returncode == 0, left.stderr
    assert f"{first} has left {run.run}: {second} and {third} train on" in left.stdout
    state = ("docker", "inspect", "--format", "'{{.State.Status}} {{.State.ExitCode}}'", f"muster-{run.run}")
    assert run.rack.on(first, *state).strip() == "exited 0"
    run.until_said(f"{first} has left: {second} and {third} train on from step")
    for host, why in ((first, "it has left"), (second, "1 of 3 nodes would be left")):
        refused = run.fab("leave", "--run", run.run, hosts=[host])
        assert refused.returncode == 2
        assert why in refused.stderr
    joined = run.fab("join", "--run", run.run, hosts=[first])
    assert joined.returncode == 0, joined.stderr
    run.until_said(f"{first} is back: {first}, {second} and {third} train on from step")
    refused = run.fab("join", "--run", run.run, hosts=[first])
    assert refused.returncode == 2
    assert f"{first} is in {run.run} already" in refused.stderr
    run.rack.on(third, f"docker kill muster-{run.run}")
    run.until_said(f"{third} is lost: {first} and {second} train on from step")
    assert run.fab("join", "--run", run.run, hosts=[third]).returncode == 0
    run.until_said(f"{third} is back: {first}, {second} and {third} train on from step")
    assert run.fab("stop", "--run", run.run).returncode == 0
    assert run.followed.wait(90) == 75, run.log.read_text()
    assert run.fab("fetch", "--run", run.run).returncode == 0
    last = run.events("checkpoint")[-1]["step"]
    whole = StreamSampler(SAMPLES, batch=BATCH, micro_batches=1, world=1, rank=0, seed=0, consumed=0)
    assert run.taken(last) == Counter(whole.indices(0, BATCH * last))
