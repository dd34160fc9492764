"""The notes that processes of a node leave each other in its private folder (MUSTER_OUTCOME_DIR): a row each.

Whoever adds one adds its row, or tests/unit/trainer/node/test_notes.py is red. A script may write there as well: each
reader takes a note for what anybody may have written. The folder goes with the node.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple


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
    # Between the agent and torchrun's process.
    Note(
        "ends.jsonl",
        ("trainer/node/ending/rank_lives.py",),
        ("trainer/node/ending/rank_lives.py",),
        "each start and end of a rank, whose words come, and what failed below one that ended with 0",
        "_NAME",
    ),
    Note(
        ".epoch",
        ("trainer/node/membership/min_nodes.py", "trainer/node/membership/all_nodes.py"),
        ("trainer/node/launch/epochs.py",),
        "who trains, and where they meet",
        "EPOCH",
    ),
    Note(
        ".says",
        ("trainer/node/launch/epochs.py",),
        ("trainer/node/membership/min_nodes.py", "trainer/node/membership/all_nodes.py"),
        "what torchrun waits for",
        "SAYS",
    ),
    # Between the agent and its ranks.
    Note("unasked", (_NODE,), (_STOP, _BELOW), "nobody has asked this node to stop", "UNASKED"),
    Note("*.pid", (_STOP,), (_NODE,), "a rank can stop gracefully, or has stopped as asked"),
    Note(
        "*.stacks",
        ("trainer/node/rank/steps/watcher.py", "trainer/train/ending/stack_samples.py"),
        (_STACKS,),
        "where its threads are",
    ),
    Note("*.json", ("trainer/verdict.py",), (_NODE,), "the verdict of a rank, or of the agent"),
    Note(
        "ranks.jsonl",
        (
            "trainer/node/rank/together.py",
            "trainer/node/rank/failure.py",
            "trainer/train/run.py",
            "trainer/node/ending/watch_below.py",
        ),
        ("trainer/node/ending/training_alone.py",),
        "which world each process below a rank forms, whether it trains, and the exception that ended it",
        "NOTES",
    ),
    Note(
        "end-*",
        ("trainer/node/rank/end_note.py", "trainer/node/ending/watch_below.py"),
        (_BELOW,),
        "how a process that trained ended, and the last other Python below a rank",
    ),
    Note(
        "killed-*",
        ("trainer/node/rank/end_note.py", "trainer/node/ending/watch_below.py"),
        (_BELOW,),
        "a Python ended it on purpose",
    ),
    Note(
        "launchers-*",
        ("trainer/node/launch/launcher.py",),
        ("trainer/node/launch/launcher.py",),
        "stand-ins for a shell script, and the nodes as deepspeed reads them",
    ),
    # Between the processes of a rank.
    Note(
        ".*.*",
        ("trainer/node/rank/place.py",),
        ("trainer/node/rank/place.py",),
        "which of them is watched",
        "def claim",
    ),
    # Between the agent and programs beside it.
    Note(
        ".leave",
        ("trainer/node/membership/leave.py",),
        ("trainer/node/membership/leave.py",),
        "somebody asks the node to leave, and whether it may",
        "_NOTE",
    ),
    # Every process that writes here may need its bytes on a full disk.
    Note(".ballast", ("muster/reserve.py",), ("muster/reserve.py",), "room for the last words", "_NAME"),
)
