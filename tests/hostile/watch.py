"""Reports which files in a private folder any process opens; the kernel reports it (inotify(7))."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_OPEN, _ACCESS, _IS_FOLDER = 0x20, 0x1, 0x40000000
_EVENT = struct.Struct("iIII")


class Watch:
    """Watches a folder and all folders below it, from its construction on."""

    def __init__(self, top: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._notes = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._places: dict[int, Path] = {}
        for place, _, _ in os.walk(top):
            number = libc.inotify_add_watch(self._notes, os.fsencode(place), _OPEN | _ACCESS)
            if number < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", place)
            self._places[number] = Path(place)

    def opened(self) -> set[str]:
        """The files that any process opened or read since the last call."""
        names = set[str]()
        while True:
            try:
                data = os.read(self._notes, 1 << 16)
            except BlockingIOError:
                return names
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
                if name and not mask & _IS_FOLDER:
                    names.add(str(self._places[number] / name))
                at += _EVENT.size + length

    def close(self) -> None:
        """Stop watching."""
        os.close(self._notes)
