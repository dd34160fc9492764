"""Shared code of this folder: output, tools, names, and how much disk a build may take. It runs in a container.

Hosts and this machine run this folder as one text (commands.program). It needs only the standard library.
"""

import importlib.metadata
import itertools
import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

NO_UV, NO_INDEX, FAILED = 4, 5, 1
# On a host without an engine: the folder with what a container would see. Empty in a container.
BARE = os.environ.get("MUSTER_ROOT", "")
# What a CUDA build of torch needs: these packages belong to the torch in the base.
FROM_BASE = re.compile(r"torch|torchvision|torchaudio|triton|pytorch-triton.*|nvidia-.*|cuda-.*")
LOST = re.compile(r"error sending request|dns error|tcp connect error|failed to fetch|certificate|timed out", re.I)
NAME = re.compile(r"(?:-e\s+)?([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
# A requirement: a name, extras, a version range, a marker. No option, no address, no path, no variable: other machines
# would fetch what a host or a build writes here.
NEED = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*+[ \t]*+(\[[\w \t.,-]*+\])?+[ \t]*+\(?+[\w \t.,<>=!~*+-]*+\)?+[ \t]*+"
    r"(;[\w \t.'\"()<>=!~*+,-]*+)?+"
)
_LAST_WORDS, _LONGEST, _MOST_SAID, _DRAINED_S = 40, 4096, 5000, 5.0
# How much of a host's disk must stay free, and how much one order may take.
_LEAST_FREE, _MOST_TAKEN = 1 << 30, 64 << 30
children: list["subprocess.Popen[bytes]"] = []
over = threading.Event()
_shown, _one_at_a_time = itertools.count(), threading.Lock()


class Stop(Exception):
    """Raised if the order cannot be carried out: an exit code, and the words of the tool that failed."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


def tell(**fields: Any) -> None:
    """Write one line of JSON."""
    with _one_at_a_time:
        print(json.dumps(fields), flush=True)


def normal(name: str) -> str:
    """A package's normalized name, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, importlib.metadata.Distribution]:
    """The packages that this Python has, by name. If two have one name, it is the one that Python imports."""
    by_name: dict[str, importlib.metadata.Distribution] = {}
    for entry in importlib.metadata.distributions():
        if entry.metadata["Name"]:
            by_name.setdefault(normal(entry.metadata["Name"]), entry)
    return by_name


def run(
    words: list[str],
    folder: Path,
    shown: bool = True,
    owner: tuple[int, int] | None = None,
    environment: dict[str, str] | None = None,
    seconds: float | None = None,
) -> None:
    """Run a tool; its output lines go to the control side. Raises Stop with its last words.

    owner: the tool is a build. It runs as that user and group, and all processes that it started are ended with it.
    """
    rights: dict[str, Any] = {"user": owner[0], "group": owner[1], "extra_groups": [], "umask": 0o022} if owner else {}
    child = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=environment, start_new_session=True, **rights,
    )  # fmt: skip
    children.append(child)
    lines = deque[str](maxlen=_LAST_WORDS)
    reader = threading.Thread(target=_read_output, args=(child, lines, shown), daemon=True)
    reader.start()
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    if owner:
        end_all_of(owner[0])
    reader.join(_DRAINED_S)  # a process that escaped may keep the pipe open
    children.remove(child)
    if disk.words:
        raise Stop(FAILED, disk.words)
    if code:
        text = last_words(list(lines)) or f"{Path(words[0]).name} ended with code {code}"
        if code == -signal.SIGKILL:
            text = f"{text}\nit was killed: most likely, it needed more memory than its container may use"
        # An index that answers was reached, even if the answer is an error.
        raise Stop(NO_INDEX if not owner and LOST.search(text) and "HTTP status" not in text else FAILED, text)


def last_words(lines: list[str]) -> str:
    """From a tool's last lines: everything from its first error on."""
    first = next((number for number, line in enumerate(lines) if line.startswith(("error", "ERROR"))), 0)
    return "\n".join(lines[first:]).strip()


def _read_output(child: "subprocess.Popen[bytes]", lines: "deque[str]", shown: bool) -> None:
    """Read a tool's output line by line; a line without an end is read in pieces."""
    assert child.stdout is not None
    while piece := child.stdout.readline(_LONGEST):
        line = piece.decode(errors="replace").rstrip()
        lines.append(line)
        if shown and line.strip() and not line.lstrip().startswith("--hash") and next(_shown) < _MOST_SAID:
            tell(say=line.strip()[:300])


