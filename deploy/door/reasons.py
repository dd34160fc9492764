"""Recognize why `ssh` could not log in, from what it prints (`ssh -v`, LC_ALL=C). Pure, except for looking at keys.

Each pattern is in the sources of OpenSSH 8.2 to 10.0. `Connection refused` and similar texts are the C library's.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from ..core.errors import UsageError
from ..core.printable import one_line
from ..core.text import in_seconds
from .faults import FaultPlace, Kind, SshFault, fault
from .settings import Route, closest_host, run_limited

# For what ssh prints before the login begins: the first row that matches counts. A host's own text comes later.
_KINDS: tuple[tuple[Kind, str], ...] = (
    ("changed-key", r"REMOTE HOST IDENTIFICATION HAS CHANGED"),
    ("revoked-key", r"REVOKED HOST KEY|marked as revoked|revoked by file"),
    ("weak-key", r"Invalid key length"),
    ("unknown-key", r"No \S+ host key is known for|Host key verification failed"),
    ("resolve", r"Could not resolve hostname"),
    ("refused", r"Connection refused"),
    ("unreachable", r"No route to host|Host is down|Network is unreachable|Cannot assign requested address"),
    ("silent", r"[Tt]imed out during banner exchange"),
    # The second pattern is how macOS says it.
    ("timeout", r"[Cc]onnection (?:to \S+ port \d+ )?timed out|Operation timed out"),
    ("protocol", r"no matching [\w ]+ found"),
    ("dropped", r"kex_exchange_identification: (?:Connection closed|read:|write:)"),
    ("dropped", r"Connection (?:closed|reset) by|Broken pipe"),
)
_LOGIN_BEGINS = "debug1: SSH2_MSG_SERVICE_ACCEPT received"
_MOST_DETAIL = 300
# What ssh prints when a jump host cannot open the connection to the host behind it.
_OPEN_FAILED = re.compile(r"open failed: ([^\r\n]{0,200})")
_OFFERED = re.compile(r"^debug1: Offering public key: (.+?) (?:[\w-]+) (SHA256:\S+)", re.MULTILINE)
_UNUSABLE = re.compile(r'^Load key "(.+?)": (.+?)\r?$', re.MULTILINE)
_METHODS = re.compile(r"Permission denied \(([\w,@.-]{1,200})\)")
_SHOWN_KEY = re.compile(r"debug1: Server host (?:key|certificate): (\S+) (SHA256:[^\s,]+)")
_INVALID = re.compile(r"^Certificate invalid: [^\r\n]{1,200}", re.MULTILINE)
# The key files that ssh tries. The settings may write them with tokens (%h), so they are read from ssh's output.
_FILES = re.compile(r"^debug1: identity file (.+?) type -?\d+\r?$", re.MULTILINE)
_CALLED = re.compile(r"debug1: Connecting to \S+ \[(\S+)\] port \d+")
_KNOWN_KEY = re.compile(r"Offending \S+ key in ([^\r\n]+?:\d+)")


def kind_of(words: str) -> Kind:
    """Return the kind of fault that ssh's output shows."""
    _, begins, login = words.partition(_LOGIN_BEGINS)
    if begins:
        return _kind_of_login(login)
    plain = "\n".join(_plain(words))
    return next((kind for kind, pattern in _KINDS if re.search(pattern, plain)), "protocol")


def _kind_of_login(words: str) -> Kind:
    """Return the kind of a login that failed after the server's key was accepted.

    The server may print any greeting, so the last match counts: ssh's own messages come last.
    """
    methods = _METHODS.findall(words)
    if "Too many authentication failures" in words:
        return "key-rejected"
    if methods:
        key = "publickey" in methods[-1].split(",")
        return "second-factor" if "partial success" in words else "key-rejected" if key else "password-only"
    if re.search(r"Connection (?:closed|reset) by", words):
        if re.search(r"\ndebug1: Server accepts key:", words):
            return "closed"
        return "key-rejected" if "Offering public key:" in words else "dropped"
    return "protocol"


