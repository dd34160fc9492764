"""A spare takes a lost node's place, and the lost node then waits for one; spares may be lost, and nodes may leave."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from deploy.local import machine
from deploy.run.environment import group_variable
from lab.waiting import events, until
from tests.dist.conftest import waits_for
from trainer.node.membership.members import ENDS_S

SLOWLY = """
def seen(ids):
    time.sleep(0.02)
"""
STEPS = 100_000


def planned(run, least, spares=0, arbiter=""):
    """Make the last nodes of a local run spares, or one an arbiter; options allow this only for runs on hosts."""
    where = dict(zip(run.spec.names, machine.free_ports(len(run.spec.names)), strict=True))
    waiting = run.spec.names[len(where) - spares :]
    more = group_variable(least, "key", where, spares=waiting, arbiter=arbiter)
    run.spec = replace(run.spec.with_variables(more), least=least)


def grouped(nodes, recipe, spares=1, least=2):
    """Start three nodes that train, and spares; `least` nodes are enough to keep training."""
    options = ("--recipe", recipe, "--batch", 24, "--steps", STEPS, "--checkpoint-every", 10, "--eval-every", 0)
    run = nodes(2 + spares, *options)
    planned(run, least, spares)
    return run.start()


def epochs(run):
    """The members of each epoch, as rank 0's events report them."""
    return [event["members"] for event in events(run.run_dir, 0, "members")]


def trains(run):
    """Wait until the ranks have written a checkpoint since the call."""
    known = len(events(run.run_dir, 0, "checkpoint"))
    until(lambda: len(events(run.run_dir, 0, "checkpoint")) > known, "a checkpoint", 90)


def kill(run, name):
    os.kill(run.pids(name)[0], signal.SIGKILL)


def back(run, name):
    """Restart a lost node, and wait until it waits for an epoch."""
    until(lambda: run.nodes.states(lambda state: state.node == name) and run.codes()[name] is None, "a start")
    until(lambda: waits_for(run.run_dir / "nodes" / f".{name}") == 0, f"{name} to wait for an epoch")


def test_a_spare_takes_the_place_of_a_lost_node_which_waits_when_it_is_back(nodes, recipe_file):
    run = grouped(nodes, recipe_file(SLOWLY))
    trains(run)
    assert {event["node"] for rank in range(4) for event in events(run.run_dir, rank, "started")} == {
        "master",
        "worker-1",
        "worker-2",
    }
    kill(run, "worker-1")
    until(lambda: epochs(run) == [["master", "worker-2", "worker-3"]], "the spare to take the place", 30)
    trains(run)
    back(run, "worker-1")
    trains(run)
    trains(run)  # a node that is back takes part after the next checkpoint, if a place is free
    assert len(epochs(run)) == 1
    kill(run, "worker-3")
    until(lambda: epochs(run)[-1] == ["master", "worker-1", "worker-2"], "the node to take its place again", 30)
    trains(run)
    run.terminate("master")
    for name in ("master", "worker-1", "worker-2"):
        until(lambda name=name: run.codes()[name] == 75, "a stop, as asked", 60)


def test_a_spare_that_is_lost_while_it_enters_costs_the_others_nothing(nodes, recipe_file):
    run = grouped(nodes, recipe_file(SLOWLY), spares=2)
    trains(run)
    kill(run, "worker-1")
    until(lambda: epochs(run) == [["master", "worker-2", "worker-3"]], "the first spare to take the place", 30)
    kill(run, "worker-3")
    until(lambda: epochs(run)[-1] == ["master", "worker-2", "worker-4"], "the second spare to take it", 30)
    trains(run)
    back(run, "worker-3")
    kill(run, "worker-4")
    until(lambda: epochs(run)[-1] == ["master", "worker-2", "worker-3"], "the spare that is back to take it", 30)
    trains(run)


def test_a_run_without_its_first_host_that_a_spare_finishes_is_done_for_all(nodes, recipe_file):
    options = ("--recipe", recipe_file(SLOWLY), "--batch", 24, "--steps", 200, "--checkpoint-every", 10)
    run = nodes(4, *options, "--eval-every", 0)
    planned(run, 2, spares=2)
    run.start()
    trains(run)
    kill(run, "master")
    until(lambda: epochs(run) == [["worker-1", "worker-2", "worker-3"]], "a spare to take the place", 30)
    until(lambda: [code for code in run.codes().values() if code is not None][4:], "the end", 90)
    assert run.codes() == {"master": -9, **{f"worker-{number}": 0 for number in (1, 2, 3, 4)}}


