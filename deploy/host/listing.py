"""What a run's folder on a host holds, and which of it `fab fetch` asks for. Pure.

A host's list is only asked about: whatever it says, what the host then sends is checked by unpack.py and incoming.py.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..core.errors import BadAnswer, DeployError
from .unpack import parts_of

# Programs can make these again. As trainer/node/work.py has them (docs/contract.md).
CACHES = (".cache", ".triton", ".nv", ".config", "__pycache__")
# How the agent remembers what was sent; for this machine it is no result.
_HOUSEKEEPING = re.compile(r"(?:sent|copies)\.json|\.(?:sent|scalars)\.lock|\.others-.*|nodes/\..*")
_LINE = re.compile(r"([0-9a-f]{1,8}) ([0-9]{1,18}) (-?[0-9]{1,12})(?:\.[0-9]+)? \./(.+)")


@dataclass(frozen=True)
class Stamp:
    """A file's size in bytes and the second of its last change: the same stamp, the same content."""

    size: int
    time: int


@dataclass(frozen=True)
class Listing:
    """The files of a run's folder on a host by path; its links; its caches; the files as they were sent there.

    `copies`: files as they came from another host.
    """

    files: Mapping[str, Stamp]
    links: Sequence[str] = ()
    caches: Sequence[str] = ()
    sent: Mapping[str, Stamp] = field(default_factory=dict)
    copies: Mapping[str, Stamp] = field(default_factory=dict)

    def is_copy(self, path: str) -> bool:
        """Whether this file is as it came from another host."""
        return self.copies.get(path) == self.files[path]


@dataclass(frozen=True)
class Selection:
    """What a host is asked for. `leave_out`: what it shall not send; `home`: files that are here already."""

    wanted: Mapping[str, Stamp]
    leave_out: Sequence[str]
    home: Mapping[str, Stamp]

    @property
    def size(self) -> int:
        """How many bytes the wanted files have."""
        return sum(stamp.size for stamp in self.wanted.values())

    def without(self, staged: Mapping[str, Stamp]) -> Selection:
        """The same, less the files that a cut fetch has brought."""
        wanted = {path: stamp for path, stamp in self.wanted.items() if path not in staged}
        return Selection(wanted, [*self.leave_out, *staged], self.home)

    @property
    def input(self) -> bytes:
        """`leave_out` for the script take-home. tar ignores blanks at a line's end: such a path would be another."""
        lines = (f"./{path}\n" for path in self.leave_out if path == path.rstrip())
        return "".join(lines).encode("utf-8", "surrogateescape")


def parse(answer: str) -> Listing:
    """Read the answer of the script list-files. Names that no file here can have are passed over.

    Raises DeployError for a list that is not complete.
    """
    sent, *lines = answer.split("\n")
    if lines[-2:] != ["end", ""]:
        raise DeployError("its list of files is incomplete")
    copies, *lines = lines
    files, links, caches = dict[str, Stamp](), list[str](), list[str]()
    for line in lines[:-2]:
        match = _LINE.fullmatch(line)
        if not match or "\ufffd" in line:
            continue
        mode, path = int(match[1], 16), match[4]
        with suppress(BadAnswer):
            parts_of(path)
            if stat.S_ISREG(mode):
                files[path] = Stamp(int(match[2]), int(match[3]))
            elif stat.S_ISLNK(mode):
                links.append(path)
            elif stat.S_ISDIR(mode):
                caches.append(path)
    return Listing(files, links, caches, _stamps(sent, "work/", 1), _stamps(copies, "", 0))


def select(
    listing: Listing, only: Sequence[str], is_home: Callable[[str, Stamp], bool], elsewhere: Container[str] = ()
) -> Selection:
    """Choose what to ask for: what matches `only`; without patterns, all but caches and unchanged sent files.

    A copy of what is `elsewhere`, on its own host, is not asked for.
    """
    wanted, home, leave_out = dict[str, Stamp](), dict[str, Stamp](), list[str]()
    for path, stamp in listing.files.items():
        chosen = matches(path, only) if only else listing.sent.get(path) != stamp
        if _HOUSEKEEPING.fullmatch(path) or not chosen or (path in elsewhere and listing.is_copy(path)):
            leave_out.append(path)
        elif is_home(path, stamp):
            home[path] = stamp
            leave_out.append(path)
        else:
            wanted[path] = stamp
    if only:
        leave_out += [path for path in listing.links if not matches(path, only)]
    return Selection(wanted, [*leave_out, *listing.caches], home)


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names the path, or a folder above it. `*` stands for any letters, / too."""
    folders = [path]
    while "/" in folders[-1]:
        folders.append(folders[-1].rpartition("/")[0])
    return any(fnmatchcase(name, pattern.strip("/")) for pattern in patterns for name in folders)


def _stamps(text: str, above: str, place: int) -> dict[str, Stamp]:
    """The files of sent.json or copies.json, as docs/contract.md has them; none if it cannot be read.

    `above`: the folder of their paths. `place`: where in a row size and time are.
    """
    with suppress(ValueError, RecursionError):
        rows = json.loads(text)
        if isinstance(rows, dict):
            return {
                f"{above}{path}": Stamp(*row[place:])
                for path, row in rows.items()
                if isinstance(row, list)
                and len(row) == place + 2
                and all(type(number) is int for number in row[place:])
            }
    return {}
