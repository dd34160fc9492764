"""The hosts' runs on the board: which are listed, which are followed; the board never changes a run."""

from __future__ import annotations

import signal
import threading
import time
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.core.names import NodeName, RunId
from deploy.core.results import Results
from deploy.host.status import HostRun, NodeStatus
from deploy.hosts.backend import Onlooker
from deploy.hosts.look import attach, board, status
from deploy.job.options import Options
from deploy.run.files import folders, locks
from lab.waiting import until


def on_host(name, changed=1.0, verdict="", running=False):
    """A run as a host reports it."""
    node = NodeStatus(RunId(name), NodeName("n"), 0, "train.py", "running", "Up", None, None) if running else None
    return HostRun(RunId(name), changed, 1 << 20, 40, verdict, node)


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """The `answers` of two hosts; `followed`: the runs that were followed. A follower ends when `over` is set."""
    made = SimpleNamespace(answers={"gpu-a": (), "gpu-b": ()}, followed=[], over=threading.Event())
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(status, "ask", lambda cluster, look: Results(made.answers))

    def follow(options, console, only_looks=False):
        assert only_looks
        made.followed.append((options.run, options.hosts))
        until(lambda: console.gone or made.over.is_set(), "the end of the board")
        return 0

    monkeypatch.setattr(attach, "attach", follow)
    return made


def test_runs_of_hosts_are_rows_with_the_command_that_fetches_them(hosts):
    hosts.answers = {"gpu-a": (on_host("done-1", 5.0, "done"),), "gpu-b": (on_host("done-1", 6.0, "done"),)}
    with board.HostRuns(Options(hosts="gpu-a,gpu-b")) as runs:
        until(runs.rows, "an answer of the hosts")
        (row,) = runs.rows()
    assert (row["id"], row["verdict"], row["ended"], row["live"], row["step"]) == ("done-1", "done", True, False, 40)
    assert (row["hosts"], row["seen"]) == ("gpu-a and gpu-b", 6.0)
    assert row["command"] == "muster fetch --hosts gpu-a,gpu-b done-1"
    assert hosts.followed == []


def test_the_newest_running_runs_are_followed_until_the_board_ends(hosts):
    """At most eight at the same time; a run that a command on this machine already follows is left to that command."""
    hosts.answers = {"gpu-a": tuple(on_host(f"run-{at}", float(at), running=True) for at in range(12)), "gpu-b": ()}
    taken = folders.RUNS / "run-11"
    taken.mkdir(parents=True)
    held = locks.hold_run(taken)
    with board.HostRuns(Options(hosts="gpu-a,gpu-b")) as runs:
        until(lambda: len(hosts.followed) == 8, "eight followers")
        assert all(row["live"] for row in runs.rows())
    assert {*hosts.followed} == {(f"run-{at}", "gpu-a") for at in range(3, 11)}
    held.release()


def test_a_run_is_followed_and_fetched_with_its_hosts_as_typed(hosts):
    """It was once followed as another user, on port 22: this failed, or showed a run of another machine."""
    hosts.answers = {"gpu-a": (on_host("done-1", 5.0, "done"), on_host("run-1", 6.0, running=True)), "gpu-b": ()}
    with board.HostRuns(Options(hosts="me@gpu-a:2222,gpu-b")) as runs:
        until(lambda: hosts.followed, "a follower")
        assert hosts.followed == [("run-1", "me@gpu-a:2222")]
        assert runs.rows()[0]["command"] == "muster fetch --hosts me@gpu-a:2222 done-1"


