"""Hands a run's secrets to a node: from `docker exec` to the agent, through a pipe in the container's memory.

`python -m muster.trainer.node handover SECONDS`, run in the node's container, passes its standard input to the agent: a
JSON object of texts by name. It tries for SECONDS to find an agent that waits for secrets. The values are never in a
file, in the container's configuration or on a command line. Standard library only.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from muster.errors import NO_RECEIVER, NOT_TAKEN, TAKEN
from muster.files import seen_at, write_own

NAMES, FILES, PRESENT = "MUSTER_SECRET_NAMES", "MUSTER_SECRET_FILES", "MUSTER_SECRETS_PRESENT"
# A folder in the container's memory that only the run's user can read; the control side mounts it.
FOLDER = seen_at("/run/secrets")
# On the memory file system that every container has, and that is empty at every start.
PIPE = seen_at("/dev/shm/muster-secrets")
_MOST_BYTES = 4 << 20
_POLL_SECONDS = 0.05
_QUIET_SECONDS = 3.0
_TAKING_SECONDS = 10.0


def secret_names(environment: Mapping[str, str]) -> frozenset[str]:
    """The names of all secrets of this node."""
    return _listed(environment, NAMES) | _listed(environment, PRESENT)


def secret_values(environment: Mapping[str, str], taken: Mapping[str, str]) -> list[str]:
    """The values that must not be shown: the secrets that were handed in, and those that already are variables."""
    present = [environment[name] for name in _listed(environment, PRESENT) if name in environment]
    return [*taken.values(), *present]


def put_files(environment: Mapping[str, str], secrets: Mapping[str, str], folder: Path = FOLDER) -> dict[str, str]:
    """Write the secrets that are files, which only this user may read; returns the others, which are variables.

    Raises OSError if the folder is missing: then this node is not in a container of Muster.
    """
    files = _listed(environment, FILES)
    for name in sorted(files & secrets.keys()):
        write_own(folder / name, secrets[name], 0o400)
    return {name: value for name, value in secrets.items() if name not in files}


def _listed(environment: Mapping[str, str], variable: str) -> frozenset[str]:
    return frozenset(filter(None, environment.get(variable, "").split(",")))


def receive_secrets(environment: Mapping[str, str], pipe: Path = PIPE) -> dict[str, str]:
    """Wait until all secrets that `environment` lists are handed in, and return them by name.

    Prints a line if that takes long.
    """
    due = _listed(environment, NAMES)
    if not due:
        return {}
    tell_at = time.monotonic() + _QUIET_SECONDS
    with _reading(pipe) as reading:
        while (secrets := _read(reading, due)) is None:
            if time.monotonic() > tell_at:
                run, tell_at = environment.get("MUSTER_RUN_ID", "ID"), float("inf")
                words = f"muster attach --hosts ... --run {run} provides them"
                print(f"waits for its secrets ({', '.join(sorted(due))}): {words}", flush=True)
            time.sleep(_POLL_SECONDS)
    if tell_at == float("inf"):
        print("has its secrets", flush=True)
    return secrets


@contextmanager
def _reading(pipe: Path) -> Iterator[int]:
    """A new pipe, open for reading; it is removed afterwards, also if a request to stop interrupts the wait."""
    pipe.unlink(missing_ok=True)
    try:
        os.mkfifo(pipe, 0o600)
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            yield reading
        finally:
            os.close(reading)
    finally:
        pipe.unlink(missing_ok=True)


def _read(reading: int, due: frozenset[str]) -> dict[str, str] | None:
    """The secrets from one writer; None if there is no writer, or it sent anything but the expected secrets."""
    received = bytearray()
    while len(received) < _MOST_BYTES:
        try:
            piece = os.read(reading, 1 << 16)
        except BlockingIOError:  # a writer has the pipe open, and pauses
            time.sleep(0.001)
            continue
        if not piece:
            break
        received += piece
    try:
        values = json.loads(received)
    except (ValueError, RecursionError):
        return None
    texts = isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
    return values if texts and values.keys() == due else None


def send_secrets(secrets: bytes, patience_seconds: float, pipe: Path = PIPE) -> int:
    """Hand `secrets` to the agent that waits in this container, or begins to wait in time; returns an exit code.

    If `secrets` is empty, this only checks whether an agent waits, and returns NOT_TAKEN if one does.
    """
    end = time.monotonic() + patience_seconds
    while (writing := _open(pipe)) is None:
        if time.monotonic() > end:
            return NO_RECEIVER
        time.sleep(_POLL_SECONDS)
    try:
        with open(writing, "wb") as file:
            file.write(secrets)
    except BrokenPipeError:  # another writer was faster
        return NOT_TAKEN
    if not secrets:
        return NOT_TAKEN
    end = time.monotonic() + _TAKING_SECONDS
    while pipe.exists():
        if time.monotonic() > end:
            return NOT_TAKEN
        time.sleep(_POLL_SECONDS / 5)
    return TAKEN


def _open(pipe: Path) -> int | None:
    """Open the pipe for writing; None if no agent has it open, or if it is not a pipe."""
    try:
        writing = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    if not stat.S_ISFIFO(os.fstat(writing).st_mode):
        os.close(writing)
        return None
    os.set_blocking(writing, True)
    return writing


if __name__ == "__main__":
    sys.exit(send_secrets(sys.stdin.buffer.read(), float(sys.argv[1])))
