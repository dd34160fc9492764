"""Why a host could not be examined: from the error text of SSH, the engine or `docker run` to a cause. Pure."""

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
    "no-shell": "ssh-shell",
    "no-sh": "ssh-shell",
}


def ssh(kind: str) -> str:
    """The cause that a fault of SSH is, by its kind."""
    return next((slug for known, slug in SSH.items() if known == kind), "ssh")


def start(words: str) -> str:
    """The cause that the last words of a probe are, or of the container that was to hold it."""
    cause = docker_faults.read(words)
    return cause.name if cause else "probe-died"


def fix(cause: str, host: str) -> str:
    """The next command; nothing for a cause that is none of an engine's or a probe's."""
    if cause == "probe-died":
        return f"{FAB} preflight again; if it stays, look there at: dmesg | tail"
    known = next((entry for entry in docker_faults.CAUSES if entry.name == cause), None)
    return known.hint(host) if known else ""


def last_words(stderr: str) -> str:
    """What a command that ended said last, without the command; empty for anything else."""
    ended = re.search(r"(?:`|the probe) ended with code -?\d+: (.*)", stderr, re.DOTALL)
    return ended[1].strip() if ended else ""
