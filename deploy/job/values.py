"""Checks for hosts, users, sizes, paths and times: each returns the value, or None if the text is not valid. Pure."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

Gpus = Literal["auto"] | int | tuple[int, ...]

VISIBLE = "CUDA_VISIBLE_DEVICES"
# A checked text; None: it is refused.
Text = str | None
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The name of a file below /run/secrets.
SECRET_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LINE = re.compile(r"[^\x00\n\ud800-\udfff]*")
SIZE = re.compile(r"[1-9]\d*[bkmg]?")
# Names of hosts and users that may be passed to ssh. They do not begin with a dash (it would be an option), and contain
# nothing that a shell interprets, because `Match exec` and `ProxyCommand` in the user's SSH settings pass them to a
# shell. An address may have a zone: fe80::1%eth0.
HOST = re.compile(r"\w[\w.-]*|(?=[^%]*:[^%]*:)[0-9A-Fa-f:.]+(?:%\w[\w.-]*)?")
USER = re.compile(r"\w[\w.+-]*(?:\\\w[\w.+-]*)?")
_HOST_PORT = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?")
# Not with a dash first (_WORD): ssh or docker would take it for an option.
_WAIT, _UNITS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smh])"), {"s": 1, "m": 60, "h": 3600}
_WORD = re.compile(r"[^\s,-][^\s,]*")
_PATH = re.compile(r"/[^\x00-\x1f\ud800-\udfff]*")
# Paths that the image uses: its root, and /muster with the trainer and the run's folder.
_TAKEN = re.compile(r"/|/muster(/.*)?")
# The path of the folder that is sent; it is read-only.
_SENT = re.compile(r"/workspace(/.*)?")


GPUS = '"auto", how many, or a list of which: [0, 1]'
KEEP = "an absolute path in the container, not / nor in /muster"
DATA = "a path in the container: absolute, without a colon, not /, nor in /muster or /workspace"
DIGEST = re.compile(r"[0-9a-f]{64}")
MOUNT = '"/source:/target", with ":ro" or ":create" after it, both paths absolute, the target not / nor in /muster'


class Mount(NamedTuple):
    """A folder of the host that containers mount; both paths are absolute. `create`: make it on the host if missing."""

    source: str
    target: str
    read_only: bool
    create: bool = False


class Data(NamedTuple):
    """A folder of this machine, read-only at `target` in containers. `digest`: what its content must have, if set."""

    source: Path
    target: str
    digest: str = ""


class Destination(NamedTuple):
    """Where SSH connects to; None leaves the choice to the user's SSH settings."""

    host: str
    user: str | None
    port: int | None


class Secret(NamedTuple):
    """A variable that only the ranks get: from this shell's environment, or from `file` on this machine.

    `in_list`: the file is a list of variables (.env) that contains this one. `as_file`: the ranks get a file
    /run/secrets/NAME instead of a variable. `shown`: the file is from a cluster.toml, and the user was asked about it.
    """

    name: str
    file: Path | None
    in_list: bool = False
    as_file: bool = False
    shown: bool = False


def matching(pattern: re.Pattern[str]) -> Callable[[Any], Text]:
    """A check for a string that matches the whole pattern."""
    return lambda value: value if isinstance(value, str) and pattern.fullmatch(value) else None


word = matching(_WORD)
line = matching(_LINE)
host = matching(HOST)
user = matching(USER)


def destination(text: Any) -> Destination | None:
    """`user@host:port` as for SSH: user and port are optional, an IPv6 address has brackets."""
    if not isinstance(text, str):
        return None
    login, at, host_port = text.rpartition("@")
    match = _HOST_PORT.fullmatch(host_port)
    six, name, port = match.groups() if match else (host_port, None, None)
    number = int(port) if port else None
    address = host(six or name)
    if not address or (at and not user(login)) or (number is not None and not 0 < number < 65536):
        return None
    return Destination(address, login or None, number)


def whole(least: int, most: int) -> Callable[[Any], int | None]:
    """A check for a whole number within bounds, not true or false."""
    return lambda value: value if type(value) is int and least <= value <= most else None


def digits(least: int, most: int) -> Callable[[str], int | None]:
    """A check for a typed whole number within bounds: ASCII digits, at most as many as `most` has."""
    read = whole(least, most)
    return lambda text: read(int(text)) if re.fullmatch(r"[0-9]+", text) and len(text) <= len(str(most)) else None


def whole_text(least: int) -> Callable[[Any], Text]:
    """A check for a whole number from `least` to 9999; its value is the number as text."""
    read = whole(least, 9999)
    return lambda value: None if read(value) is None else str(value)


def one_of(*texts: str) -> Callable[[Any], Text]:
    """A check for one of these words."""
    return lambda value: value if value in texts else None


def gateway(value: Any) -> Text:
    """Jump hosts separated by commas, without spaces."""
    hops = [hop.strip() for hop in value.split(",")] if isinstance(value, str) else [""]
    return ",".join(hops) if all(map(destination, hops)) else None


def gpus(value: Any) -> Gpus | None:
    """auto, a number (0 for none), or a list of indices, each once."""
    if isinstance(value, list):
        good = value and all(type(index) is int and index >= 0 for index in value) and len(set(value)) == len(value)
        return tuple(value) if good else None
    return "auto" if value == "auto" else whole(0, 1024)(value)


def gpus_flag(text: str) -> Gpus | None:
    """auto, how many (0 for none), or which, separated by commas: `0,3`; a single index ends with a comma: `3,`."""
    if "," not in text:
        return gpus(or_number(text))
    return gpus([or_number(part.strip()) for part in text.removesuffix(",").split(",")])


