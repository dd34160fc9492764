"""What a host is asked about its runs, its GPUs and its logs: argument lists, quoted by the door to SSH.

Each is one round trip, needs a POSIX shell and the usual tools, and changes nothing. host/status.py, host/gpus.py and
host/logs.py read the answers: lines of a word, a blank, a value.
"""

from __future__ import annotations

from ..core.names import RunId
from ..core.scripts import Scripts

_SCRIPT = Scripts(__file__)
# A driver that hangs takes nvidia-smi along. The name goes last: it may hold commas.
_GPU_PATIENCE_S, _GPU_COLUMNS = 10, "index,uuid,memory.used,memory.total,utilization.gpu,name"


def status() -> tuple[str, ...]:
    """What host_status.parse reads: every run's container, last steps, verdicts and last lines, and the GPUs."""
    return _SCRIPT("status", str(_GPU_PATIENCE_S), _GPU_COLUMNS)


def runs() -> tuple[str, ...]:
    """What host_status.parse_runs reads: every run's folder, and the containers that are left."""
    return _SCRIPT("runs")


def holders() -> tuple[str, ...]:
    """What gpu_facts.parse reads: the GPUs, and each process that computes on them with its user and container."""
    return _SCRIPT("gpus", str(_GPU_PATIENCE_S), _GPU_COLUMNS)


def members() -> tuple[str, ...]:
    """What host_logs.parse reads: each run's container with its place and its ranks, and the ranks' own logs."""
    return _SCRIPT("members")


def state(container: str) -> tuple[str, ...]:
    """Whether a container runs, and its exit code: `true 0`."""
    return ("docker", "inspect", "--format", "{{.State.Running}} {{.State.ExitCode}}", container)


def console(container: str, since: str, mark: str = "") -> tuple[str, ...]:
    """A container's console, each line with its time in front; with a mark up to its end, the mark now and then."""
    words = ("--timestamps", *(("--since", since) if since else ()), container)
    if not mark:
        return _SCRIPT("console-now", *words)
    return _SCRIPT("console", mark, "--follow", *words)


def rank_log(run: RunId, rank: int, container: str, mark: str) -> tuple[str, ...]:
    """A rank's own log; with a container up to that one's end, the mark now and then."""
    return _SCRIPT("rank-log", run, f"rank-{rank}.log", container, mark)
