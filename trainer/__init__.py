"""The half that runs on a node, as `muster.trainer`, so that a user's own `trainer` is the one that scripts import.

It starts the ranks, loads data, trains, writes checkpoints, and never imports `deploy`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import muster

# Also in a checkout, where muster/__init__.py finds it: no other name of ours stands on a user's path.
NAME, NODE = "muster.trainer", "muster.trainer.node"
_INSTALLED = ("site-packages", "dist-packages")


def with_muster(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` in which a Python started with -P finds `muster`, before whatever else has that name."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(muster.__file__)))
    if os.path.basename(home) in _INSTALLED:  # where Python looks anyhow, behind its own library
        return dict(environment)
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", home)]
    return {**environment, "PYTHONPATH": os.pathsep.join([home, *others])}
