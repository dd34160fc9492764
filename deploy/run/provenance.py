"""Which records this machine's user made: a seal under a key that lies outside of every run folder.

A run folder is not ours alone: containers write into it, hosts send files for it, people pass it on. What it says may
be shown. What is run from it (arguments, recipe paths, commands to type) must be what was typed here.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SEAL = "seal"
_BYTES = 32


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """`record` with its seal; without one where this user's home cannot hold a key."""
    plain = {name: value for name, value in record.items() if name != SEAL}
    key = _key(make=True)
    return {**plain, SEAL: _seal(key, plain)} if key else plain


def is_ours(record: Mapping[str, Any]) -> bool:
    """Whether this user sealed just this record, on this machine."""
    told, key = record.get(SEAL), _key(make=False)
    plain = {name: value for name, value in record.items() if name != SEAL}
    return bool(key) and isinstance(told, str) and hmac.compare_digest(_seal(key, plain).encode(), told.encode())


def _seal(key: bytes, plain: Mapping[str, Any]) -> str:
    return hmac.new(key, json.dumps(plain, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes:
    """The user's key, made where there is none yet; b"" where there is none, or the home takes none."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    path = Path(home) / "muster" / "key"
    with suppress(OSError):
        if make and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(4)}")
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(_BYTES))
            # Of two commands that begin at once one makes the key, and both read that one.
            with suppress(FileExistsError):
                os.link(aside, path)
            aside.unlink()
        key = path.read_bytes()
        return key if len(key) == _BYTES else b""
    return b""
