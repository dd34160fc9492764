"""Read many files once, in several processes: the digest of each, and whether it holds a credential.

One process would be busy with a large folder for longer than it takes to send it. Such a process is `python -m
deploy.send.folder.reading`: paths come in and answers go out, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ...core import plain_file
from . import credentials

LOOKED_AT = 1 << 20  # bytes of each file that are searched: credentials are small, or at the beginning
_LEAST = 8  # letters; a file may contain a shorter value by chance
_AT_ONCE = 4
_LITTLE = 4096
_ROOT = Path(__file__).resolve().parents[__name__.count(".")] if __name__ != "__main__" else Path()


class Read(NamedTuple):
    """What a file holds: its SHA-256, and in words the credential in it, if any. `fault`: why it cannot be read."""

    digest: str
    credential: str
    fault: str = ""


def read(folder: Path, paths: Sequence[str], values: Mapping[str, str]) -> dict[str, Read]:
    """Read these files of the folder. `values`: secrets by name, which count as credentials too."""
    count = min(_AT_ONCE, os.cpu_count() or 1)
    parts = [part for number in range(count) if (part := paths[number::count])]
    with ThreadPoolExecutor(max(1, len(parts))) as threads:
        answers = list(threads.map(lambda part: _by_another(folder, part, values), parts))
    return {path: answer for part, read in zip(parts, answers, strict=True) for path, answer in read.items()}


def credential_in(path: str, content: bytes, values: Mapping[str, str]) -> str:
    """The credential in a file, in words; empty if there is none."""
    if kind := credentials.kind_of(path, content):
        return kind
    for name, value in values.items():
        if len(value) >= _LEAST and value.encode() in content:
            return f"it contains the value of {name}"
    return ""


def _by_another(folder: Path, paths: Sequence[str], values: Mapping[str, str]) -> dict[str, Read]:
    """The credentials in these files, found by a process; files that it does not answer for are missing."""
    order = json.dumps([str(folder), list(paths), dict(values)]).encode()
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-P", "-m", __name__]
    done = subprocess.run(command, input=order, stdout=subprocess.PIPE, env=environment, check=False)
    try:
        rows = json.loads(done.stdout) if done.returncode == 0 else []
    except ValueError:  # it was cut
        rows = []
    return {path: Read(*row) for path, row in zip(paths, rows, strict=False)}


def _read(path: str, name: str, values: Mapping[str, str]) -> Read:
    try:
        file = plain_file.open_plain(path)
        try:
            start = os.read(file, min(LOOKED_AT, os.fstat(file).st_size))
            hashed = hashlib.sha256(start)
            # Room for a megabyte that is not there would cost a small file as much as its own content.
            while piece := os.read(file, LOOKED_AT if len(start) == LOOKED_AT else _LITTLE):
                hashed.update(piece)
        finally:
            os.close(file)
    except OSError as fault:
        return Read("", "", fault.strerror or str(fault))
    return Read(hashed.hexdigest(), credential_in(name, start, values))


def main() -> None:
    """Answer for the paths that standard input names."""
    folder, paths, values = json.load(sys.stdin.buffer)
    answer = json.dumps([_read(f"{folder}/{path}", path, values) for path in paths])
    # With PYTHONUNBUFFERED, `print` loses the rest of a write that a signal cuts short.
    with open(sys.stdout.fileno(), "wb", closefd=False) as output:
        output.write(answer.encode())


if __name__ == "__main__":
    main()
