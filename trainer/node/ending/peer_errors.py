"""Tells errors of a victim from errors with a cause: most errors of a distributed run only say that a peer went away.

The list is closed: whole sentences of gloo, NCCL and torch's store, from torch 1.9 to 2.13. The name of a library
proves nothing (`Distributed package doesn't have NCCL built in` is a cause). A lost connection alone proves nothing
either: it may be one to a data server. Standard library only.
"""

from __future__ import annotations

import re

# The errors that torch raises when it cannot communicate. A user's `requests.exceptions.ConnectionError` is not one.
_KINDS = re.compile(
    r"(?:\[rank\d+\]: *)?(?:torch\.(?:distributed\.|_C\.)?)?"
    r"(?:RuntimeError|_?Dist(?:Backend|Network|Store)?Error)(?:: |$)"
)
_WORDS = re.compile(
    r"connection closed by peer \["
    r"|(?:read|write|writev|readv) error \[[^]]*\]:\d+: (?:connection (?:reset|timed)|broken pipe|no route)"
    r"|timed out waiting \d+ ?ms for (?:send|recv) operation"
    r"|application timeout caused pair closure"
    r"|connectfullmesh failed with .*(?:timed? ?out|connect(?:ion)? )"
    r"|failed to (?:recv|send), (?:got|sent) 0 bytes"
    r"|(?:send|recv)(?:bytes|value|vector|string) failed on "
    r"|remote peer closed the connection"
    r"|is there a distributed collective mismatch in your code"  # the rank that notices is not at fault
    r"|wait timeout after \d+ms, keys"
    r"|waitforinput: socket .* timed out"
    r"|timed out after \d+ seconds waiting for clients"
    r"|timed out initializing process group in store based barrier"
    r"|the client socket has (?:timed out|failed to connect)"
    r"|tcp client failed to connect/validate to host"
    r"|(?:rank \d+ )?(?:timed out in|failed to pass) monitoredbarrier"
    r"|successfully reached (?:the )?monitoredbarrier, but received errors"
    r"|remote process exited or there was a network error"
    r"|ncclremoteerror"
    r"|nccl communicator was aborted on rank"
    r"|some nccl operations have failed or timed out"
    r"|watchdog caught collective operation timeout"
    r"|(?:observed|received) (?:flight recorder )?(?:global )?dump signal from another rank"
    r"|socketprogressopt: call to (?:recv|send) .* failed"
    r"|\bnet : (?:call to (?:recv|send) from .* failed|connection closed by remote peer)"
    r"|runtimeerror: (?:connection (?:reset by peer|refused|timed out)|broken pipe|socket timeout|wait timeout)\.?$"
)


class LostPeerError(Exception):
    """A rank of Muster's own trainer did not find another rank, or lost it."""


def error_reports_lost_peer(error: BaseException) -> bool:
    """Whether `error` reports failed communication, for which the code that raised it is not at fault."""
    return isinstance(error, LostPeerError) or line_reports_lost_peer(f"{type(error).__name__}: {error}")


def line_reports_lost_peer(error: str) -> bool:
    """Whether `error` is a victim's: the last line of a traceback (`RuntimeError: ...`) and the lines after it."""
    return bool(_KINDS.match(error)) and mentions_lost_peer(error)


def mentions_lost_peer(text: str) -> bool:
    """Whether the text has one of torch's messages about a peer that is gone or late."""
    return any(_WORDS.search(line.strip().lower()) for line in text.splitlines())
