"""How the user has called this program, for hints that repeat the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

# The command on this command line that starts a run, for hints that repeat it; a program of the Python API deploys.
COMMAND = next((word for word in sys.argv[1:] if word in ("up", "deploy", "ray", "agent", "export")), "deploy")

# What was typed in front of the user's script, once the command line is read. Values of --env in it may be secrets.
BEFORE = list[str]()

# What stands for hosts on this command line, where a run may have been meant.
PLACES = set[str]()

# By its name, what the user types for each host to which a connection was opened: user, address and port; for a node of
# this machine, nothing. Two threads may each have a cluster, and a host of one name in it.
_TYPED: ContextVar[Mapping[str, str]] = ContextVar("typed", default=MappingProxyType({}))


def keep_typed(by_name: Mapping[str, str]) -> None:
    """Keep what is typed for each of these hosts, for hints of this thread and of those that get its context."""
    _TYPED.set({**_TYPED.get(), **by_name})


def typed(hosts: str) -> str:
    """A list of hosts by their names, as --hosts takes them; without those that nobody names there."""
    known = _TYPED.get()
    return ",".join(filter(None, (known.get(host, host) for host in hosts.split(","))))


def host_fields(*hosts: str) -> dict[str, str]:
    """What a command to type may have of these hosts: `{at}`, the option with them, if one is; `{ssh}` for ssh."""
    names, first = typed(",".join(hosts)), typed("".join(hosts[:1]))
    # With a port, ssh takes a URL.
    url = "ssh://" * bool(re.search(r"(^[^:]*|\]):\d+$", first))
    return {"ssh": url + first, "at": f" --hosts {names}" * bool(names)}


def script_option() -> str:
    """What stands before the user's script on this command line. A launcher may have a --script of its own."""
    named = any(word.partition("=")[0] == "--script" for word in sys.argv)
    return "--script" if named and not BEFORE else "--"
