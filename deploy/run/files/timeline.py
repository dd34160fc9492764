"""The story of a run in its folder: timeline.jsonl, to which each start of the run appends."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ...causes.end_causes import Cause
from ...core.errors import BadAnswer
from ...core.fields import MOST_DOCUMENT, document, flag, optional, real, text, whole
from ...core.fields import record as shaped
from ..inquest.causes import Finding
from ..state.story import Happening, Story
from . import own_files

_NAME = "timeline.jsonl"
_MOST_STORY = 20_000  # lines
_CUT = f"{_NAME} is longer than what Muster reads ({_MOST_STORY:,} lines, 4 MB): its beginning is left out"
_TROUBLE_FIELDS = {
    "node": text(200, r"[\w.:-]*"),
    "rank": optional(whole(1 << 16)),
    "other": text(200),
    "t": real(least=-1e300),
}
_TROUBLE = shaped({"cause": text(40, "[a-z-]+"), "message": text(1 << 16)}, {**_TROUBLE_FIELDS, "lasting": flag})
_LINE = shaped(
    {"t": real(1e11), "text": text(1 << 16), "grave": flag},
    {"trouble": optional(_TROUBLE), "restart": flag, "moves": flag},
)


def size(run_dir: Path) -> int:
    """The size of timeline.jsonl in bytes, where the lines of the next start begin."""
    with suppress(OSError):
        return own_files.read_end(run_dir, _NAME, 0)[1]
    return 0


def keep(run_dir: Path, story: Story, is_ours: bool = True) -> None:
    """Append the new lines to timeline.jsonl now: the follower may be killed, and only it has seen some of them.

    `is_ours`: this command, and no other follower of the run, writes the file. A full disk is reported when the run
    ends.
    """
    if not is_ours:
        story.written = len(story)
    elif len(story) > story.written:
        with suppress(OSError), own_files.open_to_append(run_dir, _NAME) as file:
            for line in story[story.written :]:
                row, end = f"{json.dumps(asdict(line))}\n".encode(), file.seek(0, os.SEEK_END)
                if file.write(row) < len(row):  # the next look tries again
                    file.truncate(end)
                    break
                story.written += 1


def read(run_dir: Path, begin: int) -> list[Happening]:
    """The lines of timeline.jsonl from the byte `begin` on; if there are too many, the last ones and a line about it.

    A place in the file separates the lines of a start from earlier ones; a time could not, because each line has the
    time of its own host's clock.
    """
    lines, rows, is_cut = list[Happening](), [b""], False
    with suppress(OSError):
        content, before = own_files.read_end(run_dir, _NAME, MOST_DOCUMENT)
        rows, is_cut = content[max(0, begin - before) :].rsplit(b"\n", _MOST_STORY), before > begin
    is_cut |= b"\n" in rows[0]
    for row in rows[is_cut:]:
        with suppress(BadAnswer):
            line = _LINE(document(row, _NAME), _NAME)
            if (trouble := line.get("trouble")) is not None:
                line["trouble"] = Finding(**{**trouble, "cause": Cause.of_slug(trouble["cause"]) or Cause.NOT_KNOWN})
            lines.append(Happening(**line))
    if is_cut:
        lines.insert(0, Happening(lines[0].t if lines else time.time(), _CUT, grave=True))
    return lines
