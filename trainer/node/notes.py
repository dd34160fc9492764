"""The notes that processes of a node leave each other in its private folder (MUSTER_OUTCOME_DIR).

Most are rows of one journal. If you add another note, add its row here, or tests/unit/trainer/node/test_notes.py fails.
A script may write into this folder, too: each reader treats a note as untrusted. The folder is removed with the node.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from muster.files import object_of
from muster.reserve import JOURNAL

# The limit for one read of new rows.
_MOST_BYTES = 64 << 20


def folder_of(run_folder: Path, node: str) -> Path:
    """The private folder of a node of a run."""
    return run_folder / "nodes" / f".{node}"


def folder_here() -> Path:
    """The private folder of the node in whose container this program runs. Ends the program if there is none."""
    run_folder, node = os.environ.get("MUSTER_RUN_DIR", ""), os.environ.get("MUSTER_NODE", "")
    folder = folder_of(Path(run_folder), node)
    if not run_folder or not folder.is_dir():
        sys.exit("error: no node of a run is here")
    return folder


class Journal:
    """The journal in a private folder, read from its beginning. Several threads may read it."""

    def __init__(self, outcome: Path) -> None:
        self.folder, self._offset, self._lock = outcome, 0, threading.Lock()
        self._newest: dict[str, Any] = {}

    def read(self) -> list[dict[str, Any]]:
        """The complete rows that were added since the last call."""
        with self._lock:
            rows = [row for line in self._lines() if (row := object_of(line))]
            for row in rows:
                self._newest |= row
        return rows

    def newest(self, name: str) -> dict[str, Any]:
        """The newest object with this key in any row; empty if there is none."""
        self.read()
        value = self._newest.get(name)
        return value if isinstance(value, dict) else {}

    def _lines(self) -> list[str]:
        path, new = self.folder / JOURNAL, b""
        # A script may have put a pipe there: the open must not wait for a writer, and seeking in it fails. Or a folder.
        with (
            suppress(OSError),
            open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file,
        ):
            file.seek(self._offset)
            new = file.read(_MOST_BYTES)
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()


class Note(NamedTuple):
    """A file in the private folder. `name`: as in the code, with `*` for a number. `says`: what a reader learns.

    `writes`, `reads`: the modules that write and read it; each contains the name in its text, or `constant` in its
    place.
    """

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    says: str
    constant: str = ""


_STOP, _NODE = "muster/stop.py", "trainer/node/agent/node.py"
_BELOW, _STACKS = "trainer/node/ending/judge_below.py", "trainer/node/hang/stacks.py"
NOTES = (
    # Rows from all processes, by their writers:
    # torchrun: how ranks began and ended (ending/rank_lives.py), what it waits for (launch/epochs.py), and how
    # processes below a rank ended that are not watched from inside (ending/watch_below.py);
    # a rank: that it can stop gracefully, or has stopped as asked (muster/stop.py); its verdict, and the agent's
    # (trainer/verdict.py);
    # each process below a rank: which world it forms and that it trains (rank/world_notes.py), the exception that ended
    # it (rank/steps/watcher.py, trainer/train/run.py), that it begins anew, and which process it ended on purpose
    # (rank/end_note.py);
    # a program next to the agent: that the node is asked to leave; and the agent: whether it may leave
    # (membership/leave.py).
    Note(
        JOURNAL,
        (
            "muster/reserve.py",
            "trainer/node/rank/place.py",
        ),
        ("trainer/node/notes.py",),
        "who began, trains, stops, has ended and judges here",
        "JOURNAL",
    ),
    # Written by the agent.
    Note(
        ".epoch",
        ("trainer/node/membership/min_nodes.py", "trainer/node/membership/all_nodes.py"),
        ("trainer/node/launch/epochs.py",),
        "who trains, and where they meet; the control side looks there as well",
        "EPOCH",
    ),
    Note("unasked", (_NODE,), (_STOP, _BELOW), "nobody has asked this node to stop", "UNASKED"),
    # Written by a rank.
    Note(
        "*.stacks",
        ("trainer/node/rank/steps/watcher.py", "trainer/train/ending/stack_samples.py"),
        (_STACKS,),
        "where its threads are",
    ),
    Note(
        "end-*",
        ("trainer/node/rank/end_note.py",),
        (_BELOW,),
        "how a process that trained ended, and the last other Python below a rank: the C library adds the code",
    ),
    Note(
        ".*.*",
        ("trainer/node/rank/place.py",),
        ("trainer/node/rank/place.py",),
        "which of its processes is watched: a lock",
        "def claim",
    ),
    Note(
        "launchers-*",
        ("trainer/node/launch/launcher.py",),
        ("trainer/node/launch/launcher.py",),
        "stand-ins for a shell script, and the nodes as deepspeed reads them",
    ),
    # Any process that writes here may need this space on a full disk.
    Note(".ballast", ("muster/reserve.py",), ("muster/reserve.py",), "room for the last words", "_NAME"),
)
