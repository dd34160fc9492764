"""A host is lost, the first included: the others train on, and no sample is repeated or missed (`--min-nodes`)."""

import subprocess
from collections import Counter

import pytest

from lab import waiting
from muster.data import StreamSampler
from tests.cluster.control import BASE, HOME, SLOW, Control

SAMPLES, BATCH = 203, 24
TRAIN = ("--args", f"--recipe counts.py --batch {BATCH} --steps 1000000 --checkpoint-every 10 --eval-every 0")


class Run(Control):
    """A run of the trainer on all three hosts, of which two train on; a `fab deploy` follows it."""

    def __init__(self, rack, log):
        super().__init__(rack)
        self.hosts, self.log = rack.hosts, log
        line = self.line("deploy", "--run", self.run, "--image", BASE, *SLOW, *TRAIN, "--min-nodes", "2")
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


@pytest.fixture
def run(rack, tmp_path):
    made = Run(rack, tmp_path / "told")
    yield made
    if made.followed.poll() is None:
        made.followed.kill()
        made.followed.wait()
    made.clean()


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
