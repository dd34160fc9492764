"""A node is lost, even the first: the others keep training, and no sample is repeated or missed."""

import os
import signal
from collections import Counter

from deploy.local import machine
from lab.waiting import events, until
from muster.data import StreamSampler

RECORD = """
def seen(ids):
    with open(f"{os.environ['MUSTER_RUN_DIR']}/seen-{RANK}-{os.getpid()}", "a") as file:
        file.write(" ".join(str(int(i)) for i in ids) + "\\n")
    time.sleep(0.02)
"""
STEPS, ENDLESS, BATCH = 150, 100_000, 24


def grouped(nodes, recipe, steps=STEPS, least=2):
    """Start three nodes, of which one may be lost."""
    options = ("--recipe", recipe, "--batch", BATCH, "--steps", steps, "--checkpoint-every", 10, "--eval-every", 0)
    run = nodes(2, *options)
    run.spec = run.spec.grouped(least, machine.free_ports(3), "key")
    return run.start()


def epochs(run):
    """The members of each epoch, as rank 0's events report them."""
    return [event["members"] for event in events(run.run_dir, 0, "members")]


def trains(run):
    """Wait for a checkpoint newer than this call."""
    known = len(events(run.run_dir, 0, "checkpoint"))
    until(lambda: len(events(run.run_dir, 0, "checkpoint")) > known, "a checkpoint", 90)


def test_the_first_node_is_lost_and_comes_back_and_another_is_lost(nodes, recipe_file):
    # Only the stop ends this run, because on a busy machine a node may need longer to return than any number of steps.
    run = grouped(nodes, recipe_file(RECORD), ENDLESS)
    trains(run)
    os.kill(run.pids("master")[0], signal.SIGKILL)
    until(lambda: ["worker-1", "worker-2"] in epochs(run), "two to train on", 60)
    trains(run)
    until(lambda: run.restarting_codes() and epochs(run)[-1][:1] == ["master"], "the first node to be back", 90)
    until(lambda: epochs(run)[-1] == ["master", "worker-1", "worker-2"], "all three to train", 60)
    trains(run)
    os.kill(run.pids("worker-1")[0], signal.SIGKILL)
    until(lambda: epochs(run)[-1] == ["master", "worker-2"], "the other two to train on", 60)
    trains(run)
    run.terminate("master")
    until(lambda: run.codes()["master"] is not None and run.codes()["worker-2"] is not None, "the end", 90)
    assert run.codes() == {"master": 75, "worker-1": -signal.SIGKILL, "worker-2": 75}
    last = events(run.run_dir, 0, "checkpoint")[-1]["step"]
    assert taken(run, last) == Counter(
        StreamSampler(203, batch=BATCH, micro_batches=1, world=1, rank=0, seed=0, consumed=0).indices(0, BATCH * last)
    )


def taken(run, last):
    """How often each sample is in the weights of step `last`: a start counts up to where the next start began."""
    plans, counted = events(run.run_dir, 0, "plan"), Counter()
    ends = [plan["start_step"] for plan in plans[1:]] + [last]
    for number, (plan, end) in enumerate(zip(plans, ends, strict=True)):
        before = plans[number - 1]["t"] if number else 0.0
        world = _last_life(run, 0, before, plan["t"])["world"]
        for rank in range(world):
            path = run.run_dir / f"seen-{rank}-{_last_life(run, rank, before, plan['t'])['pid']}"
            # Ranks that ended before their first step have seen no sample.
            rows = [[int(i) for i in row.split()] for row in path.read_text().splitlines()] if path.exists() else []
            for row in rows[1 : 1 + end - plan["start_step"]]:  # the first row settles DDP's buckets
                counted.update(row)
    return counted


def _last_life(run, rank, before, plan):
    """The `started` event of a rank in a start: the last one before the plan, which follows when all ranks began."""
    return [life for life in events(run.run_dir, rank, "started") if before < life["t"] <= plan][-1]


def test_a_node_that_is_left_alone_ends_itself(nodes, recipe_file):
    run = grouped(nodes, recipe_file(RECORD))
    until(lambda: events(run.run_dir, 0, "checkpoint"), "a checkpoint")
    for name in ("master", "worker-2"):
        os.kill(run.pids(name)[0], signal.SIGKILL)
    until(lambda: run.codes()["worker-1"] == 1, "the last one to end itself", 60)
    assert "worker-1 has seen only 1 of 3 nodes" in (run.run_dir / "logs/worker-1.log").read_text()


def test_a_rank_paused_by_sigstop_is_restarted_and_training_continues(nodes, recipe_file):
    run = grouped(nodes, recipe_file(RECORD))
    life = until(lambda: events(run.run_dir, 1, "started"), "rank 1")[-1]
    until(lambda: events(run.run_dir, 0, "checkpoint"), "a checkpoint")
    os.kill(life["pid"], signal.SIGSTOP)
    # A collective's timeout (--timeout 60) would also end it, but much later.
    until(lambda: run.codes()["master"] == 0, "the end", 50)
    assert "SIGSTOP" in events(run.run_dir, 1, "ended")[0]["how"]


LOCKED = """
import threading
taken = []

def seen(ids):
    taken.append(1)
    time.sleep(0.02)
    mark = f"{os.environ['MUSTER_RUN_DIR']}/locked"
    if RANK == 1 and len(taken) > 40 and not os.path.exists(mark):
        open(mark, "w").close()
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
"""


def test_a_deadlocked_rank_is_ended_before_its_collective_times_out_and_training_continues(nodes, recipe_file):
    run = grouped(nodes, recipe_file(LOCKED))
    until(lambda: run.codes()["master"] == 0, "the end", 150)
    assert "was stuck in" in events(run.run_dir, 1, "ended")[0]["how"]
