"""The roles of a run: `--role NAME=N:COMMAND`, or a table [[role]] of cluster.toml. Text in, checked roles out. Pure.

A role is a command and the nodes that run it (`rest`: the hosts that are left). All words of a role but its command
stand before the first colon: `reward=1,port=8000,ready=port:python reward.py`; a backslash keeps a comma or a colon in
one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, NoReturn
from urllib.parse import urlsplit

from ...core.errors import UsageError
from ...core.near import hint_of
from .. import values
from ..options import FLAG
from ..toml import Table

# The role of a script that is typed beside others: the run ends with it.
MAIN, REST = "main", "rest"
# The port that is chosen once the hosts are known: a free one of each.
ANY_PORT, _ANY = -1, "free"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
# MUSTER_ROLE_PORT is this node's own port, whatever its role.
_RESERVED = ("role", "run", "first")
_OURS = ("localhost", "127.0.0.1", "::1")
_WITHIN_S, MOST_NODES, _MOST_GPUS = 600.0, 9999, 1024
_PART = re.compile(r"(?:[^\\,:]|\\.)*")
_EXAMPLE = f"{FLAG.role} 'reward=1,port=8000,ready=port:python reward.py'"
READY = '"port", "http://localhost/health", "file PATH" or "line TEXT"'


@dataclass(frozen=True)
class Role:
    """One role. `nodes`: how many hosts it has, if `hosts` does not name them; 0: those that are left.

    docs/how-to/roles.md explains each field.

    `ends`: the run ends with it. `separate`: each node is a world of its own, and starts again alone. `gpus`: of each
    node; -1: as many as the run asks for.
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
    within: float = _WITHIN_S
    after: tuple[str, ...] = ()
    processes: str = ""
    gpus: int = -1

    @property
    def text(self) -> str:
        """The role as --role has it."""
        words = [f"{self.name}={'+'.join(self.hosts) or self.nodes or REST}"]
        for each in fields(self)[4:]:
            value = getattr(self, each.name)
            if value == each.default:
                continue
            shown = "+".join(value) if isinstance(value, tuple) else f"{value:g}s" if each.name == "within" else value
            shown = _ANY if value == ANY_PORT else shown
            words.append(each.name if value is True else f"{each.name}={_escaped(str(shown))}")
        return f"{','.join(words)}:{self.command}"


def read(text: str) -> Role:
    """The role that an option has. Raises UsageError."""
    shown = text if text.isprintable() else ascii(text)
    flag = f"{FLAG.role} {shown if len(shown) <= 60 else shown[:57] + '...'}"
    parts, at = list[str](), 0
    while (match := _PART.match(text, at)) and match.end() < len(text):
        parts.append(match[0])
        at = match.end() + 1
        if text[match.end()] == ":":
            break
    else:
        raise UsageError(f"{flag}: no command after a colon", _EXAMPLE)
    name, equals, where = parts[0].partition("=")
    if not equals:
        raise UsageError(f"{flag}: not NAME=N:COMMAND, nor NAME=HOST+HOST:COMMAND", _EXAMPLE)
    is_number = where == REST or _number(where) != where
    given: dict[str, Any] = {"nodes": _number(where)} if is_number else {"hosts": where.split("+")}
    for part in parts[1:]:
        key, equals, value = part.partition("=")
        plain = re.sub(r"\\(.)", r"\1", value)
        given[key] = (plain.split("+") if key == "after" else _number(plain)) if equals else True
    return _checked(name, text[at:].strip(), given, lambda what, hint, key: _refuse_flag(flag, what, hint))


def of_table(table: Table) -> Role:
    """The role that a table [[role]] has. Raises UsageError with the path of the key."""
    given = {name: table.get(name, None, lambda value: value, "") for name in table.names}
    name, command = given.pop("name", ""), given.pop("command", "")

    def refuse(what: str, hint: str, key: str) -> NoReturn:
        table.refuse(what, hint, *([key] if key in table.names else []))

    return _checked(name, command, given, refuse)


