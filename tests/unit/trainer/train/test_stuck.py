"""A rank whose main thread is blocked in torch still ends on SIGTERM; one that hears the signal is left alone."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from muster.stop import UNASKED, Stop
from trainer.train.ending import stuck
from trainer.train.ending.stuck import ended_when_stuck

HOME = Path(__file__).resolve().parents[4]
# Waits in C, as torch does.
SCRIPT = """
    import ctypes, os, signal, sys, time
    from muster.stop import Stop
    from trainer.train.ending import stuck
    from trainer.train.ending.stuck import ended_when_stuck

    if sys.argv[1] == "hears":
        stuck._GRACE_S = 20  # a busy machine may keep a thread from its turn for longer than that of a rank
    stop = Stop()
    stop.listen(0)
    stop.before_restart = lambda: False
    with ended_when_stuck(stop, lambda: os._exit(7)):
        print("ready", flush=True)
        how, end = sys.argv[1], time.time() + 20
        if how == "own":
            signal.signal(signal.SIGTERM, lambda *_: print("its own handler", flush=True))
            end = time.time() + 1
        while time.time() < end and not (how == "hears" and stop.heard):
            if how == "stuck":
                libc = ctypes.CDLL(None)
                mask = (ctypes.c_ulong * 16)(*[0xFFFFFFFFFFFFFFFF] * 16)
                libc.pthread_sigmask(0, mask, None)  # this thread gets no signal, as if it waited for good
                libc.sleep(20)
            time.sleep(0.01)
        time.sleep(0.5)
    sys.exit(5)
"""


def started(tmp_path, how):
    (tmp_path / UNASKED).touch()
    environment = {**os.environ, "MUSTER_OUTCOME_DIR": str(tmp_path), "PYTHONPATH": str(HOME)}
    argv = [sys.executable, "-c", textwrap.dedent(SCRIPT), how]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment, cwd=HOME)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    return process


@pytest.mark.parametrize(("how", "code"), [("stuck", 7), ("hears", 5)])
def test_only_a_main_thread_that_misses_the_signal_is_ended_from_another_thread(tmp_path, how, code):
    with started(tmp_path, how) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == code


def test_a_rank_whose_code_handles_the_signal_itself_continues(tmp_path):
    with started(tmp_path, "own") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "its own handler\n"
        assert process.wait(10) == 5


def test_a_requested_stop_waits_for_the_main_thread(tmp_path):
    with started(tmp_path, "stuck") as process:
        (tmp_path / UNASKED).unlink()
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(5 * stuck._GRACE_S)
        process.kill()


def test_a_forked_process_reports_none_of_its_signals_to_this_one():
    before = signal.set_wakeup_fd(-1)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    try:
        child = multiprocessing.get_context("fork").Process(target=_own_wakeup)
        child.start()
        child.join()
        assert child.exitcode == 0
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def test_ended_when_stuck_returns_while_forked_processes_live():
    stop, done = Stop(), threading.Event()
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    watch = threading.Timer(10, lambda: done.is_set() or child.kill())  # else a failure would wait for the child
    watch.start()
    with ended_when_stuck(stop, lambda: os._exit(7)):
        child.start()
    done.set()
    assert child.is_alive()
    child.kill()
    child.join()
    watch.cancel()


def _own_wakeup():
    sys.exit(0 if signal.set_wakeup_fd(-1) == -1 else 1)
