"""Waiting for a condition, with a deadline that says what was awaited."""

import signal
import time
from contextlib import contextmanager
from pathlib import Path

from muster.files import read_lines

# Of a processor. What takes a second alone takes five on a busy machine; what nothing limits takes minutes.
_MUCH_S = 30


def until(condition, what, seconds=120.0):
    """The first true value of `condition()`; fails naming `what` after `seconds`.

    A condition that computes for long, such as a `muster status`, gets half of the time: what it waits for needs the
    cores as well.
    """
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        value = condition()
        if value:
            return value
        time.sleep(max(0.02, time.monotonic() - began))
    raise AssertionError(f"waited {seconds:.0f} s for {what}, which did not come")


@contextmanager
def spending_little():
    """What is done within it ends by itself: AssertionError once it has had half a minute of a processor."""

    def stop(*_):
        raise AssertionError(f"it has used {_MUCH_S} s of a processor, and has no end")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, _MUCH_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def lines(path):
    """Whole JSON lines of a file that may not be there yet, and whose last line may be torn."""
    return read_lines(Path(path))


def events(run_dir, rank, kind):
    """Events of one kind that one rank wrote."""
    return [line for line in lines(Path(run_dir) / "ranks" / f"rank-{rank}.jsonl") if line["kind"] == kind]


def losses(run_dir):
    """Training loss by step, the last value written for a step."""
    return {line["step"]: line["loss"] for line in lines(Path(run_dir) / "metrics.jsonl") if "loss" in line}


def alive(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
