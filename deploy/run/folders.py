"""The folder of this machine's runs, the trainer's package beside this code, and the form of a path in messages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..job import consent
from ..job.asked import outside
from ..job.consent import Wish

CHECKOUT = Path(__file__).resolve().parents[2]
# The trainer is beside this package: `trainer` in a checkout, `muster.trainer` in a wheel.
TRAINER = f"{__package__.removesuffix('deploy.run')}trainer"
# Runs lie in the current folder; for a command typed anywhere in a checkout, in the checkout's top folder.
IN_CHECKOUT = (CHECKOUT / "fabfile.py").is_file() and Path.cwd().is_relative_to(CHECKOUT)
RUNS = (CHECKOUT if IN_CHECKOUT else Path.cwd()) / "runs"


def with_trainer(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` in which `python -P -m trainer...` finds the trainer of this checkout.

    The interpreter finds a wheel's trainer by itself. It does not find a checkout's: -P excludes the current folder.
    """
    if "." in TRAINER:
        return dict(environment)
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(CHECKOUT))]
    return {**environment, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), *others])}


def ask_link(runs: Path) -> None:
    """Ask before runs are written through a link that may have come with the folder. Raises UsageError."""
    if runs.is_symlink() and (real := outside(runs, runs.parent)):
        consent.require(
            runs.parent, [Wish("runs", f"are written to {real}, where the link {runs.name} leads")], runs.name
        )


def link_agent_packages(folder: Path) -> None:
    """Give `folder` the agent's packages and nothing else, for a Python that is not ours: links to them."""
    top = Path(__file__).resolve().parents[2]
    # In a wheel `trainer` is within `muster`, which is the package above us.
    packages = {"muster": top} if "." in TRAINER else {"muster": top / "muster", "trainer": top / "trainer"}
    for name, package in packages.items():
        (folder / name).symlink_to(package)


def display_path(path: Path) -> str:
    """A path as the user would type it: relative if it is below the current folder."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
