"""Nodes as real local processes: started, watched, restarted, and ended completely. The node here is a short script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.core.facts import NodeState
from deploy.local import backends, processes
from deploy.run import follow
from deploy.run.environment import NodeSpec
from lab.waiting import until
from tests.started import started

# These tests start programs.
pytestmark = pytest.mark.long

# Starts a child, prints both process ids, and waits: for a signal, for its standard input to close, or for ever.
NODE = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
print("up", os.getpid(), child.pid, os.environ.get("RANK"), flush=True)
sys.stdin.read()
child.kill()
sys.exit(75)
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[processes.LocalNodes]:
    made = processes.LocalNodes(tmp_path / "run-1", (sys.executable, "-c", NODE), tmp_path)
    yield made
    made.end()


def start(nodes: processes.LocalNodes, name: str, folder: Path) -> tuple[int, int]:
    """Start a node and wait until it is up; returns its process id and its child's."""
    environment = {"MUSTER_RUN_ID": "run-1", "MUSTER_RUN_DIR": str(folder / "run-1"), "MUSTER_NODE": name}
    nodes.start(NodeSpec(name, 0, environment), folder / f"{name}.log")
    return up(folder / f"{name}.log")


def up(log: Path, times: int = 1) -> tuple[int, int]:
    """Wait until the node has printed `times` times that it is up; returns the ids that it printed last."""
    until(lambda: log.read_text().count("up ") >= times and log.read_text().endswith("\n"), f"{times} starts", 20)
    _, own, child, _ = log.read_text().splitlines()[-1].split()
    return int(own), int(child)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def never(_: NodeState) -> bool:
    return False


def test_ending_a_run_leaves_no_process_of_it(nodes: processes.LocalNodes, tmp_path: Path) -> None:
    started = [*start(nodes, "master", tmp_path), *start(nodes, "worker-1", tmp_path)]
    assert len(processes.labelled(tmp_path / "run-1")) == 4
    nodes.end()
    assert all(gone(pid) for pid in started)
    assert processes.labelled(tmp_path / "run-1") == []


