"""How the user has called this program, for hints that repeat the command line."""

from __future__ import annotations

import sys

# The command on this command line that starts a run, for hints that repeat it; a program of the Python API deploys.
COMMAND = next((word for word in sys.argv[1:] if word in ("up", "deploy", "ray", "agent", "export")), "deploy")

# What was typed in front of the user's script, once the command line is read. Values of --env in it may be secrets.
BEFORE = list[str]()

# What stands for hosts on this command line, where a run may have been meant.
PLACES = set[str]()

# By its name, what the user types for each host to which a connection was opened: user, address and port.
TYPED = dict[str, str]()


def typed(hosts: str) -> str:
    """A list of hosts by their names, as --hosts takes them."""
    return ",".join(TYPED.get(host, host) for host in hosts.split(","))


def script_option() -> str:
    """What stands before the user's script on this command line. A launcher may have a --script of its own."""
    named = any(word.partition("=")[0] == "--script" for word in sys.argv)
    return "--script" if named and not BEFORE else "--"
