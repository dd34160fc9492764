"""Read the user's SSH settings where OpenSSH's client is not installed, with OpenSSH's meaning.

Host and the plain kinds of Match, first value wins, Include outside of sections. Everything else is refused by name: a
setting that is half understood may open what the user meant to close.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, NoReturn

from ..core.errors import UsageError
from . import tokens as tokens
from .ask import Answer, Place, check
from .keywords import HONOURED, NO_MATTER, OURS

_LINE = re.compile(r"([A-Za-z0-9]+)(?:\s*=\s*|\s+)(\S.*)")
_PATTERN = re.compile(r"!?[\w.*?:%-]+")
_MOST_INCLUDES = 16
SYSTEM = Path("/etc/ssh")
_WHOLE_LINE = ("proxycommand", "localcommand")
_SEVERAL = ("identityfile", "certificatefile", "localforward", "remoteforward", "dynamicforward", "sendenv", "setenv")
_YES_NO = frozenset(
    ("identitiesonly", "checkhostip", "hashknownhosts", "clearallforwardings", "exitonforwardfailure", "proxyusefdpass")
)
_NUMBERS = ("port", "requiredrsasize", "connecttimeout")
_LISTS = ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms", "pubkeyacceptedalgorithms")
_MATCHES = ("host", "originalhost", "user", "localuser")
# Weak algorithms, which OpenSSH's own lists lack: only for users who name them.
_WEAK = re.compile(r".*-cbc|hmac-md5.*|hmac-sha1-96")
_TOKEN_KEYS = ("sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com")


class _Line(NamedTuple):
    keyword: str
    value: str
    place: str


class Reader:
    """`named` alone, or the usual files: the user's, which must be the user's own, then the system's."""

    def __init__(self, named: Path | None) -> None:
        user = Path(tokens.home()) / ".ssh"
        usual = [(user / "config", user, True), (SYSTEM / "ssh_config", SYSTEM, False)]
        self._lines: list[_Line] = []
        for file, folder, strict in [(named, user, False)] if named else usual:
            if file.is_file():
                # A new file begins outside the last section of the previous file.
                self._lines += [_Line("host", "*", str(file)), *_read(file, folder, strict)]

    def defaults(self) -> Answer:
        """The settings without any file: OpenSSH's own defaults, as far as paramiko supports them."""
        keys = OURS["hostkeyalgorithms"]
        accepted = [*(f"{name}-cert-v01@openssh.com" for name in keys), *keys, *_TOKEN_KEYS]
        settings = {keyword: ",".join(x for x in names if not _WEAK.fullmatch(x)) for keyword, names in OURS.items()}
        return {
            **{keyword: (value,) for keyword, value in settings.items()},
            "pubkeyacceptedalgorithms": (",".join(accepted),),
            "identityfile": tuple(f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ed25519")),
            "userknownhostsfile": ("~/.ssh/known_hosts ~/.ssh/known_hosts2",),
            "globalknownhostsfile": ("/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",),
        }

    def client(self, place: Place) -> tuple[str, ...]:
        """There is no `ssh`."""
        return ()

    def ask(self, place: Place) -> Answer:
        """The settings for a place. Raises UsageError for a line that only OpenSSH can evaluate."""
        check(place)
        settings: dict[str, list[str]] = {}
        given = {"user": place.user, "port": place.port, "proxyjump": place.jumps}
        settings.update({keyword: [str(value)] for keyword, value in given.items() if value is not None})
        holds = True
        for line in self._lines:
            if line.keyword in ("host", "match"):
                holds = _holds(line, place.name, settings)
            elif holds and not (line.keyword == "proxycommand" and "proxyjump" in settings):
                values = settings.setdefault(line.keyword, [])
                if not values or line.keyword in _SEVERAL:
                    values.append(line.value)
        defaults = self.defaults()
        for keyword in _LISTS:
            if keyword in settings:
                settings[keyword] = [_list(settings[keyword][0], defaults[keyword][0])]
        base: dict[str, tuple[str, ...]] = {"user": (_me(),), "port": ("22",), "hostname": (place.name.lower(),)}
        if "hostname" in settings:
            settings["hostname"] = [tokens.expand(settings["hostname"][0], {"%": "%", "h": place.name}).lower()]
        return {**defaults, **base, **{keyword: tuple(values) for keyword, values in settings.items()}}


def _read(file: Path, folder: Path, strict: bool, depth: int = 0) -> Iterator[_Line]:
    if depth > _MOST_INCLUDES:
        raise UsageError(f"{file}: includes itself", "remove the Include that closes the circle")
    with file.open(errors="replace", newline="\n") as text:
        status = os.fstat(text.fileno())
        if strict and (status.st_uid not in (0, os.getuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise UsageError(f"{file}: other users may write to it", f"run `chmod go-w {file}`, and check who owns it")
        inside = False
        for number, raw in enumerate(text, 1):
            place = f"{file}:{number}"
            line = _line(raw, place)
            if line is None:
                continue
            if line.keyword == "include" and inside:
                _refuse(line, "an Include in a section")
            inside = inside or line.keyword in ("host", "match")
            if line.keyword != "include":
                yield line
                continue
            for pattern in line.value.split():
                for included in sorted(glob.glob(str(folder / tokens.tilde(pattern)))):
                    yield from _read(Path(included), folder, strict, depth + 1)
                    yield _Line("host", "*", place)


def _line(raw: str, place: str) -> _Line | None:
    """A line as OpenSSH reads it; None for an empty line or comment. Raises UsageError for an unknown line."""
    text = raw.strip()
    if not text or text.startswith("#"):
        return None
    match = _LINE.fullmatch(text)
    # Python knows more blanks and line ends than OpenSSH.
    if not match or not text.replace("\t", " ").isprintable():
        raise UsageError(f"{place}: {text!r} is not a setting", "correct it, or install OpenSSH's client")
    line = _Line(match[1].lower(), match[2], place)
    if line.keyword == "pubkeyacceptedkeytypes":
        line = line._replace(keyword="pubkeyacceptedalgorithms")
    if line.keyword in ("host", "match", "include"):
        return line if not re.search(r"[\"'\\#$]", line.value) else _refuse(line, "quotes, comments or variables")
    canonical = line.keyword == "canonicalizehostname" and line.value.lower() not in ("no", "false")
    known = (HONOURED | NO_MATTER) - {"ignoreunknown"}
    if canonical or line.keyword not in known or line.keyword == "stricthostkeychecking":
        return None if line.keyword == "stricthostkeychecking" else _refuse(line, line.keyword)
    if line.keyword in _WHOLE_LINE:
        return line
    value = line.value[1:-1] if re.fullmatch(r'"[^"]*"', line.value) else line.value
    if re.search(r"[\"'\\#]", value):
        _refuse(line, "quotes, backslashes or comments")
    return line._replace(value=_value(line, value))


def _value(line: _Line, value: str) -> str:
    """In the words `ssh -G` would use."""
    if line.keyword in _YES_NO:
        value = {"true": "yes", "false": "no"}.get(value.lower(), value.lower())
        return value if value in ("yes", "no") else _refuse(line, value)
    if line.keyword in ("addressfamily", "pubkeyauthentication", "hostkeyalias"):
        return value.lower()
    if line.keyword in _NUMBERS and value.lower() != "none" and not value.isdecimal():
        _refuse(line, value)
    if line.keyword == "port" and not 0 < int(value) < 65536:
        _refuse(line, value)
    return value


def _holds(line: _Line, name: str, settings: dict[str, list[str]]) -> bool:
    """Whether a section is about this host, as far as the lines before it say who that is."""
    words = line.value.split()
    if line.keyword == "host":
        return _any(line, words, name)
    if [word.lower() for word in words] == ["all"]:
        return True
    now = {
        "host": tokens.expand(settings.get("hostname", [name])[0], {"%": "%", "h": name}),
        "originalhost": name,
        "user": settings.get("user", [_me()])[0],
        "localuser": _me(),
    }
    if len(words) % 2 or any(word.lower() not in _MATCHES for word in words[::2]):
        _refuse(line, f"Match {line.value}")
    pairs = zip(words[::2], words[1::2], strict=True)
    # Each is looked at, so that one we cannot read is refused wherever it stands.
    results = [_any(line, patterns.split(","), now[kind.lower()]) for kind, patterns in pairs]
    return all(results)


def _any(line: _Line, patterns: list[str], name: str) -> bool:
    if not all(_PATTERN.fullmatch(pattern) for pattern in patterns):
        _refuse(line, " ".join(patterns))
    if any(pattern.startswith("!") and fnmatchcase(name, pattern[1:]) for pattern in patterns):
        return False
    return any(fnmatchcase(name, pattern) for pattern in patterns if not pattern.startswith("!"))


def _list(wanted: str, usual: str) -> str:
    """A list of algorithms, with what its first character does to the usual ones."""
    names = usual.split(",")
    changes = wanted[1:].split(",")
    if wanted.startswith("+"):
        names += [name for name in changes if name not in names]
    elif wanted.startswith("^"):
        names = [*changes, *(name for name in names if name not in changes)]
    elif wanted.startswith("-"):
        names = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in changes)]
    else:
        return wanted
    return ",".join(names)


def _me() -> str:
    return tokens.of_path({"n": ""}, None)["u"]


def _refuse(line: _Line, what: str) -> NoReturn:
    raise UsageError(
        f"{line.place}: {what}: only OpenSSH's client can evaluate this, and it is not installed",
        "install it (the package openssh-client), or name simpler settings: MUSTER_SSH_CONFIG=FILE",
    )
