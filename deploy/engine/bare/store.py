"""What this engine stores: containers, images and volumes below ~/.muster/bare, temporary files in /tmp/muster-ID."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

# Importing pathlib and typing, and compiling patterns ahead, would be a third of each start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any as Any
else:
    Any = object

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}"
RUNS = ("running", "restarting")


class Refused(Exception):
    """An error in an engine's words. `status`: the HTTP status of the API's answer."""

    def __init__(self, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.status = status


def root() -> str:
    """The engine's folder for this host: several hosts may share a home."""
    folder = os.path.expanduser(f"~/.muster/bare/{os.uname().nodename}")
    if not os.path.isdir(f"{folder}/volumes"):
        os.umask(0o077)
        for part in ("containers", "images", "volumes"):
            os.makedirs(f"{folder}/{part}", exist_ok=True)
    return folder


def bytecode() -> str:
    """Where containers put compiled modules, so that folders that were sent stay unchanged."""
    return f"{root()}/volumes/muster-bytecode"


def _paths(kind: str) -> list[str]:
    """The paths of the stored things of a kind. A name with a dot in front is not complete yet, or is being removed."""
    folder = f"{root()}/{kind}"
    return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if not name.startswith(".")]


def python_version() -> str:
    """The version of this Python."""
    return sys.version.split()[0]


def about_engine() -> dict[str, Any]:
    """What the engine reports about itself. Its version has the name of its folder: a digest of its content."""
    seen = os.uname()
    version = f"bare-{os.path.basename(sys.path[0])}-{python_version()}"
    return {
        "ServerVersion": version,
        "Server": {"Version": version},
        "Architecture": seen.machine,
        "OSType": "linux",
        "DriverStatus": [],
        "DockerRootDir": root(),
        "SecurityOptions": ["name=bare"],
    }


def now() -> str:
    """The time as engines write it: later times also compare as greater text."""
    return written(time.time())


