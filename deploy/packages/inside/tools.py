"""What the other modules here need: output, tools, names. It runs in a container of the base image.

hosts run this folder as one text (commands.program), this machine as well. It needs only the standard library.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

NO_UV, NO_INDEX, FAILED = 4, 5, 1
# What a CUDA build of torch brings along; it belongs to the torch that is there.
FROM_BASE = re.compile(r"torch|torchvision|torchaudio|triton|pytorch-triton.*|nvidia-.*|cuda-.*")
_LOST = re.compile(r"error sending request|dns error|tcp connect error|failed to fetch|certificate|timed out", re.I)
NAME = re.compile(r"(?:-e\s+)?([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_LAST_WORDS = 40
PIECE = 384 << 10  # bytes; in base64 less than the longest line that the control side reads
children: list["subprocess.Popen[str]"] = []
over = threading.Event()


class Stop(Exception):
    """The order cannot be done: a code, and the words of the tool that says why."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


def tell(**fields: Any) -> None:
    """Write one line of JSON."""
    print(json.dumps(fields), flush=True)


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, importlib.metadata.Distribution]:
    """What this Python has, by name; of two with one name the one that it imports."""
    by_name: dict[str, importlib.metadata.Distribution] = {}
    for entry in importlib.metadata.distributions():
        if entry.metadata["Name"]:
            by_name.setdefault(normal(entry.metadata["Name"]), entry)
    return by_name


def run(words: list[str], folder: Path, shown: bool = True) -> None:
    """Run a tool; its lines go to the waiting side. Raises Stop with its last words."""
    child = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    children.append(child)
    lines: list[str] = []
    assert child.stdout is not None
    for line in child.stdout:
        lines = [*lines, line.rstrip()][-_LAST_WORDS:]
        if shown and line.strip() and not line.lstrip().startswith("--hash"):
            tell(say=line.strip()[:300])
    if child.wait():
        first = next((number for number, line in enumerate(lines) if line.startswith(("error", "ERROR"))), 0)
        text = "\n".join(lines[first:]).strip() or f"{words[0]} ended with code {child.returncode}"
        # An index that answers is reached, whatever it says.
        raise Stop(NO_INDEX if _LOST.search(text) and "HTTP status" not in text else FAILED, text)


class Work:
    """One order: where its files are, and the uv that does it."""

    def __init__(self, order: dict[str, Any], scratch: Path) -> None:
        self.order, self.scratch = order, scratch
        self.cache, self.wheels, self.base = Path(order["cache"]), scratch / "wheels", installed()
        self.wheels.mkdir(exist_ok=True)
        os.environ["UV_CACHE_DIR"] = str(self.cache / "uv")

    @cached_property
    def uv(self) -> str:
        """The uv of this machine's cache, else the one that was sent, else one from the index."""
        home = self.cache / f"uv-{self.order['uv']}"
        program, part = home / "bin" / "uv", self.cache / f"uv-{os.getpid()}.part"
        if program.is_file():
            return str(program)
        shutil.rmtree(part, ignore_errors=True)
        sent = self.scratch / "uv"
        if sent.is_file():
            (part / "bin").mkdir(parents=True)
            shutil.copyfile(sent, part / "bin" / "uv")
        else:
            tell(say="getting uv")
            words = ["install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
            where = ["--target", str(part), "--requirement", str(self.scratch / "uv.txt")]
            try:
                run([sys.executable, "-m", "pip", *words, *where], self.scratch, shown=False)
            except Stop as fault:
                raise Stop(NO_UV, fault.words) from fault
        (part / "bin" / "uv").chmod(0o755)
        shutil.rmtree(home, ignore_errors=True)
        part.rename(home)
        return str(program)

    def of_base(self) -> dict[str, str]:
        """The versions of what comes from the base alone. The local part says which build it is."""
        versions = {name: entry.version for name, entry in self.base.items() if FROM_BASE.fullmatch(name)}
        if "torch" not in versions:
            raise Stop(FAILED, "the base has no torch: name an image that has it")
        return versions


def read_name(line: str) -> str:
    """The name at the beginning of a line of requirements; empty if there is none."""
    match = NAME.match(line)
    return normal(match[1]) if match else ""


def comes_along(line: str) -> bool:
    """Whether a line names what a build of torch brings along, other than torch and its sisters."""
    name = read_name(line)
    return bool(FROM_BASE.fullmatch(name)) and not name.startswith("torch")
