"""A container's processes: their variables and paths, the mark by which they are found, and how they are ended."""

from __future__ import annotations

import os
import re
import resource
import signal
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from .store import RUNS, TYPE_CHECKING, Container, Refused, bytecode, pairs, read

if TYPE_CHECKING:
    from subprocess import Popen

MARK, ROOT = "MUSTER_BARE", "MUSTER_ROOT"
_DEATH, _SUBREAPER = 1, 36
# The path of the image's Python in a container.
BASE = "/muster/base"
# The only variables of the login that a container gets: who the user is, the network, drivers, and the language.
_LOGIN_VARIABLES = (
    r"(?i)HOME|USER|LOGNAME|(https?|all|no|ftp)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|LD_LIBRARY_PATH|LANG|TZ|"
    r"LC_\w+"
)
# Variables in which container paths are replaced by host paths. The meaning of any other variable is unknown: the host
# may have a /workspace of its own.
_PATH_VARIABLES = r"MUSTER_\w+|(PYTHON)?PATH|VIRTUAL_ENV"
# The names of segments that libraries leave in shared memory.
_SEGMENTS = r"torch_|nccl-|sem\.|psm_|wnsm_|__KMP_REGISTERED_LIB_|cuda\.shm\.|loky-|muster-"
_WAIT_S, _LOOKS = 10.0, 3


