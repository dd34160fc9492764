"""Parse options, the words of `docker run` and `docker create` into a container's configuration, and times."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

from . import store
from .processes import BASE
from .store import Any, Refused, pairs

# Options without a value, and options with one. Limits of memory and processes, and rights, are accepted but not
# enforced, unlike in a real engine; `--ulimit` is applied.
_FLAGS = "all detach follow force init interactive no-healthcheck no-trunc quiet read-only rm timestamps volumes"
_VALUES = (
    "name label env env-file entrypoint workdir mount volume gpus device memory network user ulimit shm-size "
    "pids-limit security-opt cap-add cap-drop restart pull stop-timeout log-driver log-opt "
    "filter format since tail until"
)
# A time as `store.now` writes it, with nanoseconds.
_TIME = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3])(:[0-5]\d){2}\.\d{9}Z"
Options = dict[str, list[str]]
_AGO, _SECONDS = r"(?:\d+(?:\.\d+)?[hms])+", {"h": 3600, "m": 60, "s": 1}


def split(words: Sequence[str]) -> tuple[Options, list[str]]:
    """Options by name, and the words after them. Raises Refused for an option that no command has."""
    options, rest = Options(), [*words]
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        # A letter sets every flag that begins with it: no command uses two flags with the same letter.
        names = [flag for flag in _FLAGS.split() if flag == name or word == f"-{flag[0]}"]
        if name in _VALUES.split() and (equals or rest):
            names, value = [name], value if equals else rest.pop(0)
        if not names:
            raise Refused(f"unknown flag, or one without its value: {word}")
        for name in names:
            options.setdefault(name, []).append(value)
    return options, rest


def moment(text: str) -> str:
    """Read a time, a duration before now (1h30m), or seconds since 1970; returns it as `store.now` does.

    Raises Refused.
    """
    if not text or re.fullmatch(_TIME, text):
        return text
    from datetime import datetime

    try:
        if re.fullmatch(_AGO, text):
            ago = sum(float(part[:-1]) * _SECONDS[part[-1]] for part in re.findall(r"[\d.]+[hms]", text))
            return store.written(time.time() - ago)
        if re.fullmatch(r"\d{1,10}(?:\.\d{1,9})?", text):
            return store.written(float(text))
        return store.written(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):  # not a time, or a time that no clock can show
        raise Refused(f'invalid value for "since": failed to parse value as time or duration: "{text}"') from None


def container(options: Options, rest: Sequence[str]) -> dict[str, Any]:
    """Make a container's configuration from options and words. Raises Refused."""
    if not rest:
        raise Refused("docker run requires at least 1 argument")
    image, given = store.image(rest[0]), {name: values[0] for name, values in options.items()}
    settings = image["Config"]
    name = given.get("name", f"muster-{os.urandom(6).hex()}")
    if not re.fullmatch(store.NAME, name):
        raise Refused(f"Invalid container name ({name})")
    return {
        "Name": name,
        "Labels": {**settings.get("Labels", {}), **pairs(options.get("label", []))},
        "Image": rest[0],
        "ImageId": image["Id"],
        "Entrypoint": options.get("entrypoint", []),
        "Cmd": [*rest[1:]],
        "Env": [*settings["Env"], *_variables(options)],
        "WorkingDir": given.get("workdir", "/"),
        "Mounts": [*_mounts(options), {"Type": "bind", "Source": image["Base"], "Target": BASE}],
        "Limits": [each.partition(":")[0].split("=") for each in options.get("ulimit", [])],
        "Devices": _devices(given.get("gpus", "")),
        # The number of restarts in on-failure:NUMBER.
        "Restarts": int(given.get("restart", "").partition(":")[2] or 0),
        "AutoRemove": "rm" in options,
    }


def _variables(options: Options) -> list[str]:
    """The variables of the command, as lines, and those of its env files."""
    lines = list(options.get("env", []))
    for path in options.get("env-file", []):
        with open(path, newline="\n") as file:
            lines += [line for line in file.read().split("\n") if "=" in line and not line.startswith("#")]
    return lines


def _mounts(options: Options) -> list[dict[str, str]]:
    """The mounts. Raises Refused for a folder that does not exist."""
    import csv

    mounts = []
    for text in options.get("volume", []):
        source, target = text.split(":")[:2]
        mounts.append({"Type": "bind", "Source": source, "Target": target})
    for text in options.get("mount", []):
        fields = pairs(next(csv.reader([text])))
        kind, source, target = fields["type"], fields.get("source", ""), fields["target"]
        if kind == "volume" and source:
            mounts.append({"Type": kind, "Name": source, "Source": store.volume(source), "Target": target})
        elif kind == "bind":
            mounts.append({"Type": kind, "Source": source, "Target": target})
    for mount in mounts:
        if mount["Type"] == "bind" and not os.path.exists(mount["Source"]):
            raise Refused(f'invalid mount config for type "bind": bind source path does not exist: {mount["Source"]}')
    return mounts


def _devices(gpus: str) -> list[dict[str, Any]]:
    """The GPUs that a container sees, in the form of Docker's API."""
    if gpus in ("", "all"):
        return [{"Count": -1, "DeviceIDs": None}] if gpus else []
    return [{"Count": 0, "DeviceIDs": gpus.strip('"').removeprefix("device=").split(",")}]
