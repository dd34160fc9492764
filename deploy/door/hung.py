"""Find the folder that a host's command hangs on: a file server that is gone blocks every process that asks it.

A shell looks for commands in each folder of its PATH, and Muster's files are below the home. If a command did not end,
Muster starts another one, which needs none of these folders and tries each in its own process (scripts/hangs.sh).
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

# A folder on a busy file server may take a second to answer.
ANSWER_S, BEGIN_S = 3.0, 5.0
SHELL = "/bin/sh"
_SCRIPT, _MOST = Scripts(__file__), 600
_SYSTEM = {"/bin", "/sbin", "/usr/bin", "/usr/sbin"}
# The script's first folders (the home and Muster's) are not from the PATH: this is their number.
_NOT_IN_PATH = 3
_LINE = re.compile(r"(folder|answers) (\d{1,4})(?: (.{1,4096}))?")


class HungFolder(NamedTuple):
    """A folder that does not answer. `target`: where it points, if it is a link.

    `kind`, `place`: the type and the path of its mount, if known. `is_ours`: it is the home or one of Muster's folders;
    otherwise it is in the PATH.
    """

    path: str
    target: str
    kind: str
    place: str
    is_ours: bool

    @property
    def words(self) -> str:
        """A sentence about this folder, for a message."""
        who = self.path if self.is_ours else f"{self.path}, which is in the PATH"
        leads = f" -> {self.target}" if self.target else ""
        mount = f" ({self.kind} on {self.place})" if self.kind else ""
        return one_line(f"{who}{leads}{mount} does not answer: is its file server down?")

    @property
    def fix(self) -> str:
        """What to do about it."""
        free = f"sudo umount -fl {quote(self.place)}" if self.place else "mount | tail"
        more = ""
        if not self.is_ours:
            more = f"; or take {quote(self.path)} out of the PATH (~/.bashrc, ~/.profile, /etc/environment)"
        elif self.target:
            more = f"; or point {quote(self.path)} to a folder that answers"
        return one_line(f"{free}   (or bring its server back){more}")


def command() -> list[str]:
    """Return the command that tries the folders. It starts the shell by its path, without a search in the PATH."""
    return [SHELL, *_SCRIPT("hangs", f"{ANSWER_S + 1:.0f}")[1:]]


def read_answers(read_line: Callable[[float], bytes]) -> list[str]:
    """Read the script's lines until each folder has answered or its time is over. Empty if the list is incomplete."""
    lines, end = list[str](), time.monotonic() + BEGIN_S
    with suppress(DeployError):  # the command is silent, or has ended
        while (left := end - time.monotonic()) > 0 and len(lines) < _MOST:
            lines.append(read_line(left).decode(errors="replace"))
            if lines[-1] == "all":
                end = time.monotonic() + ANSWER_S
            words = [line.partition(" ")[0] for line in lines]
            if "all" in words and words.count("answers") == words.count("folder"):
                break
    return lines if "all" in lines else []


def parse(lines: Iterable[str]) -> list[HungFolder]:
    """Return the folders that have not answered, without those below another such folder.

    Empty if one of the system's own folders has not answered either.
    """
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
    # On a machine that is too busy, not even these answer in time: then no folder is at fault.
    if _SYSTEM & set(silent.values()):
        return []
    named: list[HungFolder] = []
    for number, path in silent.items():
        if path in (other.path for other in named) or any(path.startswith(f"{other}/") for other in silent.values()):
            continue
        arrow = f" {path} -> "
        target = next((row.partition(arrow)[2].rstrip("/") for row in lines_of_ls if arrow in row), "")
        under = [(kind, at) for kind, at in mounts if f"{target or path}/".startswith(f"{at.rstrip('/')}/")]
        kind, at = max(under, key=lambda mount: len(mount[1]), default=("", ""))
        named.append(HungFolder(path, target, kind, at, int(number) < _NOT_IN_PATH))
    return named
