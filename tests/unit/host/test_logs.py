"""Which run and rank a line of a console, or of a rank's own log, belongs to."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.engine.engine import Container
from deploy.host import facts
from deploy.host import logs as host_logs
from deploy.host.commands import RUN_IN_CONTAINER

HOME = Path(__file__).resolve().parents[3]

# An engine keeps 90 MB of a console. Here all sizes are a fiftieth of the real ones: the script's
# output, the interval of the agent's counts in it, and how much may arrive late.
PART = 50
TALKS = "for number in range(10_000): print(number, 'x' * 100)"
RELAY = f"""
import pathlib, subprocess, sys
from trainer.node.agent import console, output
console._COUNT_EVERY //= {PART}
console._CONSOLE_RATE *= 1000  # on a busy machine lines come in heaps, and the writer gets its turn late
console._QUEUE_MOST *= 1000
relay = output.Output(pathlib.Path(sys.argv[2]), None, {{}})
process = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)
relay.follow(process)
process.wait()
relay.finish()
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    """All lines of a script's console as its agent forwards them."""
    line = [sys.executable, "-c", RELAY, TALKS, str(tmp_path_factory.mktemp("outcome"))]
    return subprocess.run(line, cwd=HOME, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture(autouse=True)
def at_a_fiftieth(monkeypatch):
    monkeypatch.setattr(host_logs, "_SLACK", host_logs._SLACK // PART)


def misses(lines, whole=True):
    """How many times ConsoleCount reports that lines are missing from these."""
    missed = []
    heard = host_logs.ConsoleCount(lambda: missed.append(1), whole)
    own = [line for line in lines if not heard.is_count(line)]
    assert all(line.split()[0].isdigit() for line in own)
    return len(missed)


def test_a_console_read_completely_raises_no_alarm_wherever_reading_begins(console):
    assert len([line for line in console if line.startswith("muster-said ")]) >= 4
    assert misses(console) == 0
    assert misses(console + console) == 0  # a node that was restarted
    assert misses([*console, console[-1]]) == 0  # two streams, each with its own end
    assert misses(console[5000:], whole=False) == 0


@pytest.mark.parametrize(("first", "last"), [(0, 5000), (0, 2000), (4000, 9980)])
def test_lines_missing_at_the_start_or_in_between_are_reported_once(console, first, last):
    assert misses([*console[:first], *console[last:]]) == 1


def host(place, ranks, run="r", state="running", logs=()):
    variables = (f"PET_NPROC_PER_NODE={ranks}", "MUSTER_SENT=1")
    labels = {"muster.run": run, "muster.node": "n", "muster.place": str(place), "muster.command": "train.py"}
    mounts = {RUN_IN_CONTAINER: f"/u/.muster/runs/{run}"}
    seen = Container("0", f"muster-{run}", labels, mounts, state, variables=variables)
    return host_logs.parse([facts.container_of(seen, "/u")], "\n".join(f"{run}/logs/rank-{n}.log" for n in logs))


def members_of(hosts):
    return {name: container for name, of_host in hosts.items() for container in of_host.members}


def test_ranks_are_numbered_node_by_node_in_the_order_of_places():
    hosts = {"b": host(1, 4), "a": host(0, 8), "c": host(2, 1)}
    members = members_of(hosts)
    ranks = {name: host_logs.rank_text([own]) for name, own in host_logs.ranks_of(members).items()}
    assert ranks == {"a": "0-7", "b": "8-11", "c": "12"}


def test_an_unasked_node_is_assumed_to_have_as_many_ranks_as_its_neighbour():
    assert host_logs.ranks_of(members_of({"b": host(1, 8)})) == {"b": range(8, 16)}


def test_a_ranks_own_log_takes_precedence_over_its_console():
    hosts = {"a": host(0, 2, logs=[0, 1]), "b": host(1, 2)}
    assert host_logs.host_of_rank(hosts, members_of(hosts), "r", 1) == ("a", True)
    with pytest.raises(DeployError, match="rank 3 has no log of its own on b") as silent:
        host_logs.host_of_rank(hosts, members_of(hosts), "r", 3)
    assert silent.value.hint.startswith("it has printed nothing, or shares a console")
    with pytest.raises(DeployError, match="no host here has lines of rank 4"):
        host_logs.host_of_rank(hosts, members_of(hosts), "r", 4)
    with pytest.raises(DeployError) as gone:  # the run has ended and its containers are removed
        host_logs.host_of_rank(hosts, {}, "r", 2)
    assert gone.value.hint.startswith("there are logs 0, 1: a rank that prints nothing has none")
    alone = {"a": host(0, 1), "b": host(1, 1)}
    assert host_logs.host_of_rank(alone, members_of(alone), "r", 1) == ("b", False)


def test_a_line_is_split_from_its_time_stamp():
    stamp = "2026-11-21T05:28:44.210615635Z"
    assert host_logs.split(f"{stamp} loss 0.1") == (stamp, "loss 0.1")
    assert host_logs.split(f"{stamp} ") == (stamp, "")
    assert host_logs.split("the rest of a long line") == ("", "the rest of a long line")
    piece = "x" * 16384
    assert host_logs.split(f"{stamp} {piece}{stamp} {piece}") == (stamp, piece + piece)
    assert host_logs.split(f"{stamp} at {stamp} it began") == (stamp, f"at {stamp} it began")
