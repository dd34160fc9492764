"""The GPUs of a run on this machine: chosen and claimed as a deploy does it on a host, between all users and commands.

host/claims.py has the same for hosts; scripts/claims_function.sh says what a claim is.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..config.values import Gpus as Asked
from ..core.errors import DeployError
from ..core.program import FAB
from ..core.text import in_seconds
from ..host import audit, commands, gpu_choice
from ..host import gpus as gpu_facts
from ..host.gpus import GpuUse

_LOOK_S, _LOCK_S = 60.0, 30.0
# All users lock this folder, and write their claims into it (scripts/claims_function.sh).
_MACHINE = Path("/var/tmp/muster-claims")


class OwnGpus:
    """The GPUs that this command holds until `release`."""

    def __init__(self, gpus: tuple[GpuUse, ...], path: Path | None = None, descriptor: int = -1) -> None:
        self.gpus, self._path, self._descriptor = gpus, path, descriptor

    def release(self) -> None:
        """Give them back. A second call does nothing."""
        if self._path:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._path = None


def take(asked: Asked, run: str) -> OwnGpus:
    """Choose and hold GPUs of this machine. `auto` takes all, if there are some. `run`: in words, for others.

    Raises UsageError for GPUs that are not there, DeployError for some that others have.
    """
    with _machine():
        choice = gpu_choice.choose(asked, look(), "")
        if choice.taken:
            raise DeployError(f"this machine: {choice.taken}", f"`{FAB} gpus` shows who has them; --gpus N takes any N")
        return _claim(choice.gpus, run) if choice.gpus else OwnGpus(())


def look() -> gpu_facts.Gpus:
    """The GPUs of this machine, and who has them."""
    try:
        done = subprocess.run(commands.gpus(), capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return gpu_facts.Gpus(fault=f"looking for GPUs failed: {fault}")
    return gpu_facts.parse(done.stdout.split("\n"))


@contextmanager
def _machine() -> Iterator[None]:
    """Hold the machine's lock, as claim.sh does. Raises DeployError where another command holds it for too long."""
    _share()
    descriptor, end = os.open(_MACHINE, os.O_RDONLY), time.monotonic() + _LOCK_S
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise DeployError(
                    f"another command has looked at this machine's GPUs for {in_seconds(_LOCK_S)}", "try again"
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _share() -> None:
    with suppress(FileExistsError):
        _MACHINE.mkdir()
        _MACHINE.chmod(0o1777)
    for _ in range(5):  # another command may be making it at this moment
        about = os.lstat(_MACHINE)
        if stat.S_ISDIR(about.st_mode) and stat.S_IMODE(about.st_mode) == 0o1777:
            return
        time.sleep(0.1)
    else:
        raise DeployError(f"{_MACHINE} is not a folder that all users share", f"look at it: ls -ld {_MACHINE}")


def _claim(chosen: tuple[GpuUse, ...], run: str) -> OwnGpus:
    token, (user, control) = secrets.token_hex(8), audit.who()
    path = _MACHINE / f"claim-{time.time_ns()}-{token}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    claim = {"token": token, "run": run, "user": user, "control": control, "waits": False, "whole": False}
    os.write(descriptor, json.dumps({**claim, "gpus": [gpu.uuid for gpu in chosen]}).encode() + b"\n")
    return OwnGpus(chosen, path, descriptor)