def end_all_of(user: int) -> bool:
    """End every process of a build's user (the container has no others of that user); True if none is left."""
    for _ in range(50):
        left = False
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if _is_alive(name, user):
                    left = True
                    os.kill(int(name), signal.SIGKILL)
        if not left:
            return True
        time.sleep(0.02)
    return False


def _is_alive(pid: str, user: int) -> bool:
    """Whether that user's process is alive.

    /proc/PID belongs to root if the process hides its memory, so its status is read instead.
    """
    rows = dict(line.partition(":")[::2] for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return str(user) in rows["Uid"].split() and rows["State"].split()[0] not in "ZX"


class Disk:
    """Ends a build or an install that would fill the disk, because the host's other work needs some of it."""

    words = ""

    def watch(self, place: Path, owner: int | None) -> None:
        """Check the disk of a place repeatedly. `owner`: the user whose processes are ended."""
        first = os.statvfs(place)
        least = min(_LEAST_FREE, first.f_blocks * first.f_frsize // 20)
        while not over.wait(0.2):
            now = os.statvfs(place)
            free, taken = now.f_bavail * now.f_frsize, (first.f_bavail - now.f_bavail) * now.f_frsize
            if free < least or (now.f_files and now.f_favail < now.f_files // 50):
                self.words = "No space left on device: the last 1 GiB, or 5 %, stays free for others"
            elif taken > _MOST_TAKEN:
                self.words = "No space left on device for this: since it began, the disk has lost 64 GiB"
            if self.words:
                end_children(owner)
                return


def end_children(owner: int | None) -> None:
    """End the running tools, and everything that a build has started."""
    for child in list(children):
        if child.poll() is None:
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
    if owner is not None:
        end_all_of(owner)


disk = Disk()


class Work:
    """One order: where its files are, and the uv that carries it out."""

    def __init__(self, order: dict[str, Any], scratch: Path) -> None:
        self.order, self.scratch, self.wheels = order, scratch, scratch / "wheels"
        self.tools, self.built = Path(order["tools"]), Path(order["made"])
        os.environ |= {"UV_CACHE_DIR": f"{order['cache']}/uv", "UV_NO_CONFIG": "1"}

    @cached_property
    def base(self) -> dict[str, importlib.metadata.Distribution]:
        """The packages in the base."""
        return installed()

    @cached_property
    def uv(self) -> str:
        """The path of uv: the one in this base's tools, else the one that was sent, else one from the index.

        It is kept if this program may write to the tools. A build cannot: there the tools are read-only.
        """
        home = self.tools / f"uv-{self.order['uv']}"
        if (home / "bin" / "uv").is_file():
            return str(home / "bin" / "uv")
        stays = os.access(self.tools, os.W_OK)
        part = self.tools / f"uv-{os.getpid()}.part" if stays else self.scratch / "own"
        shutil.rmtree(part, ignore_errors=True)
        sent = self.scratch / "uv"
        if sent.is_file():
            (part / "bin").mkdir(parents=True)
            shutil.move(sent, part / "bin" / "uv")
        else:
            tell(say="getting uv")
            words = ["install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
            where = ["--target", str(part), "--requirement", str(self.scratch / "uv.txt")]
            try:
                run([sys.executable, "-m", "pip", *words, *where], self.scratch, shown=False)
            except Stop as fault:
                raise Stop(NO_UV, fault.words) from fault
        (part / "bin" / "uv").chmod(0o755)
        if stays:
            shutil.rmtree(home, ignore_errors=True)
            part.rename(home)
            part = home
        return str(part / "bin" / "uv")

    def make_environment(self, place: Path) -> tuple[str, Path]:
        """Make an empty environment with the base's Python; return its Python, and the folder for its packages."""
        words = ["venv", "--quiet", "--allow-existing", "--python", sys.executable, str(place)]
        run([self.uv, *words], self.scratch, shown=False)
        return str(place / "bin" / "python"), next(place.glob("lib/python*/site-packages"))


def add_base(packages: Path) -> None:
    """Make Python search the base's packages after those of an environment."""
    places = [
        *site.getsitepackages(),
        *(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))),
    ]
    folders = [path for path in dict.fromkeys(places) if os.path.isdir(path)]
    (packages / "zz_muster_base.pth").write_text("".join(f"import site; site.addsitedir({p!r})\n" for p in folders))


def read_name(line: str) -> str:
    """The name at the beginning of a requirement line; empty if there is none."""
    match = NAME.match(line)
    return normal(match[1]) if match else ""


def comes_with_torch(line: str) -> bool:
    """Whether a line names a package that comes with a build of torch, other than torch and its sisters."""
    name = read_name(line)
    return bool(FROM_BASE.fullmatch(name)) and not name.startswith("torch")