def test_a_process_that_ignores_signals_does_not_block_the_end(
    nodes: processes.LocalNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(nodes, "master", tmp_path)
    with monkeypatch.context() as stuck:  # imitates a hanging driver: no signal arrives
        stuck.setattr(processes, "kill", lambda _: time.sleep(0.05))
        stuck.setattr(processes, "_KILLED_S", 0.3)
        ending = threading.Thread(target=nodes.end, daemon=True)
        ending.start()
        ending.join(20)
        assert not ending.is_alive()


def test_a_killed_node_is_restarted_without_its_orphans_at_most_three_times(
    nodes: processes.LocalNodes, tmp_path: Path
) -> None:
    own, child = start(nodes, "worker-1", tmp_path)
    for restarts in range(1, processes.MOST_RESTARTS + 1):
        os.kill(own, signal.SIGKILL)
        until(lambda count=restarts: nodes.states(lambda _: True)[0].restarts == count, "the restart", 20)
        assert gone(child)
        own, child = up(tmp_path / "worker-1.log", restarts + 1)
    os.kill(own, signal.SIGKILL)
    until(lambda: nodes.states(lambda _: True)[0].state == "exited", "the end", 20)
    assert nodes.states(lambda _: True) == [NodeState("worker-1", "exited", -9, processes.MOST_RESTARTS)]


def test_a_failed_node_waits_for_another_nodes_verdict_before_it_restarts(tmp_path: Path) -> None:
    """The node failed because of the other node, a moment before that one reports it: then nobody may restart."""
    nodes = processes.LocalNodes(tmp_path / "run-1", (sys.executable, "-c", "import sys; sys.exit(1)"), tmp_path)
    environment = {"MUSTER_RUN_ID": "run-1", "MUSTER_RUN_DIR": str(tmp_path / "run-1"), "MUSTER_NODE": "master"}
    nodes.start(NodeSpec("master", 0, environment), tmp_path / "master.log")
    verdicts = list[str]()
    until(lambda: nodes.states(lambda _: not verdicts)[0].state == "exited", "its end", 20)
    verdicts.append("worker-1 failed")
    time.sleep(1.1)
    (ended,) = nodes.states(lambda _: not verdicts)
    assert (ended.state, ended.restarts) == ("exited", 0)


def test_a_node_that_may_not_be_restarted_stays_ended(nodes: processes.LocalNodes, tmp_path: Path) -> None:
    start(nodes, "master", tmp_path)
    assert nodes.states(never) == [NodeState("master", "running")]
    nodes.signal_all(signal.SIGTERM)
    until(lambda: nodes.states(never)[0].state == "exited", "the end", 20)
    assert nodes.states(never) == [NodeState("master", "exited", -15)]


def test_a_node_gets_its_own_environment_and_none_of_a_surrounding_run(
    nodes: processes.LocalNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("PET_NNODES", "9")
    own, _ = start(nodes, "master", tmp_path)
    heard = psutil.Process(own).environ()
    assert heard["MUSTER_NODE"] == "master"
    assert not {"RANK", "PET_NNODES"} & heard.keys()


def test_a_shell_script_finds_the_python_that_muster_chose_without_activation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    shown = (sys.executable, "-c", "import shutil; print(shutil.which('python'), flush=True)")
    nodes = processes.LocalNodes(tmp_path / "run-1", shown, tmp_path, script=True)
    nodes.start(NodeSpec("master", 0, {"MUSTER_RUN_DIR": str(tmp_path / "run-1")}), log := tmp_path / "log")
    until(lambda: log.read_text().endswith("\n"), "its words", 20)
    nodes.end()
    assert log.read_text().strip() == str(Path(sys.executable).with_name("python"))


def test_down_finds_only_runs_of_its_own_checkout_and_asks_before_it_kills(
    nodes: processes.LocalNodes, tmp_path: Path
) -> None:
    start(nodes, "master", tmp_path)
    assert processes.runs_alive(tmp_path / "elsewhere") == {}
    alive = processes.runs_alive(tmp_path)
    assert {run: len(members) for run, members in alive.items()} == {"run-1": 2}
    assert processes.stop(alive["run-1"], patience_s=0.5) is False, "its child has no agent any more: killed"
    assert processes.labelled(tmp_path / "run-1") == []


@pytest.mark.parametrize(("at_once", "wait_s"), [(True, 0.0), (False, 3.0)])
def test_ranks_get_the_grace_period_or_none_with_now(
    at_once: bool, wait_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_AFTER_STOP_S", 0.5)
    monkeypatch.setattr(follow, "_AFTER_GRACE_S", 0.0)
    (tmp_path / "record.json").write_text(json.dumps({"id": tmp_path.name, "again": "--grace 3s"}))
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    given = {**os.environ, "MUSTER_RUN_DIR": str(tmp_path)}
    with started([sys.executable, "-c", deaf], env=given, stdout=subprocess.PIPE) as agent:
        assert agent.stdout
        agent.stdout.readline()
        began = time.monotonic()
        backends.ProcessBackend.end(tmp_path, print, at_once)
        assert wait_s <= time.monotonic() - began < wait_s + 2


def test_runs_of_the_same_name_in_two_checkouts_do_not_affect_each_other(
    nodes: processes.LocalNodes, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    namesake = processes.LocalNodes(other / "run-1", (sys.executable, "-c", NODE), other)
    own, _ = start(nodes, "master", tmp_path)
    theirs, _ = start(namesake, "master", other)
    namesake.end()
    assert gone(theirs)
    assert not gone(own)


def test_a_run_is_found_through_a_link_to_the_folder_of_runs(tmp_path: Path) -> None:
    """Both its nodes and the command that drives it are found: users put runs/ on a disk with more room."""
    (tmp_path / "linked").symlink_to(tmp_path)
    over_link = tmp_path / "linked/run-1"
    nodes = processes.LocalNodes(over_link, (sys.executable, "-c", NODE), tmp_path)
    both = {*start(nodes, "master", tmp_path)}
    for folder in (over_link, tmp_path / "run-1"):
        assert {process.pid for process in processes.labelled(folder)} == both
        assert processes.runs_alive(folder.parent).keys() == {"run-1"}
    nodes.end()
    (tmp_path / "run-1").mkdir()
    holds = f"import sys; held = open({str(over_link / '.lock')!r}, 'w'); print('up', flush=True); sys.stdin.read()"
    with started([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdout
        driver.stdout.readline()
        found = [processes.drivers(folder) for folder in (over_link, tmp_path / "run-1")]
        driver.kill()
    assert [[process.pid for process in each] for each in found] == [[driver.pid]] * 2


def test_a_run_whose_label_has_a_link_in_it_is_found(tmp_path: Path) -> None:
    """Earlier releases labelled runs this way: after an update, runs that still ran were lost from sight."""
    (tmp_path / "linked").symlink_to(tmp_path)
    given = {"MUSTER_RUN_DIR": str(tmp_path / "linked/run-1"), "PATH": os.environ["PATH"]}
    with started(["sleep", "60"], env=given) as process:
        until(lambda: processes.labelled(tmp_path / "linked/run-1") != [], "it is seen", 20)
        found = [processes.labelled(tmp_path / "run-1"), processes.runs_alive(tmp_path / "linked").get("run-1", [])]
        process.kill()
    assert [[each.pid for each in members] for members in found] == [[process.pid]] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_no_program_is_run_next_to_another_users_process(tmp_path: Path) -> None:
    """Anybody can give a process the label of a run; `muster exec` would start a program next to it, as root."""
    given = {"MUSTER_RUN_DIR": str(tmp_path), "MUSTER_NODE": "master", "PATH": os.environ["PATH"]}
    for user in (65534, 0):
        with started(["sleep", "60"], env=given, user=user, cwd="/") as process:
            until(lambda: processes.labelled(tmp_path) != [], "it is seen", 20)
            assert len(processes.heads(tmp_path)) == (user == 0)
            process.kill()
