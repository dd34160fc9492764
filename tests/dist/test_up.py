"""`muster up` with local processes in a separate checkout: the run, its record, and every way it can end."""

import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress

import pytest

from deploy.local import processes
from lab.waiting import alive, events, lines, until
from muster.checkpoint import store
from tests.checkout import FAB, Checkout

LONG = "--steps 20000 --checkpoint-every 20 --eval-every 0"


@pytest.fixture
def checkout(tmp_path):
    made = Checkout(tmp_path)
    yield made
    for pids in made.left().values():
        processes.kill(pids)


def test_up_trains_to_the_end_and_leaves_a_whole_record(checkout):
    code, out, err = checkout.up("--workers=1", "--args=--steps 60 --checkpoint-every 20", "--json")
    assert code == 0, err
    printed = [json.loads(line) for line in out.splitlines()]
    assert printed[-1]["verdict"] == "done"
    assert {"started", "step", "checkpoint", "evaluated"} <= {line["kind"] for line in printed}
    (folder,) = checkout.folders()
    assert (checkout.runs / "latest").resolve() == folder
    assert json.loads((folder / "outcome.json").read_text())["verdict"] == "done"
    for name in (
        "record.json",
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "report.html",
        "logs/master.log",
        "logs/worker-1.log",
        "logs/rank-0.log",
        "logs/rank-1.log",
    ):
        assert (folder / name).is_file(), name
    assert "<html" in (folder / "report.html").read_text()
    assert not checkout.left()


def test_a_busy_port_is_skipped_and_reported(checkout):
    with ExitStack() as held:
        until(lambda: listens(held, 29500), "port 29500 to be ours", 60)
        code, _, err = checkout.up("--workers=1", "--args=--steps 2")
    assert code == 0, err
    assert "port 29500 is in use: the nodes meet on 295" in err


def listens(held, port):
    """Try to hold the port until `held` closes; returns the socket, or None if the port is in use."""
    with suppress(OSError):
        return held.enter_context(socket.create_server(("", port)))


def test_ctrl_c_stops_with_a_checkpoint_and_resume_continues_in_the_same_folder(checkout):
    first = checkout.start("--workers=1", f"--args={LONG}")
    folder = checkout.training(step=40)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 75, err
    assert out.startswith("stopped  at step ")
    assert "with time to save" in err
    assert not checkout.left()
    stopped_at = store.newest_usable(folder / "checkpoints")[0].manifest.step
    assert json.loads((folder / "outcome.json").read_text())["step"] == stopped_at
    code, _, err = checkout.up("--resume=latest", f"--args=--steps {stopped_at + 30}")
    assert code == 0, err
    assert checkout.folders() == [folder]
    assert events(folder, 0, "resumed")[-1]["step"] == stopped_at
    assert lines(folder / "metrics.jsonl")[-1]["step"] == stopped_at + 30


def test_a_second_ctrl_c_kills_and_leaves_nothing_running(checkout):
    run = checkout.start("--workers=1", f"--args={LONG}")
    checkout.training()
    for rank in (0, 1):  # hung ranks, which cannot stop gracefully
        os.kill(events(checkout.folders()[0], rank, "started")[0]["pid"], signal.SIGSTOP)
    run.send_signal(signal.SIGINT)
    next(line for line in run.stderr if "with time to save" in line)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=20)
    assert run.returncode != 0
    assert not checkout.left()


def test_ctrl_c_before_anything_runs_leaves_nothing(checkout):
    run = checkout.start("--workers=2", "--args=--steps 5")
    until(lambda: checkout.left(), "the first process")
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 75
    assert not checkout.left()


def test_two_runs_at_the_same_time_do_not_meet(checkout):
    with socket.socket() as taken:  # in addition, another process holds the usual port
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held = False
        with suppress(OSError):  # another test holds the port, and may release it at any time
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
            held = True
        both = [checkout.start("--workers=1", "--args=--steps 30") for _ in range(2)]
        errors = [process.communicate(timeout=150)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert len(checkout.folders()) == 2
    for folder, err in zip(checkout.folders(), errors, strict=True):
        assert lines(folder / "metrics.jsonl")[-1]["step"] == 30
        assert "29500" in err or not held  # the message names the other port


def test_when_the_control_side_is_killed_the_nodes_stop_with_a_checkpoint(checkout):
    run = checkout.start("--workers=1", f"--args={LONG}")
    folder = checkout.training()
    run.kill()
    run.communicate()
    until(lambda: not checkout.left(), "the nodes to stop by themselves", 40)
    end = events(folder, 0, "outcome")[0]
    assert end["verdict"] == "stopped"
    assert store.newest_usable(folder / "checkpoints")[0].manifest.step == end["step"]


def test_a_killed_node_comes_back_and_the_run_ends_well(checkout):
    run = checkout.start("--workers=1", "--args=--steps 500 --checkpoint-every 20 --eval-every 0")
    folder = checkout.training(step=20)
    processes.kill(processes.labelled(folder, "worker-1"))
    _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert "worker-1" in err
    assert lines(folder / "metrics.jsonl")[-1]["step"] == 500
    assert not checkout.left()


def test_a_node_that_never_starts_is_named_within_30_s(checkout):
    agent = checkout.home / "trainer/node/agent/agent.py"
    begins = 'if __name__ == "__main__":\n'
    waits = '    while os.environ["MUSTER_NODE"] == "worker-2":\n        signal.pause()\n'
    assert begins in agent.read_text()
    agent.write_text(agent.read_text().replace(begins, begins + waits))
    run = checkout.start("--workers=2", "--args=--steps 5")
    until(lambda: checkout.folders() and (checkout.folders()[0] / "nodes/master.json").exists(), "the master")
    _, err = run.communicate(timeout=35)
    assert run.returncode == 1
    assert "error: worker-2 did not start" in err
    assert not checkout.left()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--args=--stpes 5"], "--stpes"),
        (["--workers=-1"], "-1"),
        (["--workers=many"], "many"),
        (["--resume=no/such"], "no/such"),
        (["--args=--recipe missing.py"], "missing.py"),
        (["--args='unclosed"], "unclosed"),
    ],
)
def test_bad_options_are_refused_in_two_lines_and_leave_no_folder(checkout, options, words):
    code, out, err = checkout.up(*options)
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    (error,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert words in error
    assert any(line.startswith("hint: ") for line in err.splitlines())
    assert checkout.folders() == []


def test_a_live_run_is_not_resumed_by_another_command(checkout):
    run = checkout.start("--workers=0", f"--args={LONG}")
    folder = checkout.training(step=20)
    code, _, err = checkout.up("--resume=latest")
    assert code == 1
    assert f"{folder.name} is still running" in err
    assert run.poll() is None
    down = subprocess.run([FAB, "down"], cwd=checkout.home, capture_output=True, text=True, timeout=90)
    assert down.returncode == 0, down.stderr
    run.communicate(timeout=30)
    assert not checkout.left()
    assert not any(alive(e["pid"]) for e in events(folder, 0, "started"))