def _plain(words: str) -> list[str]:
    """Return the lines that ssh prints without -v."""
    return [line for line in words.splitlines() if line.strip() and not line.startswith(("debug", "OpenSSH_"))]


def fault_of(words: str, route: Route, where: FaultPlace, tries: int, jump_words: str = "") -> SshFault:
    """Return the fault of a login that failed, from the output of its ssh (`words`) and of the jump host's, if any."""
    if "tdio forwarding" in words and jump_words:
        if forbids_forwarding(jump_words):
            return fault("forbidden", where, "administratively prohibited")
        return fault("refused", where, ", says the jump host before it")
    kind = kind_of(words)
    if kind in ("timeout", "silent"):
        return fault(kind, where, in_seconds(route.timeout_s).removesuffix(" s"))
    if kind == "dropped":
        return fault(kind, where, str(tries))
    if kind == "refused":
        return fault(kind, where)
    if kind == "resolve":
        near = closest_host(where.host)
        return fault(kind, where, f"; did you mean {near}?" if near else "")
    return fault(kind, where, _detail(kind, words), known="".join(_KNOWN_KEY.findall(words)[:1]))


def called_at(words: str) -> str:
    """Return the last address that ssh tried to connect to; empty if a jump host or ProxyCommand connects instead."""
    addresses: list[str] = _CALLED.findall(words)
    return addresses[-1] if addresses else ""


def forbids_forwarding(words: str) -> bool:
    """Whether the host's server forbade the last connection that it was asked to open for us."""
    return "prohibited" in (_OPEN_FAILED.findall(words) or [""])[-1]


def _detail(kind: Kind, words: str) -> str:
    key = _SHOWN_KEY.search(words)
    shown = f"{key[2]} ({key[1]})" if key else "a key"
    if kind in ("changed-key", "unknown-key", "revoked-key", "weak-key"):
        return ". ".join([shown, *_INVALID.findall(words)[:1]])
    if kind == "key-rejected":
        return _keys(words)
    if kind in ("second-factor", "password-only"):
        return str(_METHODS.findall(words)[-1]).replace(",", " or ")
    lines = _plain(words)
    return one_line(lines[-1].strip())[:_MOST_DETAIL] if lines else "ssh said nothing"


def _keys(words: str) -> str:
    """Describe which keys were offered, and why others were not."""
    files = [Path(file) for file in _FILES.findall(words) if not file.endswith("-cert")]
    locked = [str(file) for file in files if file.is_file() and _is_locked(file)]
    offered = [f"{file} ({print_})" for file, print_ in _OFFERED.findall(words) if file not in locked]
    parts = [f"offered {', '.join(offered)}" if offered else "there is no key to offer"]
    if "Too many authentication failures" in words or "Permission denied" not in words:
        many = " (MaxAuthTries): set the one right key with IdentityFile and IdentitiesOnly yes"
        parts[0] += f"; then it hung up{many if 'Too many' in words else ''}"
    unusable = dict(_UNUSABLE.findall(words))
    parts += [f"{file} needs its passphrase: `ssh-add {file}`" for file in locked]
    for file, why in unusable.items():
        if file not in locked:
            open_to = f" can be read by other users: `chmod 600 {file}`"
            parts.append(file + (open_to if "permissions" in why else f": {why}"))
    # Without a configured key, ssh tries its default files (~/.ssh/id_*): if one of these is missing, that is no fault.
    named = [file for file in files if file.parent.name != ".ssh" or not file.name.startswith("id_")]
    parts += [f"{file} does not exist" for file in named if not file.exists()]
    return "; ".join(parts)


def _is_locked(file: Path) -> bool:
    """Whether a private key needs a passphrase. Here ssh does not ask for one, nor report that it is missing."""
    with suppress(UsageError):  # this machine has no ssh-keygen
        code, _, err = run_limited(["ssh-keygen", "-y", "-P", "", "-f", str(file)])
        return code != 0 and "passphrase" in err
    return False
