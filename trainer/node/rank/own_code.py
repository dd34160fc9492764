"""Which files are the script's own: those that are neither Python's, nor a library's, nor Muster's.

Nothing of Muster may be imported here (place.py).
"""

from __future__ import annotations

import os
import sysconfig

LIBRARIES = ("/site-packages/", "/dist-packages/")
_TRAINER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_ABOVE = os.path.dirname(_TRAINER)
# In a checkout, of whatever name, the library for scripts stands beside the trainer; else it is the folder around it.
_BESIDE = os.path.join(_ABOVE, "muster")
_MUSTER = _BESIDE if os.path.isdir(_BESIDE) else _ABOVE
# Of the first kind is what is no file: <string>, <frozen runpy>.
_PLACES = ("<", sysconfig.get_path("stdlib") + os.sep, _TRAINER + os.sep, _MUSTER + os.sep)


def is_of_library(file: str) -> bool:
    """Whether a file was installed: torch's, say."""
    return any(name in file for name in LIBRARIES)


def is_own(file: str) -> bool:
    """Whether a frame of this file is the script's own code."""
    return not is_of_library(file) and not file.startswith(_PLACES)
