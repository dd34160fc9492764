"""Which step the ranks on this node have reached, from the end of their event files in the run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.files import is_number, object_of

# A rank reports a step at least every two seconds, and little else, so the last step is near the end of its file.
_TAIL_BYTES = 256 << 10


def slowest_step(run_folder: Path | None, node: str, since: float) -> int:
    """The step of the node's slowest rank, of those that have reported one `since` that time; 0 if none has."""
    files = (run_folder / "ranks").glob("rank-*.jsonl") if run_folder else ()
    return min(filter(None, (_last(path, node, since) for path in files)), default=0)


def _last(path: Path, node: str, since: float) -> int:
    """The last step in a rank's file; 0 for a file of another node, or of an earlier start."""
    event = next((each for each in newest_events(path, b'"step"') if each.get("kind") == "step"), {})
    t, reached = event.get("t"), event.get("step")
    # The script may write to this file too, so the values are checked.
    if is_number(t) and isinstance(reached, int) and event.get("node") == node and t >= since:
        return reached
    return 0


def newest_events(path: Path, text: bytes = b"") -> Iterator[dict[str, Any]]:
    """The events at the end of a rank's file whose lines contain `text`, the last one first."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().split(b"\n")  # the first may lack its beginning, and after a kill the last its end
        yield from (object_of(line) for line in reversed(lines) if text in line)
