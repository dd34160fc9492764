"""Cache folders for what a script's libraries download and compile: on the host, across runs, if mounted.

Several runs may use them at the same time: these libraries lock a file, or rename a complete one into place. torch's
own extensions are not included: a killed build leaves a lock there that stays. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from muster.files import seen_at

FOLDER = seen_at("/muster/cache")
_PLACES = {
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
}


def variables(given: Mapping[str, str], folder: Path = FOLDER) -> dict[str, str]:
    """The variables that point to these folders.

    Variables that the image or the user has set are left out; there are none if the folder is not mounted.
    """
    if not os.access(folder, os.W_OK) or not (os.path.ismount(folder) or "MUSTER_ROOT" in os.environ):
        return {}
    return {name: str(folder / place) for name, place in _PLACES.items() if name not in given}