def _prctl(what: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def adopt() -> None:
    """Make orphaned processes this process's children, so that none of a container's processes gets out of sight."""
    _prctl(_SUBREAPER, 1)


def variables(container: Container) -> dict[str, str]:
    """The environment variables for a container's processes."""
    config = container.config
    own = {name: value for name, value in os.environ.items() if re.fullmatch(_LOGIN_VARIABLES, name)}
    own |= {"TMPDIR": f"{container.scratch}/tmp", ROOT: container.scratch, "PYTHONPYCACHEPREFIX": bytecode()}
    own |= pairs(config["Env"])
    paths = {name: placed(container, own[name]) for name in own if re.fullmatch(_PATH_VARIABLES, name)}
    for device in config["Devices"]:
        if device["DeviceIDs"]:
            own["CUDA_VISIBLE_DEVICES"] = ",".join(device["DeviceIDs"])
    return {**own, **paths, MARK: container.id}


def placed(container: Container, text: str) -> str:
    """The text with the container's paths replaced by the host's; replacements are not replaced again."""
    known = {mount["Target"]: mount["Source"] for mount in container.config["Mounts"]}
    targets = "|".join(re.escape(target) for target in sorted(known, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{targets})(?![\w.-])", lambda match: known[match[0]], text)


def make_root(container: Container) -> None:
    """Make the container's folder: a link for each mount, at its path in the container, and a /tmp of its own."""
    scratch = container.scratch
    with suppress(FileExistsError):
        os.mkdir(scratch, 0o700)
    seen = os.lstat(scratch)
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        raise Refused(f"{scratch} belongs to somebody else")
    for part in ("tmp", "run", "dev/shm", "muster"):
        os.makedirs(f"{scratch}/{part}", 0o700, exist_ok=True)
    for mount in sorted(container.config["Mounts"], key=lambda each: len(each["Target"])):
        place = f"{scratch}/{mount['Target'].strip('/')}"
        with suppress(FileExistsError):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(mount["Source"], place)


def spawn(container: Container, words: Sequence[str], interactive: bool, piped: bool = False) -> Popen[bytes]:
    """Start a program in a container, with this process's own input and output. Raises Refused.

    `interactive`: if not, its input is empty. `piped`: its output goes into pipes.
    """
    import subprocess

    output = subprocess.PIPE if piped else None
    place = placed(container, container.config["WorkingDir"])
    try:
        begun = subprocess.Popen(
            words,
            bufsize=0,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: _prepare(container),
            cwd=place if os.path.isdir(place) else "/",
            env=variables(container),
            start_new_session=True,
            umask=0o022,
        )
    except OSError as failed:
        raise Refused(f"cannot start {words[0]}: {failed}", 500) from failed
    begun.returncode = 0  # otherwise its destructor could reap the process, whose exit code keeper.wait_for wants
    return begun


def _prepare(container: Container) -> None:
    """In the new process: let the kernel kill it when its parent ends, and give it the container's limits."""
    _prctl(_DEATH, signal.SIGKILL)
    for name, text in container.config["Limits"]:
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(kind)[1]
        for soft in (int(text), hard):  # the login may have a lower limit, which is then the limit
            with suppress(OSError, ValueError):
                resource.setrlimit(kind, (soft, hard))
                break
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def hidden(id: str, parent: int) -> dict[str, str]:
    """Processes below `parent` without the container's mark: when each began, by process id."""
    living = _living()
    return {str(pid): living[pid][1] for pid in _with_below({parent}, living) - _marked(id, living) - {parent}}


def members(container: Container, *parents: int) -> set[int]:
    """The living processes that have a container's mark, and all processes below them or below `parents`.

    A program may overwrite its own variables, which hides the mark: it is then found by its parents, or by the list
    that the keeper stored.
    """
    living, noted = _living(), read(f"{container.folder}/hidden.json") or {}
    known = {int(pid) for pid, at in noted.items() if living.get(int(pid), (0, ""))[1] == at}
    return _with_below(_marked(container.id, living) | known | {*parents}, living) & living.keys() - {os.getpid()}


def _living() -> dict[int, tuple[int, str]]:
    """The living processes by process id: the parent of each, and when it began."""
    stats = {int(name): _stat(name) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: (int(cells[1]), cells[19]) for pid, cells in stats.items() if cells and cells[0] not in "ZX"}


def _marked(id: str, pids: Iterable[int]) -> set[int]:
    """The processes that have a container's mark."""
    marked, mark = set[int](), f"\0{MARK}={id}\0".encode()
    for pid in pids:
        with suppress(OSError):
            if mark in b"\0" + _proc_file(pid, "environ") + b"\0":
                marked.add(pid)
    return marked


def _with_below(above: set[int], living: Mapping[int, tuple[int, str]]) -> set[int]:
    """These processes and all their descendants."""
    while below := {pid for pid, (parent, _) in living.items() if parent in above} - above:
        above = above | below
    return above


def _stat(pid: int | str) -> list[str]:
    """The fields of /proc/PID/stat after the program's name, the state first; empty if there is no such process."""
    with suppress(OSError):
        return _proc_file(pid, "stat").decode(errors="replace").rpartition(") ")[2].split()
    return []


def _proc_file(pid: int | str, what: str) -> bytes:
    """Read a file of a process in /proc. Raises OSError if there is no such process, or another user owns it."""
    with open(f"/proc/{pid}/{what}", "rb") as file:
        return file.read()


def sweep(container: Container, *parents: int) -> None:
    """Kill all processes of a container, and remove the shared memory that they leave.

    Raises Refused if a process does not end.
    """
    end, looks = time.monotonic() + _WAIT_S, 0
    # A single look may miss a process that starts while its parent ends, so look until several looks find none.
    while looks < _LOOKS:
        pids = members(container, *parents)
        looks = 0 if pids else looks + 1
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if pids and time.monotonic() > end:
            raise Refused(f"cannot kill container: {container.id}: process {min(pids)} does not end", 500)
        time.sleep(0.01)
    _drop_segments(container)


def _drop_segments(container: Container) -> None:
    """Remove this user's shared memory that a library made since the container began and that no process uses now."""
    with suppress(OSError):
        began = os.path.getmtime(f"{container.folder}/config.json")
        names = {name for name in os.listdir("/dev/shm") if re.match(_SEGMENTS, name)}
        for name in names - (_used() if names else set()):
            with suppress(OSError):  # a process that works removes its own
                seen = os.lstat(f"/dev/shm/{name}")
                if stat.S_ISREG(seen.st_mode) and seen.st_uid == os.getuid() and seen.st_mtime >= began:
                    os.unlink(f"/dev/shm/{name}")


def _used() -> set[str]:
    """The names in shared memory that a process of this user has mapped or open."""
    seen = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            seen.append(_proc_file(name, "maps").decode(errors="replace"))
            for entry in os.scandir(f"/proc/{name}/fd"):
                with suppress(OSError):
                    seen.append(os.readlink(entry.path))
    return set(re.findall(r"/dev/shm/(\S+)", "\n".join(seen)))


def send(container: Container, number: int) -> None:
    """Send a signal to a container's first process. Raises Refused if the container does not run."""
    state = container.state
    pid = state.get("Pid", 0)
    if state["Status"] not in RUNS:
        raise Refused(f"cannot kill container: container {container.id} is not running", 409)
    if number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        # Whoever stops a container does not want it to restart. So a file is removed, which also works on a full disk.
        try:
            os.unlink(container.wanted)
        except FileNotFoundError:  # the keeper of an earlier version looks for this file instead
            with suppress(OSError):
                os.close(os.open(f"{container.folder}/stopped", os.O_CREAT, 0o600))
    if pid and began(pid) == state.get("Began"):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def began(pid: int) -> str:
    """When a process began, from the kernel: process ids are reused. Empty if there is no such process."""
    return "".join(_stat(pid)[19:20])
