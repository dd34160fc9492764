"""Types for names from hosts, containers and files; a name that is unsafe in a path is refused where it is read. Pure.

Each kind of name has a type, and is checked once. A value of such a type is safe in a path, an argument or a label: it
has no slash, no `..`, no blank, no control character and no dash at its start. No other text from a host becomes part
of a local path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NewType, TypeVar

from .errors import BadAnswer, UsageError

RunId = NewType("RunId", str)
NodeName = NewType("NodeName", str)
ContainerName = NewType("ContainerName", str)
ContainerId = NewType("ContainerId", str)
FileName = NewType("FileName", str)
T = TypeVar("T")

# The packages that run on a node, by their import names there. All other names are free for the user's packages.
TRAINER, NODE_PROGRAMS = "muster.trainer", "muster.trainer.node"

LONGEST, LONGEST_CONTAINER, LONGEST_FILE = 100, 255, 255
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ID = re.compile(r"[0-9a-f]{12,64}")
# runs/latest is a link to the newest run; `all` means every run.
_RESERVED = ("latest", "all")
_RULE = f"at most {LONGEST} letters, digits, . _ and -, starting with a letter or digit, no .."


def run_id(text: object, what: str = "a run's name") -> RunId:
    """Check a run's id. Raises BadAnswer about `what`."""
    name = _name(text, what, LONGEST)
    if name in _RESERVED:
        raise BadAnswer(what, "the name of one run", text)
    return RunId(name)


def run_ids(listed: Iterable[str]) -> frozenset[RunId]:
    """The run ids among the file names in a folder of runs; other files there are not Muster's."""
    ids = set()
    for name in listed:
        with suppress(BadAnswer):
            ids.add(run_id(name))
    return frozenset(ids)


def node_name(text: object, what: str = "a node's name") -> NodeName:
    """Check a node's name, as in `logs/<node>.log`. Raises BadAnswer about `what`."""
    return NodeName(_name(text, what, LONGEST))


def node_of(host: str) -> NodeName:
    """The node name for a host: its name in characters that files and labels accept."""
    plain = re.sub(r"\.\.+", ".", re.sub(r"[^A-Za-z0-9_.-]", "-", host)).lstrip("._-")
    return node_name(plain[:LONGEST] or "host")


def container_name(text: object, what: str = "a container's name") -> ContainerName:
    """Check a container's name (without the slash that engines put in front). Raises BadAnswer about `what`."""
    return ContainerName(_name(text, what, LONGEST_CONTAINER))


def container_id(text: object, what: str = "a container's id") -> ContainerId:
    """Check a container's id, short or whole. Raises BadAnswer about `what`."""
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise BadAnswer(what, "12 to 64 of 0-9 and a-f", text)
    return ContainerId(text)


def file_name(text: object, what: str = "a file's name") -> FileName:
    """Check one component of a path: it has no control characters. Raises BadAnswer about `what`."""
    well = isinstance(text, str) and text not in ("", ".", "..") and "/" not in text and text.isprintable()
    if not isinstance(text, str) or not well or len(text.encode(errors="replace")) > LONGEST_FILE:
        raise BadAnswer(what, f"one name of at most {LONGEST_FILE} bytes, without / and control characters", text)
    return FileName(text)


def check_typed(option: str, text: str, check: Callable[[object, str], T]) -> T:
    """Check a name that the user typed, with the function `check`. Raises UsageError."""
    try:
        return check(text, option)
    except BadAnswer as fault:
        raise UsageError(fault.message, "to list the names: muster runs --hosts ..., or muster runs") from fault


def check_run_id(option: str, text: str) -> str:
    """Check a run's id that the user typed; empty text stays empty. Raises UsageError."""
    return check_typed(option, text, run_id) if text else ""


def _name(text: object, what: str, longest: int) -> str:
    if isinstance(text, str) and len(text) <= longest and _NAME.fullmatch(text) and ".." not in text:
        return text
    raise BadAnswer(what, _RULE.replace(str(LONGEST), str(longest)), text)
