"""Where the runs of this machine are kept, where the trainer lies beside this code, and how a path is shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# Beside this package: `trainer` in a checkout, `muster.trainer` where a wheel is installed.
TRAINER = f"{__package__.removesuffix('deploy.run')}trainer"
# Runs lie in the folder of whoever types `muster`; in a checkout, in that, also from a folder below.
_IN_CHECKOUT = (CHECKOUT / "fabfile.py").is_file() and Path.cwd().is_relative_to(CHECKOUT)
RUNS = (CHECKOUT if _IN_CHECKOUT else Path.cwd()) / "runs"


def with_trainer(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` in which `python -P -m trainer...` finds the trainer of this checkout.

    A wheel's lies where this interpreter looks anyhow. A checkout does not, and -P keeps the current folder out.
    """
    if "." in TRAINER:
        return dict(environment)
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(CHECKOUT))]
    return {**environment, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), *others])}


def display_path(path: Path) -> str:
    """A path as the user would type it: relative where it lies below the current folder."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