def _checked(name: Any, command: Any, given: dict[str, Any], refuse: Any) -> Role:
    """The role with these values, each of the right kind."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(
            f"{name!r} is not a name for a role",
            "lowercase letters, digits and -, at most 31, starting with a letter",
            "name",
        )
    if name in _RESERVED:
        refuse(f"{name}: Muster's own variables have this name", f"another one: {name}-1", "name")
    if not isinstance(command, str) or not command.isprintable() or not command.strip():
        hint = 'one text, as it is typed: command = "python serve.py"; several lines go into a script of the folder'
        refuse(f"{name}: its command is not one line of text", hint, "command")
    known = {each.name for each in fields(Role)[2:]}
    made: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            hint = next((hint for names, hint in _SHARED.items() if key in names), "")
            hint = hint or hint_of(key, sorted(known), "known:")
            refuse(f"{name}: {key}: a role has no such setting", hint, key)
        made[key] = _READERS[key](value)
        if made[key] is None:
            refuse(f"{name}: {key}: {str(value)[:60]!r} is not {_WANTED[key]}", "", key)
    role = Role(name, command, **made)
    if role.ready.startswith(("port", "http")) and not role.port and not _own_port(role.ready):
        refuse(f"{name}: ready names no port, and the role has none", "give it one: port = 8000", "ready")
    return role


def _own_port(ready: str) -> int | None:
    if ready.startswith("http://"):
        return urlsplit(ready).port
    word = ready.partition(" ")[2]
    return int(word) if word else None


def _ready(value: object) -> str | None:
    """How a role shows that it is ready; None for anything else, and for a place that is not the role's own."""
    text = value if isinstance(value, str) else ""
    if not text.isprintable() or len(text) > 300:
        return None
    kind, _, rest = text.partition(" ")
    if kind == "port":
        return text if not rest or (rest.isdecimal() and 0 < int(rest) < 65536) else None
    if kind == "line":
        return text if rest.strip() else None
    if kind == "file":
        return text if values.inside(rest) is not None else None
    if not text.startswith("http://") or not text.isascii() or " " in text:
        return None
    try:
        parts = urlsplit(text)
        own = parts.hostname in _OURS and not parts.username and parts.port != 0
    except ValueError:
        return None
    return text if own and "\\" not in text and "#" not in text else None


def _nodes(value: object) -> int | None:
    """How many nodes; 0: the hosts that are left."""
    return 0 if value == REST else values.whole(1, MOST_NODES)(value)


def _names(value: object) -> tuple[str, ...] | None:
    items: list[Any] = value if isinstance(value, list) else [value]
    good = all(isinstance(item, str) and values.NAME.fullmatch(item) for item in items)
    return tuple(items) if items and good and len(items) <= MOST_NODES else None


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        return values.wait(value)
    return None


def _processes(value: object) -> str | None:
    count = values.processes(value if isinstance(value, int) else _number(str(value)))
    return None if count is None else str(count)


def _number(text: str) -> Any:
    return int(text) if text.isdecimal() and len(text) < 9 else text


_READERS = {
    "nodes": _nodes,
    "hosts": _names,
    "ends": values.yes_or_no,
    "restart": values.whole(0, 9999),
    "separate": values.yes_or_no,
    "port": lambda value: ANY_PORT if value == _ANY else values.whole(1, 65535)(value),
    "ready": _ready,
    "within": _seconds,
    "after": _names,
    "processes": _processes,
    "gpus": values.whole(0, _MOST_GPUS),
}
# What all roles of a run have in common, and what a role calls otherwise.
_SHARED = {
    ("image", "packages", "requirements", "dockerfile"): "all roles have the run's image and packages: put there what "
    "any of them needs",
    ("env", "environment", "variables"): 'in its command: "env NAME=VALUE python serve.py"',
    ("wait_for", "waits_for", "depends_on", "needs"): 'after = ["name of a role"]',
}
_WANTED = {
    "nodes": f'a number of nodes from 1 to {MOST_NODES}, or "{REST}"',
    "hosts": "names of hosts",
    "ends": "true or false",
    "restart": "a number from 0 to 9999",
    "separate": "true or false",
    "port": f'a port number, or "{_ANY}"',
    "ready": f"{READY} (of the role's own node)",
    "within": 'a time with its unit: "90s"',
    "after": "names of roles",
    "processes": '"auto" or a number from 1',
    "gpus": f"a number from 0 to {_MOST_GPUS}",
}


def _escaped(text: str) -> str:
    return re.sub(r"([\\,:])", r"\\\1", text)


def _refuse_flag(flag: str, what: str, hint: str) -> NoReturn:
    raise UsageError(f"{flag}: {what}", hint or _EXAMPLE)
