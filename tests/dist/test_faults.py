"""A fault ends the run soon on all nodes, with its cause and place; nothing hangs and nothing is lost."""

import json
import os
import signal
import subprocess
import time

import pytest
import torch

from lab.waiting import alive, events, lines, until
from muster.checkpoint import store


def ended(run, seconds=60):
    """Wait until every node has ended; return the set of exit codes."""
    until(lambda: None not in run.codes().values(), "all nodes to end", seconds)
    return set(run.codes().values())


def verdict(run):
    """The verdict that all nodes left, which must be the same."""
    verdicts = [json.loads(path.read_text()) for path in sorted((run.run_dir / "outcome").glob("*.json"))]
    assert len(verdicts) == len(run.spec.nodes)
    assert len({each["message"] for each in verdicts}) == 1
    return verdicts[0]


def test_a_loss_that_is_not_finite_stops_all_before_the_step_and_names_the_rank(nodes, recipe_file):
    body = """
    calls = 0
    def loss(model, batch):
        global calls
        calls += 1
        ids, x, y = batch
        bad = math.nan if RANK == 1 and calls == 14 else 0.0  # the settling pass is the first call
        return ((model(x) - y) ** 2).mean() + bad
    """
    options = (
        "--recipe",
        recipe_file(body),
        "--steps",
        50,
        "--checkpoint-every",
        5,
        "--eval-every",
        0,
        "--log-every",
        1,
    )
    run = nodes(1, *options).start()
    assert ended(run) == {1}
    verdicts = verdict(run)
    assert (verdicts["verdict"], verdicts["rank"], verdicts["node"]) == ("failed", 1, "worker-1")
    assert "nan on rank 1 (worker-1) at step 13" in verdicts["message"]
    assert "step-00000010" in verdicts["hint"]
    assert lines(run.run_dir / "metrics.jsonl")[-1]["step"] == 12
    assert len(events(run.run_dir, 0, "started")) == 1  # no restart: it would end the same way


def test_a_recipe_that_raises_on_one_rank_ends_all_with_its_file_and_line(nodes, recipe_file):
    body = """
    def loss(model, batch):
        ids, x, y = batch
        if RANK == 1:
            raise KeyError("no such column")
        return ((model(x) - y) ** 2).mean()
    """
    run = nodes(1, "--recipe", recipe_file(body), "--steps", 50).start()
    assert ended(run) == {1}
    verdicts = verdict(run)
    assert (verdicts["rank"], verdicts["node"]) == (1, "worker-1")
    assert "mine.py:" in verdicts["message"]
    assert "KeyError" in verdicts["message"]
    assert "Traceback" in (run.run_dir / "logs/rank-1.log").read_text()
    for node in ("master", "worker-1"):
        assert "Traceback" not in (run.run_dir / f"logs/{node}.log").read_text()


def test_fewer_samples_than_ranks_are_refused_once(nodes, recipe_file):
    run = nodes(2, "--recipe", recipe_file(train=2), "--steps", 5, "--batch", 8).start()
    assert ended(run) == {2}
    assert "2 training samples for 3 ranks" in verdict(run)["message"]


def test_a_backend_this_machine_lacks_is_refused_at_once(nodes):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    run = nodes(1, "--backend", "nccl").start()
    assert ended(run) == {2}
    assert "nccl" in verdict(run)["message"]
    assert "Traceback" not in (run.run_dir / "logs/master.log").read_text()


def test_a_bad_option_is_refused_before_torch_is_imported(nodes):
    run = nodes(1, "--stpes", 5)
    began = time.monotonic()
    run.start()
    assert ended(run) == {2}
    assert time.monotonic() - began < 5
    for node in ("master", "worker-1"):
        verdicts = json.loads((run.run_dir / f"outcome/{node}-agent.json").read_text())
        assert verdicts["verdict"] == "refused"
        assert "--stpes" in verdicts["message"]
        assert "--stpes" in (run.run_dir / f"logs/{node}.log").read_text()


