"""Which folder a host waits for, where one of its commands did not end: a file server that is gone keeps whoever asks.

A shell looks for commands in each folder of its PATH, and Muster's files lie below the home. One more command, which
needs none of these folders, asks each of them in a process of its own (scripts/hangs.sh).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from shlex import quote
from typing import NamedTuple

from ..core.errors import DeployError
from ..core.printable import one_line
from ..core.scripts import Scripts

# A folder of a busy server may take a second.
ANSWER_S, BEGIN_S = 3.0, 5.0
SHELL = "/bin/sh"
_SCRIPT, _MOST = Scripts(__file__), 600
_SYSTEM = {"/bin", "/sbin", "/usr/bin", "/usr/sbin"}
# The script begins with so many folders that are not those of the PATH.
_OWN = 3
_LINE = re.compile(r"(folder|answers) (\d{1,4})(?: (.{1,4096}))?")


class Hung(NamedTuple):
    """A folder that does not answer. `target`: where it leads, if it is a link. `kind`, `place`: its mount, if known.

    `own`: the home or a folder of Muster's; the others are in the PATH.
    """

    path: str
    target: str
    kind: str
    place: str
    own: bool

    @property
    def words(self) -> str:
        """What it is, in words."""
        who = self.path if self.own else f"{self.path}, which is in the PATH"
        leads = f" -> {self.target}" if self.target else ""
        mount = f" ({self.kind} on {self.place})" if self.kind else ""
        return one_line(f"{who}{leads}{mount} does not answer: is its file server down?")

    @property
    def fix(self) -> str:
        """What to do about it."""
        free = f"sudo umount -fl {quote(self.place)}" if self.place else "mount | tail"
        more = ""
        if not self.own:
            more = f"; or take {quote(self.path)} out of the PATH (~/.bashrc, ~/.profile, /etc/environment)"
        elif self.target:
            more = f"; or point {quote(self.path)} to a folder that answers"
        return one_line(f"{free}   (or bring its server back){more}")


def command() -> list[str]:
    """The command that asks. Its shell is called by its path."""
    return [SHELL, *_SCRIPT("hangs", f"{ANSWER_S + 1:.0f}")[1:]]


def heard(read_line: Callable[[float], bytes]) -> list[str]:
    """The lines that come until each folder has answered, or has had its time. Nothing if it did not begin."""
    lines, end = list[str](), time.monotonic() + BEGIN_S
    with suppress(DeployError):  # it is silent, or over
        while (left := end - time.monotonic()) > 0 and len(lines) < _MOST:
            lines.append(read_line(left).decode(errors="replace"))
            if lines[-1] == "all":
                end = time.monotonic() + ANSWER_S
            words = [line.partition(" ")[0] for line in lines]
            if "all" in words and words.count("answers") == words.count("folder"):
                break
    return lines if "all" in lines else []


def parse(lines: Iterable[str]) -> list[Hung]:
    """The folders that have not answered, without those below another one. None if the system's own do not answer."""
    rows = list(lines)
    mounts = [row.split(" ", 2)[1:] for row in rows if row.startswith("mount ") and row.count(" ") > 1]
    lines_of_ls = [row for row in rows if row.startswith("l")]
    folders, answered = dict[str, str](), set[str]()
    for match in filter(None, map(_LINE.fullmatch, rows)):
        if match[1] == "answers":
            answered.add(match[2])
        else:
            folders[match[2]] = (match[3] or "").rstrip("/")
    silent = {number: path for number, path in folders.items() if number not in answered and path}
    # A machine that is too busy answers nothing in time: no folder is at fault.
    if _SYSTEM & set(silent.values()):
        return []
    named: list[Hung] = []
    for number, path in silent.items():
        if path in (other.path for other in named) or any(path.startswith(f"{other}/") for other in silent.values()):
            continue
        arrow = f" {path} -> "
        target = next((row.partition(arrow)[2].rstrip("/") for row in lines_of_ls if arrow in row), "")
        under = [(kind, at) for kind, at in mounts if f"{target or path}/".startswith(f"{at.rstrip('/')}/")]
        kind, at = max(under, key=lambda mount: len(mount[1]), default=("", ""))
        named.append(Hung(path, target, kind, at, int(number) < _OWN))
    return named
