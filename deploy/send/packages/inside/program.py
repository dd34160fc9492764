"""The program that describes a base, builds and installs packages. It runs alone, in a container of the base image.

Standard input: an order, which is a line of JSON, then the bytes of the files that it lists. The input stays open: its
end means that the control side has stopped waiting. Standard output: lines of JSON. docs/decisions/0137 has the
reasons.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from .build import Building
from .describe import describe
from .install import Installing
from .tools import BARE, FAILED, Stop, disk, end_children, over, tell


def _become(owner: list[int], folders: list[str]) -> None:
    """Continue as the run's user, who then owns these folders: nothing is installed as root."""
    if os.getuid() == 0 and owner:
        for folder in folders:
            os.chown(folder, *owner)
        os.setgroups([])
        os.setgid(owner[1])
        os.setuid(owner[0])


def _watch(owner: int | None) -> None:
    """End everything when the input ends: the control side has stopped waiting."""
    while os.read(0, 4096):
        pass
    if over.is_set():
        return
    end_children(owner)
    os._exit(FAILED)


def _do(order: dict[str, Any], scratch: Path, image: dict[str, str]) -> dict[str, Any]:
    """Carry out an order that has a scratch folder. A build's processes run as a separate user, if that is possible."""
    builds = order["mode"] == "build"
    owner = order["owner"][0] if builds and order["owner"] and os.getuid() == 0 else None
    threading.Thread(target=_watch, args=(owner,), daemon=True).start()
    threading.Thread(target=disk.watch, args=(scratch, owner), daemon=True).start()
    if builds:
        return Building(order, scratch, image).build()
    installing = Installing(order, scratch)
    installing.keep()
    installing.uv  # noqa: B018  # get uv while this process is root, which alone may write to its folder
    _become(order["owner"], [order["cache"], order["target"], str(scratch)])
    return installing.install()


def main() -> int:
    """Carry out the order on standard input; return the exit code."""
    order, image = json.loads(sys.stdin.buffer.readline()), dict(os.environ)
    if order["mode"] == "describe":
        tell(done=describe())
        return 0
    if BARE:
        # There is no container: the paths are at other places, and not all processes of this user belong to a build.
        places = ("cache", "tools", "made", "source", "target")
        order |= {name: os.path.realpath(f"{BARE}{order[name]}") for name in places} | {"owner": []}
    os.umask(0o022)
    scratch = Path(tempfile.mkdtemp(prefix="muster-packages-"))
    scratch.chmod(0o711)
    (scratch / "wheels").mkdir()
    for path, size in order["files"]:
        (scratch / path).write_bytes(sys.stdin.buffer.read(size))
    os.environ.update({"HOME": str(scratch), "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"})
    os.environ.update(order["variables"])
    for variable in order["paths"]:
        os.environ[variable] = str(scratch / order["paths"][variable])
    try:
        done = _do(order, scratch, image)
        over.set()
        tell(done=done)
    except Stop as stop:
        over.set()
        tell(failed=stop.code, words=stop.words)
        return stop.code
    except OSError as fault:
        over.set()
        tell(failed=FAILED, words=disk.words or f"{fault.strerror}: {fault.filename or ''}")
        return FAILED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
