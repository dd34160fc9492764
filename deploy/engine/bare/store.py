"""What this engine keeps: containers, images, volumes below ~/.muster/bare, scratch in /tmp/muster-ID."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

# pathlib, typing and what is compiled ahead would be a third of each start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any as Any
else:
    Any = object

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}"
RUNS = ("running", "restarting")


class Refused(Exception):
    """What cannot be done, in the words of an engine. `status`: of its API."""

    def __init__(self, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.status = status


def root() -> str:
    """The folder of this host: several may share a home."""
    folder = os.path.expanduser(f"~/.muster/bare/{os.uname().nodename}")
    if not os.path.isdir(f"{folder}/commands"):
        os.umask(0o077)
        for part in ("containers", "images", "volumes", "commands"):
            os.makedirs(f"{folder}/{part}", exist_ok=True)
    return folder


def bytecode() -> str:
    """Where containers have what modules are compiled to: what was sent stays as it was sent."""
    return f"{root()}/volumes/muster-bytecode"


def _paths(kind: str) -> list[str]:
    """The paths of what is kept of a kind: what begins with a dot is not whole yet, or goes."""
    folder = f"{root()}/{kind}"
    return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if not name.startswith(".")]


def python_version() -> str:
    """The version of this Python."""
    return sys.version.split()[0]


def about_engine() -> dict[str, Any]:
    """What it says of itself. It lies in a folder that has the digest of its content for a name."""
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


def now(ago_s: float = 0) -> str:
    """The time as engines write it: of two such texts the later one is the greater one."""
    return written(time.time_ns() - int(ago_s * 10**9))


def written(moment: int) -> str:
    """Nanoseconds since 1970 as such a text."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(moment // 10**9))}.{moment % 10**9:09d}Z"


def read(path: str) -> Any:
    """A document; None if there is none, or a full disk has cut it."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def write(path: str, value: Any) -> None:
    """Put a document in its place."""
    folder, name = os.path.split(path)
    part = f"{folder}/.{name}.{os.getpid()}"
    with open(part, "w") as file:
        file.write(json.dumps(value))
    os.replace(part, path)


def pairs(lines: Iterable[str]) -> dict[str, str]:
    """The values of lines `name=value`, by name."""
    return dict(line.partition("=")[::2] for line in lines)


class Container:
    """One container: its folder has `config.json`, `state.json`, its log, and a lock that its keeper holds."""

    def __init__(self, folder: str) -> None:
        self.folder, self.id = folder, os.path.basename(folder)
        self.config: dict[str, Any] = read(f"{folder}/config.json") or {}
        self.name = str(self.config.get("Name", ""))
        self.scratch = f"/tmp/muster-{self.id[:12]}"
        # A file as long as nobody has stopped it.
        self.wanted = f"{folder}/wanted"

    @property
    def state(self) -> dict[str, Any]:
        """How it is now. A container whose keeper was killed has ended with it."""
        seen = self.noted()
        if seen["Status"] in RUNS and not self.is_kept():
            # It may have ended between these two looks.
            seen = self.noted()
            if seen["Status"] in RUNS:
                from . import processes

                processes.sweep(self)
                seen = ended(seen, 137)
                self.keep(seen)
        return seen

    def noted(self) -> dict[str, Any]:
        """Its state as it was last written down."""
        return dict(read(f"{self.folder}/state.json") or {"Status": "created"})

    def keep(self, state: dict[str, Any]) -> None:
        """Write its state down. A folder that was removed meanwhile has none."""
        path = f"{self.folder}/state.json"
        with suppress(OSError):
            try:
                write(path, state)
            except OSError:
                # A full disk has room where the state before is.
                with open(path, "rb+", buffering=0) as file:
                    file.write(json.dumps(state).ljust(os.path.getsize(path)).encode())

    def hold(self) -> int:
        """Take its lock, which ends with this process and its copies. Raises BlockingIOError if another one has it."""
        descriptor = os.open(f"{self.folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def is_kept(self) -> bool:
        """Whether somebody looks after its processes."""
        try:
            os.close(self.hold())
        except OSError as held:
            return isinstance(held, BlockingIOError)
        return False

    def require_running(self) -> None:
        """Raise Refused unless it runs."""
        if self.state["Status"] != "running":
            raise Refused(f"container {self.id} is not running", 409)

    def about(self) -> dict[str, Any]:
        """It as an engine describes it."""
        state, config = self.state, self.config
        given = {name: config[name] for name in ("Labels", "Env", "Image", "Cmd", "Entrypoint", "WorkingDir", "User")}
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
            "Config": {**given, "Hostname": os.uname().nodename},
            "Mounts": [{**mount, "Destination": mount["Target"]} for mount in config["Mounts"]],
            "HostConfig": {"DeviceRequests": config["Devices"] or None},
        }


def ended(state: dict[str, Any], code: int) -> dict[str, Any]:
    """A state as it is after an end with that code."""
    at = now()
    ends = [*state.get("Ends", [])[-20:], [at, code]]
    return {**state, "Status": "exited", "ExitCode": code, "FinishedAt": at, "Pid": 0, "Ends": ends}


def containers() -> list[Container]:
    """All containers of this host, the newest first. Those that nobody was left to start or to remove go now."""
    made = [Container(folder) for folder in _paths("containers")]
    # Who makes one that goes with its end starts it within a minute.
    ends = {"exited": now(), "created": now(60)}
    stay = []
    for each in made:
        if each.config.get("AutoRemove") and each.config["Created"] < ends.get(each.state["Status"], ""):
            remove(each)
        elif each.config:
            stay.append(each)
    return sorted(stay, key=lambda each: each.config["Created"], reverse=True)


def is_labelled(labels: dict[str, str], wanted: list[str]) -> bool:
    """Whether these are among the labels: `name` or `name=value`."""
    return {*labels, *map("=".join, labels.items())}.issuperset(wanted)


def matching(filters: list[list[str]]) -> list[Container]:
    """The containers that have all labels of these filters, their name or id, and one of their states.

    None has what else there are filters for: a port that it publishes.
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


