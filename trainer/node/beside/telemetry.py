"""`python -m muster.trainer.node telemetry AGENT [--packages]`: record what a node's machine and GPUs do.

The agent starts it next to torchrun, and closes its standard input to end it. It is a separate process, because
NVIDIA's library may hang or crash if a GPU is broken, and a script's files may contain anything; neither must end a
run. Lines go to `telemetry/<node>.jsonl`, and the numbers in the script's files to `scalars/<node>.jsonl`
(contract.md). `--packages`: first write to environment.json which packages a script can import. Standard library only.

The first line of its input is a JSON list of the secrets, which it must not copy from names.
"""

from __future__ import annotations

import json
import os
import platform
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.files import Lines, replace

from ... import NODE, with_muster
from .. import processes
from ..agent import handover
from ..parent_death import die_with_parent
from ..variables import WRITTEN_DOWN
from .meters import Meters
from .nvml import NoGpus, Nvml
from .scalars import Scalars

if TYPE_CHECKING:
    from importlib.metadata import Distribution

FIRST_S, EVERY_S, SLOWEST_S = 1.0, 5.0, 60.0
# An agent that stays stopped this long is woken.
WOKEN_S = 30.0
_WAKE_HINT = f"Muster resumes it after {WOKEN_S:.0f} s, `kill -CONT` resumes it now"
# For a script's files: how long one look may take, how many times longer the pause after it is, and the last look.
_LOOK_S, _LOOK_SHARE, _LAST_LOOK_S = 1.0, 20, 2.0
_MOST_PACKAGES = 2000
_DEVICE = Path("/dev/nvidiactl")
_CUDA = re.compile(r"^cuda\b[^=\n]*= *'([0-9.]+)'", re.MULTILINE)


def main() -> None:
    """Write lines until the agent ends this process, or dies."""
    die_with_parent(signal.SIGKILL, int(sys.argv[1]))
    with suppress(OSError):
        os.nice(10)
    hidden = json.loads(os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False).readline() or b"[]")
    folder, node = Path(os.environ["MUSTER_RUN_DIR"]), os.environ["MUSTER_NODE"]
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    meters, gpus = Meters(folder, interface), Gpus(os.environ)
    meters.read(time.monotonic())
    if "--packages" in sys.argv[2:]:
        about = environment(os.environ, gpus)
        replace(folder / "environment.json", json.dumps(about, indent=1))
    lines, began = Lines(folder / "telemetry" / f"{node}.jsonl"), time.monotonic()
    scalars, due = Scalars(folder, node, hidden), 0.0
    wakes, line_due = Wakes(int(sys.argv[1])), began + pause_s(0.0)
    # A long run writes few lines, but a stopped agent must still be reported within seconds.
    while not _ends_within(min(max(0.0, line_due - time.monotonic()), EVERY_S)):
        now = time.monotonic()
        halted = wakes.look(now)
        if now < line_due and not wakes.news:
            continue
        line_due = now + pause_s(now - began)
        lines.add(node=node, **meters.read(now), **gpus.read(), **halted)
        if now >= due:
            scalars.look(now + _LOOK_S)
            due = time.monotonic() + _LOOK_SHARE * (time.monotonic() - now)
    until = time.monotonic() + _LAST_LOOK_S
    while scalars.look(until) and time.monotonic() < until:
        pass


class Wakes:
    """Watches an agent and its torchrun: a process stopped by a signal (SIGSTOP) notices no end of a rank or run.

    `news`: whether the result of the last look differs from the one before.

    The user may have stopped it on purpose, so it is first reported, and woken only after WOKEN_S. A process stopped by
    a debugger is left alone.
    """

    def __init__(self, agent: int) -> None:
        self._agent, self._since = agent, dict[int, float]()
        self.news = self._reported = False

    def look(self, now: float) -> dict[str, str]:
        """The field `halted` of a line, if a process is still stopped at the second look."""
        stopped = {pid: name for pid, name in self._processes().items() if processes.state_of(pid) == "T"}
        self._since = {pid: self._since.get(pid, now) for pid in stopped}
        for pid in [pid for pid, since in self._since.items() if now - since >= WOKEN_S]:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        name = next((stopped[pid] for pid, since in self._since.items() if now > since), "")
        self.news, self._reported = bool(name) != self._reported, bool(name)
        return {"halted": f"{name} is stopped by a signal (SIGSTOP); {_WAKE_HINT}"} if name else {}

    def _processes(self) -> dict[int, str]:
        own = {pid: "its torchrun" for pid in processes.children(self._agent) if pid != os.getpid()}
        return {self._agent: "its agent", **own}


