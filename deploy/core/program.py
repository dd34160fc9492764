"""How the user called this program, for hints that repeat the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

# The command on this command line that starts a run, for hints that repeat it; for a program that uses the Python API,
# `deploy`.
COMMAND = next((word for word in sys.argv[1:] if word in ("up", "deploy", "ray", "agent", "export")), "deploy")

# The words in front of the user's script, once the command line is read. Values of --env among them may be secrets.
BEFORE = list[str]()

# Bare words on this command line that were read as hosts, although the user may have meant a run.
READ_AS_HOSTS = set[str]()

# By host name, what the user types to reach each connected host: user, address and port; empty for a node of this
# machine. It is per context because two threads may use two clusters with hosts of the same name.
_TYPED: ContextVar[Mapping[str, str]] = ContextVar("typed", default=MappingProxyType({}))


def remember_typed(by_name: Mapping[str, str]) -> None:
    """Keep what the user types for these hosts, for hints of this thread and of threads that inherit its context."""
    _TYPED.set({**_TYPED.get(), **by_name})


def hosts_as_typed(hosts: str) -> str:
    """Host names, separated by commas, as the user types them for --hosts; nodes of this machine are left out."""
    known = _TYPED.get()
    return ",".join(filter(None, (known.get(host, host) for host in hosts.split(","))))


def host_fields(*hosts: str) -> dict[str, str]:
    """The fields for a command in a hint: `at` is --hosts with these hosts, `ssh` is the first host as ssh takes it.

    `at` is empty if no host is left to name.
    """
    names, first = hosts_as_typed(",".join(hosts)), hosts_as_typed("".join(hosts[:1]))
    # With a port, ssh takes a URL.
    url = "ssh://" * bool(re.search(r"(^[^:]*|\]):\d+$", first))
    return {"ssh": url + first, "at": f" --hosts {names}" * bool(names)}


def script_option() -> str:
    """What comes before the user's script on this command line: `--script` or `--`.

    A --script that is a launcher's own option does not count.
    """
    named = any(word.partition("=")[0] == "--script" for word in sys.argv)
    return "--script" if named and not BEFORE else "--"