def processes(value: Any) -> Literal["auto"] | int | None:
    """auto, or the number of ranks per node."""
    return "auto" if value == "auto" else whole(1, 1024)(value)


def or_number(text: str) -> str | int:
    """Text of digits as a number; other text unchanged."""
    return int(text) if re.fullmatch(r"[0-9]{1,8}", text) else text


def visible_gpus(variables: Mapping[str, str]) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES; None if it is not set or lists MIG instances (CUDA uses only one of those)."""
    text = variables.get(VISIBLE)
    return None if text and text.startswith("MIG-") else text


def hours_flag(text: str) -> Text:
    """A typed number of hours above 0, unchanged: a node reads the same text."""
    return text if re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,6})?", text) and float(text) else None


def hours(value: Any) -> Text:
    """A number of hours above 0, as text."""
    return f"{value:g}" if type(value) in (int, float) and 0 < value < 100_000 else None


def wait(value: Any) -> float | None:
    """A time above 0 with its unit, in seconds: `90s`, `10m`, `1.5h`."""
    match = _WAIT.fullmatch(value) if isinstance(value, str) else None
    return float(match[1]) * _UNITS[match[2]] or None if match else None


def words_of_shell(value: Any) -> Text:
    """One line that splits into words as in a shell."""
    text = line(value)
    try:
        return text if text and shlex.split(text) else None
    except ValueError:  # an unclosed quote
        return None


def grace(value: Any) -> float | None:
    """As `wait`, but at most a day."""
    seconds = wait(value)
    return seconds if seconds is not None and seconds <= _UNITS["h"] * 24 else None


def yes_or_no(value: Any) -> bool | None:
    """true or false."""
    return value if isinstance(value, bool) else None


def size(value: Any) -> int | None:
    """A number of bytes, written as for docker: `16g`."""
    text = value.lower() if isinstance(value, str) else ""
    if not SIZE.fullmatch(text) or len(text) > 15:
        return None
    return int(text.rstrip("bkmg")) << {"k": 10, "m": 20, "g": 30}.get(text[-1], 0)


def size_within(least: int, most: int) -> Callable[[Any], int | None]:
    """A check for a number of bytes within bounds, written as for docker."""

    def read(value: Any) -> int | None:
        number = size(value)
        return number if number is not None and least <= number <= most else None

    return read


def scalar(value: Any) -> Text:
    """A variable's value: a string or a number, as text. A bool is refused: would it be `true`, `True` or `1`?"""
    if isinstance(value, str) and is_text(value) and "\n" not in value:
        return value
    return str(value) if type(value) in (int, float) else None


def is_text(value: str) -> bool:
    """Whether UTF-8 and a command line can hold the text."""
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def inside(value: Any) -> Text:
    """A path inside a folder, in the form of the folder's file list: without `..`, `./`, or a slash at either end."""
    path = posixpath.normpath(value) if isinstance(value, str) and value and is_text(value) else ".."
    return None if path.startswith(("/", "..")) or path == "." else path


def requirements(value: Any) -> Text:
    """A path in the folder that is sent, or `no`. A path with `..` that leaves the folder is not refused here."""
    return value if isinstance(value, str) and value and is_text(value) and "\n" not in value else None


def path_from(folder: Path) -> Callable[[Any], Path | None]:
    """A check for a path; a relative one starts at `folder`, and `~` is the home of an existing user."""
    return lambda value: (
        folder / os.path.expanduser(value) if isinstance(value, str) and value and is_text(value) else None
    )


def mount(value: Any) -> Mount | None:
    """`/source:/target`, with an optional `:ro` or `:create`; not over the image's own files or the run's folder."""
    parts = value.split(":") if isinstance(value, str) else []
    mode = parts.pop() if len(parts) == 3 else "rw"
    if len(parts) != 2 or mode not in ("ro", "rw", "create") or not all(map(_PATH.fullmatch, parts)):
        return None
    target = posixpath.normpath(parts[1])
    return None if _TAKEN.fullmatch(target) else Mount(parts[0], target, mode == "ro", mode == "create")


def keep(value: Any) -> Text:
    """An absolute path in the container; not one of the image's own files or the run's folder."""
    path = posixpath.normpath(value) if isinstance(value, str) and _PATH.fullmatch(value) else "/"
    return None if path.startswith("//") or _TAKEN.fullmatch(path) else path


def data_target(value: Any) -> Text:
    """Where containers have data: as `keep`, and also not in the folder that is sent."""
    path = keep(value)
    return None if path is None or ":" in path or _SENT.fullmatch(path) else path


def data(text: str) -> Data | None:
    """`FOLDER:/target`: a folder of this machine, and its path in containers."""
    source, _, target = text.rpartition(":")
    path, place = path_from(Path())(source), data_target(target)
    return Data(path, place) if path and place else None


def secret_from(folder: Path) -> Callable[[Any], Secret | None]:
    """A check for a secret: a variable's name, or a table with `name`, `file` (relative to `folder`) and `as_file`."""

    def check(value: Any) -> Secret | None:
        fields = {"name": value} if isinstance(value, str) else value
        if not isinstance(fields, dict) or not fields.keys() <= {"name", "file", "as_file"}:
            return None
        as_file = fields.get("as_file", False)
        if not isinstance(as_file, bool) or (as_file and "file" not in fields):
            return None
        pattern = SECRET_FILE if as_file else VARIABLE
        name, file = matching(pattern)(fields.get("name")), path_from(folder)(fields.get("file"))
        return Secret(name, file, as_file=as_file) if name and (file or "file" not in fields) else None

    return check
