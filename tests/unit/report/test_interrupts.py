"""Ctrl-C while a command follows a run on hosts: it leaves the run, and stops it only after a clear yes."""

import os
import signal
from contextlib import nullcontext

import pytest

from deploy.report import interrupts as module
from deploy.report.interrupts import Detached, Interrupts


class Terminal:
    """A console with a user who gives these answers."""

    gone = False

    def __init__(self, asks=True, answers=()):
        self.asks, self.answers, self.lines, self.asked = asks, list(answers), [], 0

    def warn(self, text):
        self.lines.append(text)

    def opening(self, step):
        return nullcontext()

    def ask(self, question):
        self.asked += 1
        answer = self.answers.pop(0)
        if answer == "ctrl-c":
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("not interrupted")
        return answer

    def mute(self):
        self.gone = True


@pytest.fixture
def followed():
    """Returns a function: the Interrupts of a command that follows a run on hosts with this console."""
    entered = []

    def enter(console):
        interrupts = Interrupts(console).__enter__()
        entered.append(interrupts)
        interrupts.hold()
        interrupts.leave_by_ctrl_c("muster attach --run r", "muster stop --run r")
        return interrupts

    yield enter
    for interrupts in entered:
        interrupts.__exit__(None, None, None)


def ctrl_c(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def test_without_a_terminal_ctrl_c_leaves_immediately_and_says_how_to_come_back(followed):
    console = Terminal(asks=False)
    interrupts = followed(console)
    assert interrupts.requests() == 0
    ctrl_c()
    with pytest.raises(Detached):
        interrupts.requests()
    assert "muster attach --run r" in console.lines[0]
    assert "muster stop --run r" in console.lines[0]


def test_on_a_terminal_ctrl_c_waits_for_a_second_one_and_then_leaves(followed, monkeypatch):
    interrupts = followed(console := Terminal())
    ctrl_c()
    assert interrupts.requests() == 0
    assert interrupts.requests() == 0
    monkeypatch.setattr(module.time, "monotonic", lambda: float("1e12"))
    with pytest.raises(Detached):
        interrupts.requests()
    assert console.asked == 0
    assert console.lines == ["the run continues; press Ctrl-C again within 2 s to stop it"]
    interrupts.tell_way_back()
    assert "muster attach --run r" in console.lines[1]


def test_a_second_ctrl_c_asks_and_only_a_yes_stops_the_run(followed):
    interrupts = followed(console := Terminal(answers=[True]))
    ctrl_c()
    assert interrupts.requests() == 0
    ctrl_c()
    assert interrupts.requests() == 1
    assert console.asked == 1
    ctrl_c()
    assert interrupts.requests() == 2  # it kills the run now, as it announced


@pytest.mark.parametrize("answer", [False, "ctrl-c"])
def test_a_no_and_another_ctrl_c_leave_the_run(followed, answer):
    interrupts = followed(Terminal(answers=[answer]))
    ctrl_c()
    assert interrupts.requests() == 0
    ctrl_c()
    with pytest.raises(Detached):
        interrupts.requests()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_leave_the_run_immediately(followed, number):
    interrupts = followed(Terminal())
    ctrl_c(number)
    with pytest.raises(Detached):
        interrupts.requests()


@pytest.mark.parametrize("detaches", [True, False])
def test_with_nohup_the_end_of_the_terminal_is_ignored(detaches):
    """Earlier, `nohup muster up train.py &` took SIGHUP for a request to stop, and ended when its user logged out."""
    console, before = Terminal(asks=False), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts(console, detaches=detaches) as interrupts:
            ctrl_c(signal.SIGHUP)
            assert interrupts.requests() == 0
        assert not console.gone
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
