"""The code that a run started with: code.json and code.diff in its folder, sealed like its record (provenance.py).

send/folder/repository.py asks git. A container could replace both files, so only what this machine's user wrote is
shown.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ...core import provenance
from . import own_files
from .record import read_json, write_json

_FACTS, _DIFF = "code.json", "code.diff"
_LISTS = ("changed", "new", "left_out")


@dataclass(frozen=True)
class Code:
    """A git commit and how the folder differed from it: `changed` and `new` files, as paths relative to the folder.

    `diff`: the diff of the changed files that were sent, except `left_out`, which hold a credential. `cut`: the diff
    was too long.
    """

    commit: str
    branch: str = ""
    changed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    cut: bool = False
    diff: str = ""

    @property
    def dirty(self) -> bool:
        """Whether the folder differed from the commit."""
        return bool(self.changed or self.new)


def write(run_dir: Path, code: Code | None) -> None:
    """Replace what an earlier start wrote. With None, or on a full disk, nothing about the code is kept."""
    for name in (_FACTS, _DIFF):
        with suppress(OSError):
            (run_dir / name).unlink()
    if code is None:
        return
    diff = code.diff.encode(errors="surrogateescape")
    facts = {name: value for name, value in asdict(code).items() if name != "diff"}
    digest = hashlib.sha256(diff).hexdigest()
    with suppress(OSError):  # the nodes are already running
        own_files.write(run_dir, _DIFF, diff)
        write_json(run_dir / _FACTS, provenance.sealed({**facts, "run": run_dir.name, "sha256": digest}))


def read(run_dir: Path, whole: bool = True) -> Code | None:
    """What this user recorded for this run on this machine (without the diff if not `whole`); else None."""
    stored = read_json(run_dir / _FACTS)
    if not provenance.is_ours(stored) or stored.get("run") != run_dir.name:
        return None
    diff = b""
    with suppress(OSError):
        diff = own_files.read(run_dir / _DIFF) if whole else b""
    if whole and hashlib.sha256(diff).hexdigest() != stored.get("sha256"):
        return None
    lists = {name: tuple(map(str, stored.get(name, ()))) for name in _LISTS}
    commit, branch = (str(stored.get(name, "")) for name in ("commit", "branch"))
    return Code(commit, branch, **lists, cut=stored.get("cut") is True, diff=diff.decode(errors="replace"))
