"""A file system that never answers a read: `python -m tests.lab.hung_disk PLACE`, as root.

It speaks the kernel's FUSE protocol itself, so it needs no library. Every name is a file, and every read of a file is
received but never answered. Until this process ends, no signal can end a process that reads.
"""

import ctypes
import os
import struct
import sys

_OPENED, _READ, _FORGOTTEN, _INIT, _LOOKUP, _GETATTR, _DONE = (14, 27), 15, (2, 42), 26, 1, 3, (18, 25, 29)
_FILE = 2


def main() -> None:
    """Mount the file system, print `mounted`, and receive requests until killed."""
    place, device = sys.argv[1], os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hung", place.encode(), b"fuse.hung", 0, options.encode()):
        raise SystemExit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 20)
        _, what, unique, node = struct.unpack("<IIQQ", request[:24])
        answer = _answer(what, node)
        if answer is not None:
            error, data = answer
            os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


def _answer(what: int, node: int) -> tuple[int, bytes] | None:
    if what == _INIT:
        return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 10, 65536, 1, 1, 0, 0)
    if what == _LOOKUP:
        return 0, struct.pack("<QQQQII", _FILE, 0, 3600, 3600, 0, 0) + _attributes(_FILE)
    if what == _GETATTR:
        return 0, struct.pack("<QII", 3600, 0, 0) + _attributes(node)
    if what in _OPENED:
        return 0, struct.pack("<QII", 1, 0, 0)
    if what == _READ or what in _FORGOTTEN:
        return None
    return (0 if what in _DONE else -38), b""


def _attributes(node: int) -> bytes:
    mode = 0o100644 if node == _FILE else 0o40755
    return struct.pack("<QQQQQQIIIIIIIIII", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


if __name__ == "__main__":
    main()
