"""The notes that processes of a node leave each other in its private folder (MUSTER_OUTCOME_DIR): a row each.

Most are rows of one journal. Whoever adds another note adds its row here, or tests/unit/trainer/node/test_notes.py is
red. A script may write there as well: each reader takes a note for what anybody may have written. The folder goes with
the node.
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

# Of what is new, at a time.
_MOST_BYTES = 64 << 20


def folder_of(run_folder: Path, node: str) -> Path:
    """The private folder of a node of a run."""
    return run_folder / "nodes" / f".{node}"


def folder_here() -> Path:
    """That of the node in whose container this program runs. Ends the program where there is none."""
    run_folder, node = os.environ.get("MUSTER_RUN_DIR", ""), os.environ.get("MUSTER_NODE", "")
    folder = folder_of(Path(run_folder), node)
    if not run_folder or not folder.is_dir():
        sys.exit("error: no node of a run is here")
    return folder


class Journal:
    """The journal in a private folder, from its beginning. Several threads may read."""

    def __init__(self, outcome: Path) -> None:
        self.folder, self._offset, self._lock = outcome, 0, threading.Lock()
        self._newest: dict[str, Any] = {}

    def read(self) -> list[dict[str, Any]]:
        """The whole rows since the last call."""
        with self._lock:
            rows = [row for line in self._lines() if (row := object_of(line))]
            for row in rows:
                self._newest |= row
        return rows

    def newest(self, name: str) -> dict[str, Any]:
        """The newest object of that name in a row; empty if there is none."""
        self.read()
        value = self._newest.get(name)
        return value if isinstance(value, dict) else {}

    def _lines(self) -> list[str]:
        path, new = self.folder / JOURNAL, b""
        # A script may have put a pipe there: nobody waits for it, and no reader can seek in it; or a folder.
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
    """A file of the private folder. `name`: as the code has it, with `*` for a number. `says`: what a reader learns.

    `writes`, `reads`: the modules; each has the name in its text, or `constant`, which stands for it.
    """

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    says: str
    constant: str = ""


_STOP, _NODE = "muster/stop.py", "trainer/node/agent/node.py"
_BELOW, _STACKS = "trainer/node/ending/judge_below.py", "trainer/node/hang/stacks.py"
NOTES = (
    # Rows of all processes, by whom they are written:
    # torchrun's: how ranks began and ended (ending/rank_lives.py), what it waits for (launch/epochs.py), and how what
    # is not watched from inside ended below a rank (ending/watch_below.py);
    # a rank's: that it can stop gracefully, or has stopped as asked (muster/stop.py); its verdict, and the agent's
    # (trainer/verdict.py);
    # of each process below a rank: which world it forms and that it trains (rank/together.py), the exception that ended
    # it (rank/steps/watcher.py, trainer/train/run.py), that it begins anew, and whom it ended on purpose
    # (rank/end_note.py);
    # of a program beside the agent, that somebody asks the node to leave, and of the agent, whether it may
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
    # The agent's.
    Note(
        ".epoch",
        ("trainer/node/membership/min_nodes.py", "trainer/node/membership/all_nodes.py"),
        ("trainer/node/launch/epochs.py",),
        "who trains, and where they meet; the control side looks there as well",
        "EPOCH",
    ),
    Note("unasked", (_NODE,), (_STOP, _BELOW), "nobody has asked this node to stop", "UNASKED"),
    # A rank's.
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
    # Every process that writes here may need its bytes on a full disk.
    Note(".ballast", ("muster/reserve.py",), ("muster/reserve.py",), "room for the last words", "_NAME"),
)
