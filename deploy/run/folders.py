"""Where the runs of this machine are kept, and how a path is shown."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# Runs lie in the folder of whoever types `muster`; in a checkout, in that, also from a folder below.
_IN_CHECKOUT = (CHECKOUT / "fabfile.py").is_file() and Path.cwd().is_relative_to(CHECKOUT)
RUNS = (CHECKOUT if _IN_CHECKOUT else Path.cwd()) / "runs"


def display_path(path: Path) -> str:
    """A path as the user would type it: relative where it lies below the current folder."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
