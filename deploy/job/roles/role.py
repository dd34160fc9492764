"""Read and check a role of a run: `--role NAME=N:COMMAND`, or a table [[role]] of cluster.toml. Pure.

all_roles.py checks the roles together. A role is a command and the nodes that run it (`rest`: the remaining hosts).
Everything but the command comes before the first colon: `reward=1,port=8000,ready=port:python reward.py`. In these
settings, a backslash before a comma or a colon makes it part of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ...core.errors import UsageError
from .. import values
from ..options import FLAG
from ..toml import Table, shown

# The role of a script that is typed in addition to roles: the run ends with it. REST: all remaining hosts.
MAIN, REST = "main", "rest"
# `port = "free"`: Muster chooses a free port on each host, once the hosts are known.
ANY_PORT, _ANY = -1, "free"
# The role has no readiness check: it is ready as soon as it runs.
NO_SIGN = ("", 0, "")
_MOST_NODES, _LONGEST_READY = 9999, 300
# `role`, `run` and `first` are reserved: MUSTER_ROLE_PORT, for example, is a node's own port, whatever its role.
_NAME = re.compile(r"(?!(?:role|run|first)$)[a-z][a-z0-9-]{0,30}")
_ROLE = re.compile(r"([^=,:]*)=((?:[^\\:]|\\.)*):(.*)", re.DOTALL)
_WORD = re.compile(r"(?:[^\\,]|\\.)+")
_PORT = re.compile(r"port(?: ([0-9]{1,5}))?")
_URL = re.compile(r"http://(?:localhost|127\.0\.0\.1|\[::1\])(?::([0-9]{1,5}))?(/[!-~]*)?")
_EXAMPLE = f"{FLAG.role} 'reward=1,port=8000,ready=port:python reward.py'"


@dataclass(frozen=True)
class Role:
    """One role. `nodes`: how many hosts it gets, if `hosts` does not name them; 0: all remaining hosts.

    `ends`: the run ends with this role. `separate`: each node trains by itself (a world of its own), and is restarted
    without the others. `gpus`: per node; -1: as many as the run asks for. docs/how-to/roles.md explains each field.
    """

    name: str
    command: str
    nodes: int = 1
    hosts: tuple[str, ...] = ()
    ends: bool = False
    restart: int = 0
    separate: bool = False
    port: int = 0
    ready: str = ""
    within: str = "10m"
    after: tuple[str, ...] = ()
    processes: str = ""
    gpus: int = -1

    @property
    def text(self) -> str:
        """The role in the form of --role."""
        words = [f"{self.name}={'+'.join(self.hosts) or self.nodes or REST}"]
        for each in fields(self)[4:]:
            value = getattr(self, each.name)
            if value is True:
                words.append(each.name)
            elif value != each.default:
                plain = "+".join(value) if isinstance(value, tuple) else _ANY if value == ANY_PORT else str(value)
                words.append(f"{each.name}=" + re.sub(r"([\\,:])", r"\\\1", plain))
        return f"{','.join(words)}:{self.command}"


def read(text: str) -> Role:
    """Read the text of a --role. Raises UsageError."""
    flag = f"{FLAG.role} {shown(text)}"
    match = _ROLE.fullmatch(text)
    if not match:
        raise UsageError(f"{flag}: not NAME=N:COMMAND, nor NAME=HOST+HOST:COMMAND", _EXAMPLE)
    where, *settings = _WORD.findall(match[2]) or [""]
    key = "nodes" if where == REST or where.isdecimal() else "hosts"
    given = {"name": match[1], "command": match[3].strip(), key: values.or_number(where)}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key in given:
            raise UsageError(f"{flag}: {key} is given twice", "leave one of them out")
        given[key] = values.or_number(re.sub(r"\\(.)", r"\1", value)) if equals else True
    try:
        return of_table(Table(flag, given))
    except UsageError as fault:
        raise UsageError(fault.message, fault.hint or _EXAMPLE) from fault


def of_table(table: Table) -> Role:
    """Read a table [[role]]. Raises UsageError with the path of the key."""
    if other := next((key for key in table.names if key in _OTHERWISE), ""):
        table.refuse("roles have no such setting", _OTHERWISE[other], other)
    # The class attributes are the defaults of the fields.
    given: dict[str, Any] = {key: table.get(key, getattr(Role, key, ""), *about) for key, about in _SETTINGS.items()}
    role = Role(**given)
    table.done()
    if not (role.name and role.command):
        table.refuse("a role needs a name and a command", 'name = "reward" and command = "python reward.py"')
    kind, port, _ = how_ready(role.ready) or NO_SIGN
    if kind in ("port", "url") and not (port or role.port):
        table.refuse("it names no port, and the role has no port either", "give the role one: port = 8000", "ready")
    return role


def how_ready(text: Any) -> tuple[str, int, str] | None:
    """Parse how a role shows that it is ready: the kind, the port (0: the role's port), and the path or text.

    The kind is `port`, `url`, `file` or `line`. None for any other text, and for a URL or file outside the role's node.
    """
    if not isinstance(text, str) or not text.isprintable() or len(text) > _LONGEST_READY:
        return None
    kind, _, rest = text.partition(" ")
    if (kind == "line" and rest.strip()) or (kind == "file" and values.inside(rest)):
        return kind, 0, rest
    match = _PORT.fullmatch(text) or _URL.fullmatch(text)
    if not match or int(match[1] or 1) not in range(1, 65536):
        return None
    return ("url", int(match[1] or 0), match[2] or "/") if match.re is _URL else (kind, int(match[1] or 0), "")


def _names(value: Any) -> tuple[str, ...] | None:
    items = value.split("+") if isinstance(value, str) else value
    is_one = values.matching(values.NAME)
    return tuple(items) if isinstance(items, list) and items and all(map(is_one, items)) else None


# For each setting, its reader and a description of what it accepts.
_SETTINGS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "name": (
        values.matching(_NAME),
        "a name for a role: lowercase letters, digits and -, at most 31, a letter first; not role, run or "
        "first, which Muster's own variables use",
    ),
    "command": (
        lambda value: value if isinstance(value, str) and value.isprintable() and value.strip() else None,
        "one line of text, as you would type it; put several lines into a script in the folder",
    ),
    "nodes": (
        lambda value: 0 if value == REST else values.whole(1, _MOST_NODES)(value),
        f'a number of nodes from 1 to {_MOST_NODES}, or "{REST}"',
    ),
    "hosts": (_names, "names of hosts"),
    "ends": (values.yes_or_no, "true or false"),
    "restart": (values.whole(0, 9999), "a number from 0 to 9999"),
    "separate": (values.yes_or_no, "true or false"),
    "port": (
        lambda value: ANY_PORT if value == _ANY else values.whole(1, 65535)(value),
        f'a port number, or "{_ANY}"',
    ),
    "ready": (
        lambda value: how_ready(value) and value,
        '"port", "http://localhost/health", "file PATH" or "line TEXT" (of the role\'s own node)',
    ),
    "within": (lambda value: values.wait(value) and value, 'a time with its unit: "90s"'),
    "after": (_names, "names of roles"),
    "processes": (lambda value: values.processes(value) and str(value), '"auto" or a number from 1'),
    "gpus": (values.whole(0, 1024), "a number from 0 to 1024"),
}
# Settings that a role does not have: those that all roles share, and other names for settings of a role.
_OTHERWISE = {
    **dict.fromkeys(
        ("image", "packages", "requirements", "dockerfile"),
        "all roles share the run's image and packages: put in what any role needs",
    ),
    **dict.fromkeys(("env", "environment", "variables"), 'in its command: "env NAME=VALUE python serve.py"'),
    **dict.fromkeys(("wait_for", "waits_for", "depends_on", "needs"), 'after = ["name of a role"]'),
}
