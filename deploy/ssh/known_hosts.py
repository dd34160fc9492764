"""Read and write the known_hosts format (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT). Pure: text in, text out.

paramiko's own reader does not support markers, patterns or two keys of one type.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

_BLANKS = re.compile(r"[ \t\r]+")
_MARKERS = ("", "@revoked", "@cert-authority")


class Known(NamedTuple):
    """One line about a host: the key's type and bytes, `file:line`, and its marker.

    `authority`: the key belongs to an authority that signs hosts' certificates, not to the host.
    """

    type: str
    key: bytes
    place: str
    revoked: bool = False
    authority: bool = False


def host_name(address: str, port: int) -> str:
    """What known_hosts calls a server: `a`, or `[a]:2222` off the usual port."""
    return address.lower() if port == 22 else f"[{address.lower()}]:{port}"


def lookup(text: str, name: str, file: str = "") -> list[Known]:
    """The lines of a known_hosts file about `name` (as `host_name` gives it), in order; unreadable ones are skipped."""
    entries = []
    # Split lines and words as OpenSSH does: Python knows more separators, which could hide a line in a comment.
    for number, line in enumerate(text.split("\n"), 1):
        fields = [word for word in _BLANKS.split(line) if word]
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if marker not in _MARKERS or len(fields) < 3 or fields[0].startswith("#") or not _names(fields[0], name):
            continue
        try:
            key = base64.b64decode(fields[2], validate=True)
        except ValueError:  # as binascii.Error is
            continue
        if marker == "@revoked" or type_of(key) == fields[1]:
            entries.append(Known(fields[1], key, f"{file}:{number}", marker == "@revoked", marker == "@cert-authority"))
    return entries


def line(name: str, key_type: str, key: bytes, salt: bytes | None = None) -> str:
    """A line for known_hosts with its newline; with a `salt` (20 random bytes), the name is hashed."""
    name_field = name if salt is None else f"|1|{_text(salt)}|{_text(_digest(salt, name))}"
    return f"{name_field} {key_type} {_text(key)}\n"


def type_of(key: bytes) -> str:
    """The type that a key's bytes begin with."""
    return key[4 : 4 + int.from_bytes(key[:4], "big")].decode(errors="replace")


def fingerprint(key: bytes) -> str:
    """`SHA256:...`, as OpenSSH shows a key."""
    return "SHA256:" + _text(hashlib.sha256(key).digest()).rstrip("=")


def _names(patterns: str, name: str) -> bool:
    """Whether a line's first field is about `name`: hashed, or patterns with commas of which none is negated for it."""
    if patterns.startswith("|1|"):
        try:
            salt, digest = (base64.b64decode(part, validate=True) for part in patterns[3:].split("|"))
        except ValueError:
            return False
        return hmac.compare_digest(_digest(salt, name), digest)
    return _any(patterns.lower().split(","), name)


def _any(patterns: Iterable[str], name: str) -> bool:
    matches = False
    for pattern in patterns:
        negated = pattern.startswith("!")
        # Brackets are plain characters here, as in [a]:2222; only * and ? are wildcards.
        if fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
            if negated:
                return False
            matches = True
    return matches


def _digest(salt: bytes, name: str) -> bytes:
    return hmac.new(salt, name.encode(), hashlib.sha1).digest()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
