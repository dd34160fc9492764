"""Wait for a condition, with a deadline whose error says what was awaited."""

import signal
import time
from contextlib import contextmanager
from pathlib import Path

from muster.files import read_lines

# CPU seconds. What takes one second alone takes five on a busy machine; a computation without an end takes minutes.
_MUCH_S = 30


def until(condition, what, seconds=120.0):
    """The first true value of `condition()`; raises AssertionError with `what` after `seconds`.

    A condition that computes for long, such as a `muster status`, gets half of the time: what it waits for needs the
    cores, too.
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
    """Require that the block ends by itself: raises AssertionError once it has used half a minute of CPU time."""

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
    """The complete JSON lines of a file, which may not exist yet, and whose last line may be incomplete."""
    return read_lines(Path(path))


def events(run_dir, rank, kind):
    """The events of one kind that one rank wrote."""
    return [line for line in lines(Path(run_dir) / "ranks" / f"rank-{rank}.jsonl") if line["kind"] == kind]


def losses(run_dir):
    """The training loss by step; for a repeated step, the last value."""
    return {line["step"]: line["loss"] for line in lines(Path(run_dir) / "metrics.jsonl") if "loss" in line}


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
