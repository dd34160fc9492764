"""A clock that is LAB_CLOCK_S seconds off, for every Python that is started with this folder in PYTHONPATH.

This is the only fake of the laboratory: a kernel has one wall clock for all its hosts. Programs that read the clock
without Python do not see it; torchrun's rendezvous, which compares clocks, and Muster's probe read it in Python.
"""

import datetime
import os
import time

_ahead = float(os.environ.get("LAB_CLOCK_S", "0"))
_real_time, _real = time.time, datetime.datetime


class _Alike(type(_real)):
    def __instancecheck__(cls, value):
        return isinstance(value, _real)


class _Shifted(_real, metaclass=_Alike):
    """Pickled under the name of the class that it replaces, so that other hosts can read it."""

    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=_ahead)

    @classmethod
    def utcnow(cls):
        return super().now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=_ahead)


_Shifted.__name__, _Shifted.__qualname__, _Shifted.__module__ = "datetime", "datetime", "datetime"
if _ahead:
    time.time = lambda: _real_time() + _ahead
    datetime.datetime = _Shifted