def test_a_full_disk_keeps_the_checkpoint_before_it(torchrun, tmp_path):
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    # A checkpoint of digits takes 0.95 MB: two fit, with the other files of a run.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2600k", "tmpfs", disk], check=True)
    try:
        run = torchrun(1, "--steps", 40, "--checkpoint-every", 10, "--keep", 9, "--eval-every", 0, folder="disk")
        assert run.wait() == 1, run.output
        assert events(disk, 0, "checkpoint_failed")
        assert len(events(disk, 0, "step")) >= 4  # it kept training
        end = events(disk, 0, "outcome")[0]
        assert "the last checkpoint is not on disk" in end["message"]
        usable, damaged = store.newest_usable(disk / "checkpoints")
        assert usable
        assert not damaged
        assert str(usable.path) in end["hint"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_node_that_never_starts_ends_the_others_with_a_clear_error(nodes):
    run = nodes(1, "--steps", 5)
    run.spec = run.spec.__class__(
        **{
            **run.spec.__dict__,
            "nodes": tuple(
                node.__class__(
                    **{
                        **node.__dict__,
                        "environment": {
                            **node.environment,
                            "PET_RDZV_CONF": node.environment["PET_RDZV_CONF"].replace(
                                "join_timeout=60", "join_timeout=6"
                            ),
                        },
                    }
                )
                for node in run.spec.nodes
            ),
        }
    )
    run.start("master")
    until(lambda: run.codes() == {"master": 1}, "the master to give up", 60)
    assert "RendezvousTimeoutError" in (run.run_dir / "logs/master.log").read_text()
    assert not events(run.run_dir, 0, "step")


def test_a_hung_rank_is_replaced_and_the_run_continues(nodes):
    run = nodes(1, "--steps", 3000, "--checkpoint-every", 20, "--eval-every", 0, "--timeout", 4).start()
    until(lambda: events(run.run_dir, 0, "checkpoint"), "a checkpoint")
    hung = events(run.run_dir, 1, "started")[0]["pid"]
    os.kill(hung, signal.SIGSTOP)
    until(lambda: len(events(run.run_dir, 1, "started")) == 2, "the hung rank to be replaced", 60)
    assert not alive(hung)
    since = events(run.run_dir, 0, "started")[-1]
    until(lambda: any(e["t"] > since["t"] for e in events(run.run_dir, 0, "step")), "training to go on")


def test_no_process_of_a_run_outlives_its_agent(nodes):
    run = nodes(0, "--steps", 5000, "--eval-every", 0).start()
    until(lambda: events(run.run_dir, 0, "step"), "a first step")
    pids = run.pids("master")
    assert len(pids) == 5  # agent, torchrun, the ranks' store, the rank, and the process that records telemetry
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids), "its torchrun, store and rank to go", 30)


def test_a_run_that_never_takes_a_step_gives_up(nodes, recipe_file):
    body = """
    def datasets(data):
        os.kill(os.getpid(), 9)  # what the kernel does to a process that takes too much memory
    """
    run = nodes(0, "--recipe", recipe_file(body), "--steps", 5).start()
    assert ended(run, 90) == {1}
    assert "5 times without a single step" in verdict(run)["message"]


def test_a_node_that_waits_for_a_lost_peer_ends_soon_when_it_is_asked_to_stop(nodes):
    run = nodes(1, "--steps", 1_000_000, "--checkpoint-every", 0).start()
    until(lambda: events(run.run_dir, 0, "step"), "the first steps", 60)
    rank = events(run.run_dir, 0, "started")[0]["pid"]
    for pid in run.pids("worker-1"):
        os.kill(pid, signal.SIGKILL)
    # The master's rank dies because of the lost peer; then torchrun waits for that peer to start again.
    until(lambda: not alive(rank), "the master's rank to miss its peer", 60)
    asked = time.monotonic()
    run.terminate("master")
    until(lambda: run.codes()["master"] is not None, "the master to end", 60)
    assert run.codes()["master"] == 75
    assert time.monotonic() - asked < 15, "it was killed after its grace, not asked"
