"""The program that locks and installs packages. It runs alone, in a container of the base image.

Standard input: an order, which is a line of JSON, then the bytes of the files that it names. The input stays open: its
end means that the other side has stopped waiting. Standard output: lines of JSON. docs/packages.md has the reasons.
"""

import json
import os
import sys
import tempfile
import threading
from pathlib import Path

from .install import Installing
from .lock import Locking
from .tools import FAILED, Stop, children, over, tell


def _become(owner: list[int], folders: list[str]) -> None:
    """Go on as the run's user, who owns these folders: nothing is installed as root."""
    if os.getuid() == 0 and owner:
        for folder in folders:
            os.chown(folder, *owner)
        os.setgroups([])
        os.setgid(owner[1])
        os.setuid(owner[0])


def _watch() -> None:
    """End everything when the input ends: the other side has stopped waiting."""
    while os.read(0, 4096):
        pass
    if over.is_set():
        return
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, 9)
    os._exit(FAILED)


def main() -> int:
    """Do the order of standard input; returns the exit code."""
    order = json.loads(sys.stdin.buffer.readline())
    _become(order["owner"], [folder for folder in (order["cache"], order.get("target")) if folder])
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="muster-packages-") as name:
        scratch = Path(name)
        (scratch / "wheels").mkdir()
        for path, size in order["files"]:
            (scratch / path).write_bytes(sys.stdin.buffer.read(size))
        threading.Thread(target=_watch, daemon=True).start()
        os.environ.update({"HOME": name, "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", **order["variables"]})
        for variable in order["paths"]:
            os.environ[variable] = str(scratch / order["paths"][variable])
        try:
            if order["mode"] == "lock":
                done = Locking(order, scratch).lock()
            else:
                installing = Installing(order, scratch)
                done = installing.install() if order["mode"] == "install" else installing.unpack()
            over.set()
            tell(done=done)
        except Stop as stop:
            over.set()
            tell(failed=stop.code, words=stop.words)
            return stop.code
        except OSError as fault:
            over.set()
            tell(failed=FAILED, words=f"{fault.strerror}: {fault.filename or ''}")
            return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