def _ends_within(seconds: float) -> bool:
    """Wait; returns immediately with True when the agent closes this process's standard input."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def pause_s(elapsed: float) -> float:
    """Seconds to the next line, so that a short run has a few lines too, and the file of a run of weeks stays small."""
    return min(SLOWEST_S, max(min(EVERY_S, FIRST_S + elapsed / 4), elapsed / 1000))


@contextmanager
def run_telemetry(folder: Path | None, node: str, packages: bool, hidden: Sequence[str] = ()) -> Iterator[None]:
    """Run telemetry next to the agent's work, while the block runs.

    This never raises an error, and never waits for a process that hangs. `hidden`: the secrets, which telemetry must
    not copy.
    """
    if folder is None or os.environ.get("MUSTER_OBSERVE") == "0":
        yield
        return
    words = [sys.executable, "-P", "-m", NODE, "telemetry", str(os.getpid()), *["--packages"] * packages]
    process = None
    with suppress(OSError):
        process = subprocess.Popen(
            words,
            env={**with_muster(os.environ), "MUSTER_NODE": node},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Through its input: a variable would put the secrets into one more process's environment.
        if process.stdin:
            process.stdin.write(json.dumps(list(hidden)).encode() + b"\n")
            process.stdin.flush()
    try:
        yield
    finally:
        if process and process.stdin:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LAST_LOOK_S + 1.0)
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)


class Gpus:
    """The GPUs of this node, or why they cannot be seen. CUDA_VISIBLE_DEVICES may limit the node to some of them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.names: dict[int, str] = {}
        self.driver = self.unseen = ""
        try:
            self._nvml = Nvml()
        except NoGpus as why:
            # A machine without a GPU has nothing to show, and no fault to report.
            self.unseen = f"{why}"[:200] if _DEVICE.exists() else ""
            return
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        words = [word.strip() for word in (visible or "").split(",")]
        words = [self._nvml.whole(word) if word.startswith("MIG-") else word for word in words]
        self.driver = self._nvml.driver()
        self.names = {
            index: name
            for index, (name, uuid) in self._nvml.identities().items()
            if visible is None or _is_visible(index, uuid, words)
        }

    def read(self) -> dict[str, Any]:
        """The GPU fields of a line."""
        fields: dict[str, Any] = {"gpu_unseen": self.unseen} if self.unseen else {}
        if self.names:
            fields["gpus"] = [{"name": name, **self._nvml.read(index)} for index, name in self.names.items()]
        return fields


def _is_visible(index: int, uuid: str, visible: list[str]) -> bool:
    return any(word == str(index) or (word.startswith("GPU-") and uuid.startswith(word)) for word in visible)


def environment(variables: Mapping[str, str], gpus: Gpus) -> dict[str, Any]:
    """The content of environment.json for a script's node; imports nothing of the script's."""
    # imported here: the agent imports this module at the start of every node and does not need it
    import importlib.metadata

    # left out: with the key, a reader of the page could join the nodes' exchange of files
    from ..files.share import KEY

    # If two have the same name, Python imports the first.
    distributions, packages = dict[str, Any](), dict[str, str]()
    for package in reversed(list(importlib.metadata.distributions())):
        with suppress(UnicodeDecodeError):  # in an old package the author's name may contain an ö
            if name := package.name:
                distributions[name], packages[name] = package, package.version
    shown = variables.keys() - handover.secret_names(variables) - {KEY}
    return {
        "python": platform.python_version(),
        "torch": packages.get("torch"),
        "cuda": _cuda(distributions.get("torch")),
        "driver": gpus.driver or None,
        "gpu": ", ".join(dict.fromkeys(gpus.names.values())) or None,
        "system": platform.platform(),
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        "variables": {name: variables[name] for name in sorted(shown) if name.startswith(WRITTEN_DOWN)},
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())[:_MOST_PACKAGES]),
    }


def _cuda(torch: Distribution | None) -> str | None:
    """The CUDA version that torch was built with, from its version.py."""
    with suppress(OSError):
        text = Path(str(torch.locate_file("torch/version.py"))).read_text() if torch else ""
        if version := _CUDA.search(text):
            return version[1]
    return None


if __name__ == "__main__":
    main()
