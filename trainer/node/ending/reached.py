"""The step that a script's ranks on this node have reached, from their events in the run folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from muster.files import object_of

# A rank tells of a step at least every two seconds, and of little else: the last one is near the end of its file.
_TAIL_BYTES = 256 << 10


def step(run_folder: Path | None, node: str, since: float) -> int:
    """The step of the slowest rank of the node that has told of one `since` then; 0: none has."""
    files = (run_folder / "ranks").glob("rank-*.jsonl") if run_folder else ()
    return min(filter(None, (_last(path, node, since) for path in files)), default=0)


def _last(path: Path, node: str, since: float) -> int:
    """The last step in a rank's file; 0 for a file of another node, or of an earlier start."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        for line in reversed(file.read().split(b"\n")):
            if b'"step"' in line and (event := object_of(line)).get("kind") == "step":
                t, reached = event.get("t"), event.get("step")
                # The script may write to this file, too: what is no number is none of ours.
                if isinstance(t, int | float) and isinstance(reached, int) and event.get("node") == node:
                    return reached if t >= since else 0
                return 0
    return 0
