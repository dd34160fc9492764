"""The half of Muster that runs on a node, as `muster.trainer`; `import trainer` finds a user's own `trainer`.

It starts the ranks, loads data, trains, writes checkpoints, and never imports `deploy`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import muster

# In a checkout, too, muster/__init__.py finds it under this name: Muster puts no other name on a user's path.
NAME, NODE = "muster.trainer", "muster.trainer.node"
_INSTALLED = ("site-packages", "dist-packages")


def with_muster(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` in which a Python started with -P finds this `muster` before anything else of that name."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(muster.__file__)))
    if os.path.basename(home) in _INSTALLED:  # Python searches this folder anyway, after the standard library
        return dict(environment)
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", home)]
    return {**environment, "PYTHONPATH": os.pathsep.join([home, *others])}