def written(seconds: float) -> str:
    """Seconds since 1970 as engines write a time."""
    micros = int(seconds * 10**6)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(micros // 10**6))}.{micros % 10**6:06d}000Z"


def read(path: str) -> Any:
    """Read a JSON file; None if it does not exist, or was cut by a full disk."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def write(path: str, value: Any) -> None:
    """Write a JSON file, replacing it as a whole."""
    folder, name = os.path.split(path)
    part = f"{folder}/.{name}.{os.getpid()}"
    with open(part, "w") as file:
        file.write(json.dumps(value))
    os.replace(part, path)


def pairs(lines: Iterable[str]) -> dict[str, str]:
    """The values of lines `name=value`, by name."""
    return dict(line.partition("=")[::2] for line in lines)


class Container:
    """One container. Its folder has `config.json`, `state.json`, the log, and a lock that its keeper holds."""

    def __init__(self, folder: str) -> None:
        self.folder, self.id = folder, os.path.basename(folder)
        self.config: dict[str, Any] = read(f"{folder}/config.json") or {}
        self.name = str(self.config.get("Name", ""))
        self.scratch = f"/tmp/muster-{self.id[:12]}"
        # This file exists until somebody stops the container.
        self.wanted = f"{folder}/wanted"

    @property
    def state(self) -> dict[str, Any]:
        """The current state. A container whose keeper was killed counts as ended: what is left of it is killed here."""
        seen = self.noted()
        if seen["Status"] in RUNS and not self.is_kept():
            # The container may have ended between these two looks.
            seen = self.noted()
            if seen["Status"] in RUNS:
                from . import processes

                processes.sweep(self)
                seen = ended(seen, 137)
                self.keep(seen)
        return seen

    def noted(self) -> dict[str, Any]:
        """The state that was stored last."""
        return dict(read(f"{self.folder}/state.json") or {"Status": "created"})

    def keep(self, state: dict[str, Any]) -> None:
        """Store the state; do nothing if the container's folder was removed meanwhile."""
        path = f"{self.folder}/state.json"
        with suppress(OSError):
            try:
                write(path, state)
            except OSError:
                # On a full disk there is still room in the old file.
                with open(path, "rb+", buffering=0) as file:
                    file.write(json.dumps(state).ljust(os.path.getsize(path)).encode())

    def hold(self) -> int:
        """Take the container's lock until this process and its forks end. Raises BlockingIOError if another has it."""
        descriptor = os.open(f"{self.folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def is_kept(self) -> bool:
        """Whether a keeper looks after the container's processes."""
        try:
            os.close(self.hold())
        except OSError as held:
            return isinstance(held, BlockingIOError)
        return False

    def require_running(self) -> None:
        """Raise Refused unless the container runs."""
        if self.state["Status"] != "running":
            raise Refused(f"container {self.id} is not running", 409)

    def about(self) -> dict[str, Any]:
        """The container in the form of Docker's API."""
        state, config = self.state, self.config
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Created": config["Created"],
            "Image": config["ImageId"],
            "State": {
                "Running": state["Status"] in RUNS,
                "ExitCode": state.get("ExitCode", 0),
                **{name: state.get(name, "") for name in ("Status", "StartedAt", "FinishedAt")},
            },
            "RestartCount": state.get("Restarts", 0),
            "Config": {**config, "Hostname": os.uname().nodename},
            "Mounts": [{**mount, "Destination": mount["Target"]} for mount in config["Mounts"]],
            "HostConfig": {"DeviceRequests": config["Devices"] or None},
        }

    def row(self) -> dict[str, Any]:
        """The container in a list of Docker's API. It reads no file that a removal may take away meanwhile."""
        from datetime import datetime

        about = self.about()
        status, labels = about["State"]["Status"], self.config["Labels"]
        words = {"running": "Up"}.get(status, f"{status.capitalize()} ({about['State']['ExitCode']})")
        made = int(datetime.fromisoformat(self.config["Created"]).timestamp())
        return {**about, "Names": [self.name], "State": status, "Status": words, "Labels": labels, "Created": made}


def ended(state: dict[str, Any], code: int) -> dict[str, Any]:
    """The state after the container ended with this code."""
    return {**state, "Status": "exited", "ExitCode": code, "FinishedAt": now(), "Pid": 0}


def containers() -> list[Container]:
    """All containers on this host, the newest first. AutoRemove containers that were left behind are removed now."""
    made = [Container(folder) for folder in _paths("containers")]
    # A container with AutoRemove is started within a minute after it is created.
    ends = {"exited": now(), "created": written(time.time() - 60)}
    stay = []
    for each in made:
        if each.config.get("AutoRemove") and each.config["Created"] < ends.get(each.state["Status"], ""):
            remove(each)
        elif each.config:
            stay.append(each)
    return sorted(stay, key=lambda each: each.config["Created"], reverse=True)


def is_labelled(labels: dict[str, str], wanted: list[str]) -> bool:
    """Whether all wanted labels (`name` or `name=value`) are among the labels."""
    return {*labels, *map("=".join, labels.items())}.issuperset(wanted)


def matching(filters: list[list[str]]) -> list[Container]:
    """The containers with all labels in these filters, the name or id in them, and one of the states in them.

    A filter for anything else, such as a published port, matches no container.
    """
    labels, states = ([text for key, text in filters if key == kind] for kind in ("label", "status"))
    others = {text for key, text in filters if key not in ("label", "status")}
    return [
        each
        for each in containers()
        if is_labelled(each.config["Labels"], labels)
        and others <= {each.name, each.id}
        and (not states or each.state["Status"] in states)
    ]


def find(name: str) -> Container:
    """The container with this name or id; the beginning of the id is enough. Raises Refused."""
    for each in containers():
        if name and (name == each.name or each.id.startswith(name)):
            return each
    raise Refused(f"No such container: {name}", 404)


def add(config: dict[str, Any]) -> Container:
    """Create a container. Raises Refused if the name is taken."""
    name = config["Name"]
    place, id = f"{root()}/containers", os.urandom(32).hex()
    with open(f"{place}/.adding", "w") as adding:
        fcntl.flock(adding, fcntl.LOCK_EX)
        if any(each.name == name for each in containers()):
            raise Refused(f'Conflict. The container name "/{name}" is already in use', 409)
        part = f"{place}/.{id}"
        os.mkdir(part, 0o700)
        write(f"{part}/config.json", {**config, "Created": now()})
        os.rename(part, f"{place}/{id}")
    return Container(f"{place}/{id}")


def remove(container: Container) -> None:
    """Remove the files of a container that does not run."""
    import shutil

    shutil.rmtree(container.scratch, ignore_errors=True)
    shutil.rmtree(container.folder, ignore_errors=True)


def images() -> list[dict[str, Any]]:
    """All images, one for each name. An image whose environment was removed is left out."""
    return [about for path in _paths("images") if (about := read(path)) and os.path.isdir(about["Base"])]


def image(name: str) -> dict[str, Any]:
    """The image with this name or id. Raises Refused."""
    for about in images():
        if name in (about["Id"], *about["RepoTags"]):
            return about
    raise Refused(f"No such image: {name}", 404)


def add_image(name: str, content: str, base: str, variables: list[str]) -> None:
    """Store an image under its name: `base` is the folder of its Python. Equal `content` means an equal environment."""
    import hashlib

    layer, id = (f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" for text in (content, f"{name} {content}"))
    machine = os.uname().machine
    about = {
        "Id": id,
        "RepoTags": [name],
        "RootFS": {"Layers": [layer]},
        "Os": "linux",
        "Architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
        # By these labels Muster knows an image of its own (send/image/model.py).
        "Config": {"Env": variables, "Labels": {"muster.image": layer, "muster.top": layer}},
        "Base": base,
    }
    write(f"{root()}/images/{name.replace('/', '=')}.json", about)


def volume(name: str, labels: dict[str, str] | None = None) -> str:
    """The folder of a volume, which is created if it does not exist. Raises Refused for an invalid name."""
    if not re.fullmatch(NAME, name):
        raise Refused(f"{name!r} includes invalid characters for a local volume name")
    place = f"{root()}/volumes/{name}"
    os.makedirs(f"{place}/data", exist_ok=True)
    if not os.path.exists(f"{place}/volume.json"):
        write(f"{place}/volume.json", {"Name": name, "Labels": labels or {}, "CreatedAt": now()})
    return f"{place}/data"


def volumes() -> list[dict[str, Any]]:
    """All volumes."""
    return [about for place in _paths("volumes") if (about := read(f"{place}/volume.json"))]


def has_volume(name: str) -> bool:
    """Whether a container uses the volume."""
    at = f"{root()}/volumes/{name}/data"
    return any(mount["Source"] == at for each in containers() for mount in each.config["Mounts"])


def drop_volume(name: str, force: bool = False) -> None:
    """Remove a volume. Raises Refused if a container uses it, or (without `force`) if it does not exist."""
    folder = f"{root()}/volumes"
    if not re.fullmatch(NAME, name) or not os.path.isdir(f"{folder}/{name}"):
        if force:
            return
        raise Refused(f"get {name}: no such volume", 404)
    if has_volume(name):
        raise Refused(f"remove {name}: volume is in use", 409)
    import shutil

    os.rename(f"{folder}/{name}", f"{folder}/.{name}.{os.getpid()}")
    # Also remove what an earlier removal left because it was killed.
    for aside in os.listdir(folder):
        if aside.startswith("."):
            shutil.rmtree(f"{folder}/{aside}", ignore_errors=True)
