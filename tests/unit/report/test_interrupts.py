"""Ctrl-C while a run on hosts is followed: it leaves the run, and stops it only after a clear yes."""

import os
import signal
from contextlib import nullcontext

import pytest

from deploy.report import interrupts as module
from deploy.report.interrupts import Detached, Interrupts


class Terminal:
    """A console with a person at it, who answers as `answers` says."""

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
    """Interrupts of a command that follows a run on hosts, by the console it has."""
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


def test_without_a_terminal_it_leaves_at_once_and_says_how_to_come_back(followed):
    console = Terminal(asks=False)
    interrupts = followed(console)
    assert interrupts.requests() == 0
    ctrl_c()
    with pytest.raises(Detached):
        interrupts.requests()
    assert "muster attach --run r" in console.lines[0]
    assert "muster stop --run r" in console.lines[0]


def test_on_a_terminal_it_waits_for_a_second_one_and_then_leaves(followed, monkeypatch):
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


def test_a_second_one_asks_and_only_a_yes_stops_the_run(followed):
    interrupts = followed(console := Terminal(answers=[True]))
    ctrl_c()
    assert interrupts.requests() == 0
    ctrl_c()
    assert interrupts.requests() == 1
    assert console.asked == 1
    ctrl_c()
    assert interrupts.requests() == 2  # it kills now, as it says


@pytest.mark.parametrize("answer", [False, "ctrl-c"])
def test_a_no_and_another_ctrl_c_leave_the_run(followed, answer):
    interrupts = followed(Terminal(answers=[answer]))
    ctrl_c()
    assert interrupts.requests() == 0
    ctrl_c()
    with pytest.raises(Detached):
        interrupts.requests()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_of_the_system_leaves_the_run_at_once(followed, number):
    interrupts = followed(Terminal())
    ctrl_c(number)
    with pytest.raises(Detached):
        interrupts.requests()


@pytest.mark.parametrize("detaches", [True, False])
def test_below_nohup_the_end_of_the_terminal_ends_nothing(detaches):
    """It was taken for a request to stop: `nohup muster up train.py &` ended when its user logged out."""
    console, before = Terminal(asks=False), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts(console, detaches=detaches) as interrupts:
            ctrl_c(signal.SIGHUP)
            assert interrupts.requests() == 0
        assert not console.gone
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
