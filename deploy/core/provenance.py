"""Prove which records this user wrote on this machine: a seal with a key that is stored outside every run folder.

Others write into a run folder: containers do, hosts send files for it, people pass it on. Muster may show what such a
folder says. But what Muster runs or tells the user to type (arguments, recipe paths, commands) must be what the user
typed here.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SEAL = "seal"
_BYTES = 32


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """`record` with its seal; without a seal if no key can be stored in this user's home."""
    plain = {name: value for name, value in record.items() if name != SEAL}
    key = _key(make=True)
    return {**plain, SEAL: _seal(key, plain)} if key else plain


def is_ours(record: Mapping[str, Any]) -> bool:
    """Whether this user sealed exactly this record, on this machine."""
    seal, key = record.get(SEAL), _key(make=False)
    plain = {name: value for name, value in record.items() if name != SEAL}
    return bool(key) and isinstance(seal, str) and hmac.compare_digest(_seal(key, plain).encode(), seal.encode())


def _seal(key: bytes, plain: Mapping[str, Any]) -> str:
    return hmac.new(key, json.dumps(plain, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes:
    """The user's key; b"" if there is none or it cannot be stored. `make`: create a missing key."""
    state = os.environ.get("XDG_STATE_HOME", "")
    path = Path(state if os.path.isabs(state) else os.path.expanduser("~/.local/state")) / "muster" / "key"
    with suppress(OSError):
        if not path.is_absolute():
            return b""  # a user without a home
        if make and not (path.exists() and path.stat().st_size):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = secrets.token_bytes(_BYTES)
            # If two commands start at the same time, one of them makes the key, and both read it.
            with tempfile.NamedTemporaryFile(dir=path.parent, buffering=0) as aside, suppress(FileExistsError):
                aside.write(key)
                os.link(aside.name, path)
            with path.open("r+b") as file:
                with suppress(OSError):  # a disk without locks
                    fcntl.flock(file, fcntl.LOCK_EX)
                if not path.stat().st_size:  # power was lost while it was made
                    file.write(key)
        key = path.read_bytes()
        return key if len(key) == _BYTES else b""
    return b""
