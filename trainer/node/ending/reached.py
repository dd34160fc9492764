"""How far the ranks on this node have come, from the end of their files of events in the run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.files import is_number, object_of

# A rank tells of a step at least every two seconds, and of little else: the last one is near the end of its file.
_TAIL_BYTES = 256 << 10


def step(run_folder: Path | None, node: str, since: float) -> int:
    """The step of the slowest rank of the node that has told of one `since` then; 0: none has."""
    files = (run_folder / "ranks").glob("rank-*.jsonl") if run_folder else ()
    return min(filter(None, (_last(path, node, since) for path in files)), default=0)


def _last(path: Path, node: str, since: float) -> int:
    """The last step in a rank's file; 0 for a file of another node, or of an earlier start."""
    event = next((each for each in newest(path, b'"step"') if each.get("kind") == "step"), {})
    t, reached = event.get("t"), event.get("step")
    # The script may write to this file, too: what is no number is none of ours.
    if is_number(t) and isinstance(reached, int) and event.get("node") == node and t >= since:
        return reached
    return 0


def newest(path: Path, text: bytes = b"") -> Iterator[dict[str, Any]]:
    """The events at the end of a rank's file whose lines have a text, the last one first."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().split(b"\n")  # the front of the first may be cut, and a kill cuts the end of the last
        yield from (object_of(line) for line in reversed(lines) if text in line)
