"""Choose and claim a run's GPUs on this machine, as a deploy does on a host, between all users and commands.

host/claims.py does the same for hosts. Its scripts claims_function.sh and claim_places_function.sh document what a
claim is, and where it is stored.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import stat
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

from ..core.errors import DeployError
from ..host import audit, commands, gpu_choice
from ..host import gpus as gpu_facts
from ..host.gpu_choice import Choice
from ..host.gpus import GpuUse
from ..job.options import FLAG
from ..job.values import Gpus as Asked

_LOOK_S, _LOCK_S = 60.0, 10.0
# All users lock this folder. Their claims are in it, or in a folder inside it that root has made.
_PLACE, _FOLDER = Path("/var/tmp"), re.compile(r"muster-claims\.[0-9a-f]{16}")
# Where Linux shows an NVIDIA GPU: its driver's devices (Jetson's, WSL's), and the bus, even without a driver; of the
# bus only display controllers count, as in gpus_function.sh.
_DEVICES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/dxg", "/sys/bus/pci/devices/*/modalias")
_ON_BUS = re.compile("v000010DE.*bc03")


class OwnGpus:
    """The GPUs that this command holds until `release`."""

    def __init__(self, gpus: tuple[GpuUse, ...], path: Path | None = None, descriptor: int = -1) -> None:
        self.gpus, self._path, self._descriptor = gpus, path, descriptor

    def release(self) -> None:
        """Release the GPUs. A second call does nothing."""
        if self._path:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._path = None


def claim_gpus(asked: Asked, run: str, named: str | None = None) -> OwnGpus:
    """Choose and claim GPUs of this machine. `auto` takes all, if there are any. `run`: shown to other users.

    `named`: CUDA_VISIBLE_DEVICES. Raises UsageError for GPUs that do not exist, DeployError for GPUs that others use.
    """
    with _locked():
        choice = gpu_choice.choose(asked, gpu_choice.visible_to_cuda(named, list_gpus()), "")
        if choice.taken:
            raise DeployError(
                f"this machine: {choice.taken}",
                f"`muster gpus` shows who uses them; {FLAG.gpus} N takes any N free ones",
            )
        return _claim(choice, run) if choice.gpus else OwnGpus(())


def list_gpus() -> gpu_facts.Gpus:
    """The GPUs of this machine, and who uses them."""
    return _query(commands.gpus())


def count_gpus(asked: Asked, named: str | None) -> int:
    """How many GPUs a run gets. Raises UsageError for GPUs that do not exist, DeployError if unknown."""
    here = gpu_choice.visible_to_cuda(named, _query(commands.status(())))
    hidden = named is not None and named.partition(",")[0].strip() in ("", "-1")
    if here.fault and not here.gpus and not hidden and asked != 0 and _has_device():
        how = f"nvidia-smi shows more; {FLAG.gpus} 0 trains on the CPU"
        raise DeployError(f"this machine: could not tell which GPUs it has: {here.fault}", how)
    gpu_choice.refuse_missing(asked, here)
    return asked if isinstance(asked, int) else len(here.gpus if asked == "auto" else asked)


def _has_device() -> bool:
    """Whether this machine has an NVIDIA GPU: nvidia-smi is also installed, and fails, on machines without one."""
    paths = [Path(path) for pattern in _DEVICES for path in glob(pattern)]
    return any(path.name != "modalias" or _ON_BUS.search(path.read_text()) for path in paths)


def _query(command: Sequence[str]) -> gpu_facts.Gpus:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return gpu_facts.Gpus(fault=f"looking for GPUs failed: {fault}")
    return gpu_facts.parse(done.stdout.split("\n"))


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the machine's lock, as claim.sh does. After _LOCK_S go on without it: a lock held forever stops nobody."""
    descriptor, end = os.open(_PLACE, os.O_RDONLY | os.O_DIRECTORY), time.monotonic() + _LOCK_S
    try:
        while time.monotonic() < end:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _claim(choice: Choice, run: str) -> OwnGpus:
    """Claim the chosen GPUs. Raises DeployError if another command has claimed one of them at the same moment."""
    token, (user, control) = secrets.token_hex(8), audit.user_and_machine()
    path = Path(f"{_claim_prefix()}claim-{time.time_ns()}-{token}")
    # Until this process has locked the file, nobody else may open it, and so nobody else can lock it.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    claim = {"token": token, "run": run, "user": user, "control": control, "waits": False, "whole": False}
    own = OwnGpus(choice.gpus, path, descriptor)
    try:
        os.write(descriptor, json.dumps({**claim, "gpus": [gpu.uuid for gpu in choice.gpus]}).encode() + b"\n")
        os.fchmod(descriptor, 0o644)
        if taken := gpu_choice.yield_to_others(
            choice, _query(commands.script("claims")).claims, token, alone=False
        ).taken:
            raise DeployError(f"this machine: {taken}", "try again")
    except BaseException:
        own.release()
        raise
    return own


def _claim_prefix() -> str:
    """The beginning of a new claim's path, as in claim_places_function.sh.

    Raises DeployError if /var/tmp is not root's, or not sticky.
    """
    about = _PLACE.stat()
    if about.st_uid or not about.st_mode & stat.S_ISVTX:
        text = f"{_PLACE} does not belong to root or is not sticky: anybody can change a claim there"
        raise DeployError(text, f"sudo chown root {_PLACE}; sudo chmod 1777 {_PLACE}")
    with os.scandir(_PLACE) as entries:
        folders = sorted(entry.path for entry in entries if _FOLDER.fullmatch(entry.name) and _is_shared(entry))
    return f"{folders[0]}/" if folders else f"{_PLACE}/muster-claims."


def _is_shared(entry: os.DirEntry[str]) -> bool:
    about = entry.stat(follow_symlinks=False)
    return about.st_mode == stat.S_IFDIR | 0o1777 and not about.st_uid
