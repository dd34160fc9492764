"""A node is lost, the first included: the others train on, and no sample is repeated or missed."""

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
STEPS, BATCH = 150, 24


def grouped(nodes, recipe, least=2):
    """Three nodes that may lose one."""
    options = ("--recipe", recipe, "--batch", BATCH, "--steps", STEPS, "--checkpoint-every", 10, "--eval-every", 0)
    run = nodes(2, *options)
    run.spec = run.spec.grouped(least, machine.doors(3), "key")
    return run.start()


def epochs(run):
    """What was told of who trains."""
    return [event["members"] for event in events(run.run_dir, 0, "members")]


def test_the_first_node_is_lost_and_comes_back_and_another_is_lost(nodes, recipe_file):
    run = grouped(nodes, recipe_file(RECORD))
    until(lambda: events(run.run_dir, 0, "checkpoint"), "a checkpoint")
    os.kill(run.pids("master")[0], signal.SIGKILL)
    until(lambda: epochs(run) == [["worker-1", "worker-2"]], "two to train on", 30)
    until(lambda: run.restarting_codes() and len(epochs(run)) == 2, "the first node to be back", 60)
    assert epochs(run)[-1] == ["master", "worker-1", "worker-2"]
    until(lambda: events(run.run_dir, 0, "plan")[2:], "all three to train")
    os.kill(run.pids("worker-1")[0], signal.SIGKILL)
    until(lambda: run.codes()["master"] is not None and run.codes()["worker-2"] is not None, "the end", 90)
    assert run.codes() == {"master": 0, "worker-1": -signal.SIGKILL, "worker-2": 0}
    assert taken(run) == Counter(
        StreamSampler(203, batch=BATCH, micro_batches=1, world=1, rank=0, seed=0, consumed=0).indices(0, BATCH * STEPS)
    )


def taken(run):
    """How often each sample is in the final weights: of each start the steps up to where the next one began."""
    starts = [event["start_step"] for event in events(run.run_dir, 0, "plan")]
    assert len(starts) == 4, starts
    counted = Counter()
    for number, (begin, end) in enumerate(zip(starts, [*starts[1:], STEPS], strict=True)):
        for rank in range(3):
            lives = events(run.run_dir, rank, "started")
            life = next((each for each in lives if _start(run, each) == number), None)
            if life:
                path = run.run_dir / f"seen-{rank}-{life['pid']}"
                rows = [[int(i) for i in row.split()] for row in path.read_text().splitlines()]
                for row in rows[1 : 1 + end - begin]:  # the first is the pass that settles DDP's buckets
                    counted.update(row)
    return counted


def _start(run, life):
    """The number of the start that a rank's life belongs to: the plan that was told next."""
    return next(i for i, plan in enumerate(events(run.run_dir, 0, "plan")) if plan["t"] >= life["t"])


def test_a_node_that_is_left_alone_ends_itself(nodes, recipe_file):
    run = grouped(nodes, recipe_file(RECORD))
    until(lambda: events(run.run_dir, 0, "checkpoint"), "a checkpoint")
    for name in ("master", "worker-2"):
        os.kill(run.pids(name)[0], signal.SIGKILL)
    until(lambda: run.codes()["worker-1"] == 1, "the last one to end itself", 60)
    assert "worker-1 sees 1 of 3 nodes" in (run.run_dir / "logs/worker-1.log").read_text()


def test_a_rank_that_sigstop_holds_is_started_again_and_training_goes_on(nodes, recipe_file):
    run = grouped(nodes, recipe_file(RECORD))
    life = until(lambda: events(run.run_dir, 1, "started"), "rank 1")[-1]
    until(lambda: events(run.run_dir, 0, "checkpoint"), "a checkpoint")
    os.kill(life["pid"], signal.SIGSTOP)
    # A collective's timeout (--timeout 60) would do it as well, much later.
    until(lambda: run.codes()["master"] == 0, "the end", 50)
    assert "SIGSTOP" in events(run.run_dir, 1, "ended")[0]["how"]