def test_a_run_whose_follower_failed_is_followed_again_once_its_host_is_back(hosts, monkeypatch):
    """After one cut link, the board once never looked at that run again, and never withdrew its error."""
    hosts.answers = {"gpu-a": (on_host("run-1", running=True),)}
    follow, faults = attach.attach, iter([DeployError("no host of run-1 has answered for 600 s")])

    def once_cut(options, console, only_looks=False):
        for fault in faults:
            raise fault
        return follow(options, console, only_looks)

    monkeypatch.setattr(attach, "attach", once_cut)
    monkeypatch.setattr(board, "_EVERY_S", 0.1)
    with board.HostRuns(Options(hosts="gpu-a")) as runs:
        until(lambda: hosts.followed == [("run-1", "gpu-a")], "the follower")
        until(lambda: not runs.faults, "no fault")


def test_runs_that_cannot_be_followed_block_no_others_and_are_still_shown_as_live(hosts, monkeypatch):
    """Once, the newest took all places in every round, and were shown as unfinished."""
    hosts.answers = {"gpu-a": tuple(on_host(f"run-{at}", float(at), running=True) for at in range(12)), "gpu-b": ()}
    follow, tried = attach.attach, []

    def only_the_oldest(options, console, only_looks=False):
        tried.append(options.run)
        if options.run != "run-0":
            raise DeployError("its disk is full")
        return follow(options, console, only_looks)

    monkeypatch.setattr(attach, "attach", only_the_oldest)
    monkeypatch.setattr(board, "_EVERY_S", 0.1)
    with board.HostRuns(Options(hosts="gpu-a,gpu-b")) as runs:
        until(lambda: hosts.followed == [("run-0", "gpu-a")], "the one that can be followed")
        until(lambda: tried.count("run-11") > 1, "another try")
        assert all(row["live"] for row in runs.rows())


def test_a_host_that_does_not_answer_is_a_fault_and_the_others_runs_are_shown(hosts):
    hosts.answers = {"gpu-a": (on_host("a", 5.0, "failed"),), "gpu-b": DeployError("gpu-b: connection refused")}
    with board.HostRuns(Options(hosts="gpu-a,gpu-b")) as runs:
        until(lambda: runs.faults, "the fault")
        assert [row["verdict"] for row in runs.rows()] == ["failed"]
        assert runs.faults == ["gpu-b: connection refused"]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_this_machine_is_shown_and_the_hosts_are_asked_again(hosts, monkeypatch):
    """Once, the asking thread ended, and the list showed outdated runs as running from then on."""
    answers, asked = iter([OSError(24, "Too many open files")]), []

    def ask(cluster, look):
        asked.append(time.monotonic())
        for fault in answers:
            raise fault
        return Results({"gpu-a": (on_host("run-1", running=True),)})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(status, "ask", ask)
    monkeypatch.setattr(attach, "attach", full)
    monkeypatch.setattr(board, "_EVERY_S", 0.1)
    with board.HostRuns(Options(hosts="gpu-a")) as runs:
        until(lambda: any("Too many open files" in fault for fault in runs.faults), "the fault")
        until(lambda: any("run-1: cannot be followed" in fault for fault in runs.faults), "another look")
    assert len(asked) > 2


def test_no_host_is_asked_while_nobody_views_the_board(hosts, monkeypatch):
    asked = []
    monkeypatch.setattr(status, "ask", lambda cluster, look: asked.append(1) or Results({}))
    runs = board.HostRuns(Options(hosts="gpu-a"))
    runs.looked_at -= 60.0
    with runs:
        assert not runs._over.wait(1.2)
    assert asked == []


def test_a_link_at_the_path_of_a_lock_stops_no_follower(tmp_path, monkeypatch):
    """Containers can write to their run's folder, so they could put a link there."""
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "r").mkdir()
    (tmp_path / "r/.lock").symlink_to("/etc/passwd")
    assert locks.hold_followed(tmp_path / "r") is None
    assert board._is_followed(RunId("r"))


def test_an_onlooker_sends_no_signal_and_removes_nothing(monkeypatch):
    """Whatever its follower decides: an onlooker has no SSH session to act with."""
    onlooker = object.__new__(Onlooker)
    onlooker.stop()
    onlooker.kill()
    onlooker.pass_on(signal.SIGINT)
    assert onlooker.remove() == []
