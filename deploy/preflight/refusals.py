"""Why preflight could not examine a host: from the error text of SSH, the engine or `docker run` to a cause. Pure."""

from __future__ import annotations

import re

from ..core import docker_faults
from ..core.program import FAB
from ..ssh.faults import Kind

SSH: dict[Kind, str] = {
    "resolve": "ssh-name",
    "refused": "ssh-refused",
    "unreachable": "ssh-timeout",
    "timeout": "ssh-timeout",
    "silent": "ssh-silent",
    "dropped": "ssh-silent",
    "key-rejected": "ssh-key",
    "password-only": "ssh-key",
    "second-factor": "ssh-key",
    "unknown-key": "ssh-host-key-unknown",
    "changed-key": "ssh-host-key-changed",
    "revoked-key": "ssh-host-key-changed",
    "sessions": "ssh-sessions",
    "lost": "ssh-lost",
    "slow": "ssh-slow",
    "flood": "ssh-shell",
    "no-shell": "ssh-shell",
    "no-sh": "ssh-shell",
}


def ssh(kind: str) -> str:
    """The cause for a kind of SSH fault."""
    return next((slug for known, slug in SSH.items() if known == kind), "ssh")


def start(words: str) -> str:
    """The cause that the last words of a probe, or of its container, show."""
    cause = docker_faults.read(words)
    return cause.name if cause else "probe-died"


def fix(cause: str, host: str) -> str:
    """The next command; empty for a cause that concerns neither an engine nor a probe."""
    if cause == "probe-died":
        return f"{FAB} preflight again; if it happens again, run there: dmesg | tail"
    if cause == "ssh-slow":
        return f"time ssh {host} true; in ~/.bashrc there, as the first line: [ -t 0 ] || return"
    known = next((entry for entry in docker_faults.CAUSES if entry.name == cause), None)
    return known.hint(host) if known else ""


def last_words(stderr: str) -> str:
    """The last words of a command that ended, without the command; empty for other text."""
    ended = re.search(r"(?:`|the probe) ended with code -?\d+: (.*)", stderr, re.DOTALL)
    return ended[1].strip() if ended else ""
