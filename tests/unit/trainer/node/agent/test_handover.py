"""Secrets reach the waiting agent whole, and are stored nowhere on the way."""

import json
import os
import subprocess
import sys
import threading

import pytest

from lab import waiting
from tests.started import started
from trainer.node.agent import handover

DUE = {"MUSTER_SECRET_NAMES": "KEY,TOKEN", "MUSTER_RUN_ID": "r1"}
VALUES = {"KEY": "-----BEGIN\nlines\n-----END\n", "TOKEN": "sesame"}


class Agent(threading.Thread):
    """An agent that waits at `pipe`; `found` holds its secrets once it has them."""

    def __init__(self, pipe):
        super().__init__(daemon=True)
        self.pipe, self.found = pipe, None
        self.start()
        waiting.until(pipe.exists, "the pipe")

    def run(self):
        self.found = handover.receive_secrets(DUE, self.pipe)


@pytest.fixture
def agent(tmp_path):
    return Agent(tmp_path / "pipe")


def said(values):
    return json.dumps(values).encode()


def test_secrets_of_several_lines_arrive_and_leave_no_file(agent, tmp_path):
    assert handover.send_secrets(said(VALUES), 5, agent.pipe) == handover.TAKEN
    agent.join(5)
    assert agent.found == VALUES
    assert list(tmp_path.iterdir()) == []


def test_secrets_larger_than_a_pipes_buffer_arrive(agent):
    much = {"KEY": "x" * 120_000, "TOKEN": "y" * 120_000}
    assert handover.send_secrets(said(much), 5, agent.pipe) == handover.TAKEN
    agent.join(5)
    assert agent.found == much


@pytest.mark.parametrize("wrong", [b"", b"{", b"[]", b"[" * 100_000, said({"KEY": "1"}), said({**VALUES, "MORE": ""})])
def test_incomplete_or_wrong_secrets_are_not_taken_and_the_agent_keeps_waiting(agent, wrong, monkeypatch):
    with monkeypatch.context() as impatient:  # only here: correct secrets may take as long as a busy machine needs
        impatient.setattr(handover, "_TAKING_SECONDS", 0.1)
        assert handover.send_secrets(wrong, 5, agent.pipe) == handover.NOT_TAKEN
    assert agent.found is None
    # A caller that gives before the agent has read all of the wrong secrets is told so, and gives again.
    waiting.until(
        lambda: handover.send_secrets(said(VALUES), 5, agent.pipe) == handover.TAKEN, "what is right to be taken"
    )


def test_without_a_waiting_agent_nothing_is_written(tmp_path):
    absent, plain, link, left = (tmp_path / name for name in ("absent", "plain", "link", "left"))
    plain.touch()
    link.symlink_to(plain)
    os.mkfifo(left)
    for path in (absent, plain, link, left):
        assert handover.send_secrets(said(VALUES), 0, path) == handover.NO_RECEIVER
    assert plain.read_bytes() == b""
    assert not absent.exists()


def test_a_run_without_secrets_does_not_wait(tmp_path):
    assert handover.receive_secrets({}, tmp_path / "pipe") == {}


WAITS = """
import pathlib, sys
from trainer.node.agent import handover

def read(*arguments):
    reads.append(1)
    if len(reads) == 10:  # many polls after the agent's line
        pathlib.Path(sys.argv[2]).touch()
    return original(*arguments)

reads, original, handover._read, handover._QUIET_SECONDS = [], handover._read, read, 0.1
handover.receive_secrets({"MUSTER_SECRET_NAMES": "KEY", "MUSTER_RUN_ID": "r1"}, pathlib.Path(sys.argv[1]))
"""


def test_an_agent_that_waits_says_so_once_and_what_to_do(tmp_path):
    pipe, waited_on = tmp_path / "pipe", tmp_path / "waited-on"
    command = [sys.executable, "-c", WAITS, pipe, waited_on]
    with started(command, stdout=subprocess.PIPE, text=True) as waits:
        assert (
            waits.stdout.readline() == "waits for its secrets (KEY): muster attach --hosts ... --run r1 provides them\n"
        )
        waiting.until(waited_on.exists, "ten looks at the pipe")
        assert handover.send_secrets(said({"KEY": "v"}), 5, pipe) == handover.TAKEN
        assert waits.stdout.read() == "has its secrets\n"


def test_an_agent_asked_to_stop_while_it_waits_ends_as_stopped(tmp_path):
    environment = {**os.environ, **DUE, "MUSTER_RUN_DIR": str(tmp_path), "MUSTER_NODE": "a", "PYTHONPATH": os.getcwd()}
    code = "import pathlib; from trainer.node.agent import agent, handover;"
    code += f"pipe = pathlib.Path({str(tmp_path / 'pipe')!r});"
    code += (
        "take = handover.receive_secrets; handover.receive_secrets = lambda e: take(e, pipe);"
        " raise SystemExit(agent.main())"
    )
    with started([sys.executable, "-c", code], env=environment) as waits:
        waiting.until((tmp_path / "pipe").exists, "the pipe")
        waits.send_signal(2)
        assert waits.wait(10) == 75
    verdict = json.loads((tmp_path / "outcome/a-agent.json").read_text())
    assert (verdict["verdict"], verdict["message"]) == ("stopped", "stopped before its secrets arrived")
    assert not (tmp_path / "pipe").exists()
