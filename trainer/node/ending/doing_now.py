"""`python -m muster.trainer.node why`: what each rank of this node is doing now, as one JSON object per line.

It runs next to the agent, in the same container. It reads what ranks leave in the node's private folder, and does not
touch the ranks. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import processes
from ..files import work
from ..hang import stacks, stuck_ranks
from ..notes import folder_here
from ..rank.place import in_run
from .rank_lives import Ends, Life

_FRAMES = 40


def main() -> int:
    """Print what the ranks of the node in this container are doing."""
    outcome = folder_here()
    run_folder, node = outcome.parents[1], os.environ["MUSTER_NODE"]
    ends = Ends(outcome)
    ends.read()
    started = _started_by_command(outcome) if len(ends.lives) == 1 else {}
    for life in ends.lives.values():
        looked_at = started or {in_run(life.rank): stacks.newest(outcome, life.local_rank)}
        for rank, file in sorted(looked_at.items()):
            print(json.dumps({"rank": rank, "node": node, **_about(life, file, run_folder)}))
    return 0


def _about(life: Life, file: Path, folder: Path) -> dict[str, Any]:
    """What a rank is doing. `life`: the rank's, or that of the command that started it. `file`: the rank's looks."""
    if life.code is not None:
        return {"doing": "ended", "code": life.code}
    looks = stacks.of_life(file, life.began)
    if not looks:
        return {"doing": "unseen" if life.observed else "unobserved"}
    look, now = looks[-1], time.time()
    step = look.before + look.step
    since = look.since_s + (now - look.t if look.t else 0.0) if step else now - life.began
    about: dict[str, Any] = {"moves": stuck_ranks.is_moving(looks, life.began, now)}
    about |= {"step": step, "since_s": round(since, 1), "t": look.t}
    about |= stuck_ranks.describe(look, folder / work.WORK)
    frames = look.main.frames if look.main else ()
    about["stack"] = [f"{frame.file}:{frame.line} {frame.function}"[-300:] for frame in frames[:_FRAMES]]
    return about


def _started_by_command(outcome: Path) -> dict[int, Path]:
    """By rank, the file of looks of each living rank that a command such as `bash run.sh` has started on this node."""
    files = dict[int, Path]()
    for path in outcome.glob("*.stacks"):
        with suppress(OSError):
            look = next(reversed(stacks.read(path)), None)
            if look and look.rank is not None and processes.is_alive(look.pid):
                files[look.rank] = path
    return files


if __name__ == "__main__":
    sys.exit(main())