def arbitrated(nodes, recipe):
    """Start two nodes that train, of which one may be lost, because worker-2 votes with them."""
    options = ("--recipe", recipe, "--batch", 24, "--steps", STEPS, "--checkpoint-every", 10, "--eval-every", 0)
    run = nodes(2, *options)
    planned(run, 1, arbiter="worker-2")
    return run.start()


def test_with_an_arbiter_either_of_two_nodes_keeps_training_and_a_stop_ends_all(nodes, recipe_file):
    run = arbitrated(nodes, recipe_file(SLOWLY))
    trains(run)
    kill(run, "master")
    until(lambda: epochs(run) == [["worker-1"]], "the other one to train on", 30)
    trains(run)
    back(run, "master")
    until(lambda: epochs(run)[1:] == [["master", "worker-1"]], "both to train", 60)
    trains(run)
    kill(run, "worker-1")
    until(lambda: epochs(run)[-1] == ["master"], "the first one to train on", 30)
    trains(run)
    for name in ("worker-2", "master"):
        run.terminate(name)
    until(lambda: run.codes()["master"] == run.codes()["worker-2"] == 75, "a stop, as asked", 60)


def test_the_arbiter_may_be_lost_and_a_node_that_is_left_alone_ends_itself(nodes, recipe_file):
    run = arbitrated(nodes, recipe_file(SLOWLY))
    trains(run)
    kill(run, "worker-2")
    trains(run)
    trains(run)
    assert epochs(run) == []
    kill(run, "worker-1")
    until(lambda: run.codes()["master"] == 1, "the last one to end itself", 60)
    assert epochs(run) == []


def test_a_lone_node_that_falls_silent_ends_before_the_other_one_trains(nodes, recipe_file):
    options = ("--recipe", recipe_file(SLOWLY), "--batch", 24, "--steps", STEPS, "--checkpoint-every", STEPS)
    run = nodes(2, *options, "--eval-every", 0)
    planned(run, 1, arbiter="worker-2")
    run.start()
    until(lambda: events(run.run_dir, 0, "plan"), "a start", 60)
    kill(run, "worker-1")
    until(lambda: epochs(run) == [["master"]], "one to train alone", 30)
    back(run, "worker-1")  # it waits, since there is no checkpoint after which it could take part
    stopped, silent = run.pids("master"), time.time()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: epochs(run)[1:] == [["worker-1"]], "the other one to train", 60)
    assert events(run.run_dir, 0, "members")[-1]["t"] - silent > ENDS_S
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    until(lambda: waits_for(run.run_dir / "nodes/.master") == 2, "the first one to leave its epoch", 30)


def leave(run, name):
    """Ask a node to leave, as `muster leave` does in its container; return its answer."""
    environment = {**os.environ, "MUSTER_RUN_DIR": str(run.run_dir), "MUSTER_NODE": name}
    asked = [sys.executable, "-P", "-m", "muster.trainer.node", "leave"]
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    return json.loads(subprocess.run(asked, env=environment, capture_output=True, check=True, timeout=60).stdout)


def test_the_first_node_leaves_and_the_next_may_not_until_it_is_back(nodes, recipe_file):
    run = grouped(nodes, recipe_file(SLOWLY), spares=0)
    trains(run)
    assert leave(run, "master") == {"why": "", "members": ["worker-1", "worker-2"]}
    until(lambda: run.codes()["master"] == 0, "the node to end", 30)
    trains(run)
    (told,) = events(run.run_dir, 0, "members")
    assert (told["members"], told["left"]) == (["worker-1", "worker-2"], ["master"])
    assert leave(run, "worker-1")["why"] == "1 of 3 nodes would be left, but --min-nodes is 2"
    back(run, "master")
    until(lambda: epochs(run)[-1] == ["master", "worker-1", "worker-2"], "all to train", 60)
    assert leave(run, "worker-1")["why"] == ""


def test_a_spare_takes_the_place_of_a_node_that_leaves(nodes, recipe_file):
    run = grouped(nodes, recipe_file(SLOWLY))
    trains(run)
    assert leave(run, "worker-1")["members"] == ["master", "worker-2", "worker-3"]
    until(lambda: run.codes()["worker-1"] == 0, "the node to end", 30)
    trains(run)
    assert len(epochs(run)) == 1
