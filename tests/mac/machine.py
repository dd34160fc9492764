"""A simulated Mac on Linux, for developers without one: a program sees a Mac's system, as far as Linux can show it.

Its Python has what macOS has (stand_in.py). /proc, /sys and /dev/shm are hidden, loopback is lo0, folders for
temporary files have long names behind a link, and only macOS's programs are installed. It needs root. It cannot show:
numbers of signals and errors, kqueue, file names in which case does not count, BSD's tools.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from tests.mac import linux_only

HOME = Path(__file__).resolve().parents[2]
# As long as a real path of macOS.
TEMPORARY = "/mnt/var/folders/zz/zyxvpxvq6csfxvn_n000000000/T/"
_MARK, _ENGINE = "MAC_PROCESSES", Path("/var/run/docker.sock")
# Runs in a new namespace. $1: where psutil sees the processes, since it has another path to them there. $2: lo0, if the
# Mac has its own network. $3: the folder for temporary files. $4: an engine's socket.
_SET_UP = """
set -e
mount --bind /proc "$1"
mount -t tmpfs none /mnt
mkdir -p /mnt/private/tmp "/mnt/private/${3#/mnt/}" && ln -s private/var /mnt/var && ln -s private/tmp /mnt/tmp
mount -t tmpfs none /dev/shm
if [ "$2" ]; then ip link set lo name lo0 && ip addr add 127.0.0.1/8 dev lo0 2>/dev/null || true; ip link set lo0 up; fi
[ ! -e "$4" ] || mount --bind /dev/null "$4"
mount -t tmpfs none /sys && mount -t tmpfs none /proc
echo ready
read -r _
"""
_TOOLS = """
awk basename bash cat chmod cp date df dirname env expr find getconf git grep gzip head hostname id kill ln ls mkdir
mktemp mv printf ps readlink rm rmdir sed sh sleep sort ssh tail tar tee test touch tr uname wc xargs
"""
TOOLS = tuple(_TOOLS.split())


class Mac:
    """A running Mac. `home`: its user's home."""

    def __init__(self, folder: Path, inside: int) -> None:
        self._folder, self._inside = folder, inside
        self.home, self.python = folder / "home", folder / "bin" / "python"
        self.muster = folder / "bin" / "muster"
        self.environment = {
            "PATH": f"{folder}/bin:{folder}/tools",
            "HOME": str(self.home),
            "TMPDIR": TEMPORARY,
            "SHELL": "/bin/zsh",
            "LANG": "en_US.UTF-8",
            "LC_CTYPE": "UTF-8",
            _MARK: str(folder / "processes"),
        }

    def start(self, *words: object, **more: Any) -> subprocess.Popen[str]:
        """Start a command as the Mac's user; `env`: more variables."""
        own = self.environment | more.pop("env", {})
        entered = [_tool("nsenter"), "-t", str(self._inside), "-m", "-n", f"--wdns={more.pop('cwd', self.home)}"]
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
        return subprocess.Popen([*map(str, entered), *map(str, words)], env=own, **{**given, **more})

    def run(self, *words: object, seconds: float = 150, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as the Mac's user to its end."""
        started = self.start(*words, **more)
        out, err = started.communicate(timeout=seconds)
        return subprocess.CompletedProcess(words, started.returncode, out, err)

    def left(self) -> list[psutil.Process]:
        """The Mac's processes that are still alive."""
        mark, found = str(self._folder / "processes"), list[psutil.Process]()
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found


@contextmanager
def started(lo0: bool = True, tools: Sequence[str] = TOOLS) -> Iterator[Mac]:
    """A Mac with these programs. `lo0`: whether it has its own network, with loopback only."""
    with TemporaryDirectory(prefix="muster-mac-", dir="/tmp") as place:  # not in /dev/shm, which a Mac lacks
        folder = Path(place)
        _install(folder, tools)
        words = ["set-up", str(folder / "processes"), "lo0" * lo0, TEMPORARY, str(_ENGINE.resolve())]
        line = [_tool("unshare"), "-m", *["-n"] * lo0, _tool("sh"), "-c", _SET_UP, *words]
        holder = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        mac = Mac(folder, holder.pid)
        try:
            assert holder.stdout.readline() == "ready\n"  # type: ignore[union-attr]
            yield mac
        finally:
            for process in mac.left():
                process.kill()
            holder.communicate()


def _install(folder: Path, tools: Sequence[str]) -> None:
    """Install its Python, with this Python's packages, and macOS's programs."""
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for each in (packages, *(folder / name for name in ("bin", "tools", "home", "processes"))):
        each.mkdir(parents=True)
    real = Path(sys.executable).resolve()
    (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = false\n")
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(real)
    for name in tools:
        if at := shutil.which(name):
            (folder / "tools" / name).symlink_to(at)
    shutil.copy(Path(__file__).with_name("stand_in.py"), packages / "mac_stand_in.py")
    (packages / "names.json").write_text(json.dumps(linux_only.by_module()))
    theirs = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "mac.pth").write_text("".join(f"{path}\n" for path in theirs) + "import mac_stand_in\n")
    muster = f"#!{folder}/bin/python -PE\nimport sys\nsys.path.insert(0, {str(HOME)!r})\n"
    (folder / "bin" / "muster").write_text(f"{muster}from deploy.commands.main import main\nmain()\n")
    (folder / "bin" / "muster").chmod(0o755)


def _tool(name: str) -> str:
    at = shutil.which(name)
    assert at, f"{name} is needed"
    return at
