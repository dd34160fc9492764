"""Runs to measure: Muster's nodes, or a rival under bare torchrun, as processes on this machine; none is left over."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.run.environment import MAX_RESTARTS
from gpu_check.network import Place
from gpu_check.nodes import Late, Run


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder for the run folders of one benchmark."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        # A killed agent or torchrun leaves its temporary folder behind: here it is removed together with this folder.
        before, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)


def ours(folder: Path, nodes: int, arguments: Sequence[str], start: int = 1, **more: Any) -> Run:
    """The trainer on `nodes` nodes, started as `make up` starts it."""
    return Run(folder, arguments, [Place()] * nodes, start=start, restarts=MAX_RESTARTS, **more)


def rival(folder: Path, nodes: int, module: str, arguments: Sequence[str], start: int = 1, **more: Any) -> Run:
    """`torchrun -m module arguments` on `nodes` nodes, with torchrun's defaults, but as many restarts as Muster."""
    return ours(folder, nodes, arguments, start, module=module, **more)


def in_time(run: Run, condition: Callable[[], Any], seconds: float) -> Any:
    """The first true value of `condition`; None if there is none in time, or if all nodes have ended."""
    try:
        return run.wait(condition, "", seconds)
    except Late:
        return None
