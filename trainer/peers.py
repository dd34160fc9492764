"""Tells a victim's words from a cause's: most errors of a distributed run only say that a peer went away."""

from __future__ import annotations

import sys

# What torch 2.13's gloo, NCCL and store say, in a plain RuntimeError, when another rank is gone or late.
_WORDS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket timeout",
    "timed out",
    "caused pair closure",
    "got 0 bytes",
    "recvvalue failed",
    "connectfullmesh failed",
    "gloo",
    "nccl",
    "remote process exited",
)


def lost_peer(error: BaseException) -> bool:
    """Whether `error` says that communication failed: nothing about the code in which it surfaced."""
    kind = getattr(sys.modules.get("torch.distributed"), "DistError", None)
    if isinstance(error, ConnectionError) or (kind is not None and isinstance(error, kind)):
        return True
    return isinstance(error, RuntimeError) and speaks_of_peers(str(error))


def speaks_of_peers(text: str) -> bool:
    """Whether these are the words of a victim."""
    return any(words in text.lower() for words in _WORDS)