def status_words(state: dict[str, Any]) -> str:
    """A state as `docker ps` says it."""
    code, since = state.get("ExitCode", 0), state.get("StartedAt", "")[11:19]
    words = {"created": "Created", "running": f"Up since {since}", "restarting": f"Restarting ({code})"}
    return words.get(state["Status"], f"Exited ({code}) at {state.get('FinishedAt', '')[11:19]}")


def command(id: str) -> str:
    """The file of a command in a container."""
    return f"{root()}/commands/{id}.json"


def forget_commands() -> None:
    """Remove what commands of the last hour, or before, have left."""
    for old in _paths("commands"):
        with suppress(OSError):
            if time.time() - os.path.getmtime(old) > 3600:
                os.unlink(old)


def find(name: str) -> Container:
    """The container of that name or id, of which the beginning will do. Raises Refused."""
    named = [each for each in containers() if name and (name == each.name or each.id.startswith(name))]
    if not named:
        raise Refused(f"No such container: {name}", 404)
    return named[0]


def add(config: dict[str, Any]) -> Container:
    """A new container. Raises Refused for a name that is taken."""
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
    """Remove what there is of a container that does not run."""
    import shutil

    shutil.rmtree(container.scratch, ignore_errors=True)
    shutil.rmtree(container.folder, ignore_errors=True)


def images() -> list[dict[str, Any]]:
    """All images: of each name one. Where its environment was removed, there is none."""
    return [about for path in _paths("images") if (about := read(path)) and os.path.isdir(about["Base"])]


def image(name: str) -> dict[str, Any]:
    """The image of that name or id. Raises Refused."""
    for about in images():
        if name in (about["Id"], *about["RepoTags"]):
            return about
    raise Refused(f"No such image: {name}", 404)


def keep_image(name: str, settings: dict[str, Any], layers: list[str]) -> None:
    """Keep an image under its name; `settings`: its configuration, and where its Python is."""
    import hashlib

    id = hashlib.sha256(json.dumps([name, settings, layers], sort_keys=True).encode()).hexdigest()
    about = {"Id": f"sha256:{id}", "RepoTags": [name], "RootFS": {"Layers": layers}}
    machine = os.uname().machine
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    write(_place(name), {**about, "Os": "linux", "Architecture": architecture, **settings})


def _place(image: str) -> str:
    return f"{root()}/images/{image.replace('/', '=')}.json"


def drop_image(name: str) -> None:
    """Forget an image. Its environment is a volume, which stays. Raises Refused where a container has it."""
    about = image(name)
    if any(each.config["ImageId"] == about["Id"] for each in containers()):
        raise Refused(f"conflict: unable to remove {name}: a container is using it", 409)
    with suppress(FileNotFoundError):
        os.unlink(_place(about["RepoTags"][0]))


def volume(name: str, labels: dict[str, str] | None = None) -> str:
    """The folder of a volume, which is made where there is none. Raises Refused for a name that is none."""
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
    """Whether a container has the volume."""
    at = f"{root()}/volumes/{name}/data"
    return any(mount["Source"] == at for each in containers() for mount in each.config["Mounts"])


def drop_volume(name: str, force: bool = False) -> None:
    """Remove a volume. Raises Refused if a container has it, and without `force` if there is none."""
    folder = f"{root()}/volumes"
    if not re.fullmatch(NAME, name) or not os.path.isdir(f"{folder}/{name}"):
        if force:
            return
        raise Refused(f"get {name}: no such volume", 404)
    if has_volume(name):
        raise Refused(f"remove {name}: volume is in use", 409)
    import shutil

    os.rename(f"{folder}/{name}", f"{folder}/.{name}.{os.getpid()}")
    # What a removal has left that was killed goes too.
    for aside in os.listdir(folder):
        if aside.startswith("."):
            shutil.rmtree(f"{folder}/{aside}", ignore_errors=True)
