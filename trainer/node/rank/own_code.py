"""Which files are the script's own: all that belong neither to Python, nor to a library, nor to Muster.

Nothing of Muster may be imported here (place.py).
"""

from __future__ import annotations

import os
import sysconfig

LIBRARIES = ("/site-packages/", "/dist-packages/")
_TRAINER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_TRAINER_PARENT = os.path.dirname(_TRAINER)
# In a checkout, whatever its folder's name, the library `muster` is next to the trainer. In a wheel, the trainer is
# inside `muster`.
_NEXT_TO_TRAINER = os.path.join(_TRAINER_PARENT, "muster")
_MUSTER = _NEXT_TO_TRAINER if os.path.isdir(_NEXT_TO_TRAINER) else _TRAINER_PARENT
# Names that begin with `<` are no files: <string>, <frozen runpy>.
_PLACES = ("<", sysconfig.get_path("stdlib") + os.sep, _TRAINER + os.sep, _MUSTER + os.sep)


def is_of_library(file: str) -> bool:
    """Whether a file belongs to an installed library, such as torch."""
    return any(name in file for name in LIBRARIES)


def is_own(file: str) -> bool:
    """Whether a frame of this file is the script's own code."""
    return not is_of_library(file) and not file.startswith(_PLACES)
