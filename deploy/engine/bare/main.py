"""The commands that Muster gives to a host's engine, as `docker` takes them and answers."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import signal
import sys
import tarfile
import time
from contextlib import suppress
from typing import Any

from . import api, asked, keeper, processes, store
from .store import Container, Refused
from .template import filled

# It lies in a folder that has the digest of its content for a name.
VERSION = f"bare-{os.path.basename(sys.path[0])}"


def main() -> int:
    """Do one command; its exit code."""
    words = sys.argv[1:]
    name = words[0] if words else ""
    two = " ".join(words[:2])
    try:
        for command, rest in ((two, words[2:]), (name, words[1:])):
            if command in _COMMANDS:
                return _COMMANDS[command](rest) or 0
        raise Refused(f"docker: '{name}' is not a command here: this host has no container engine")
    except Refused as refused:
        print(f"Error response from daemon: {refused}", file=sys.stderr)
        return 125 if name in ("run", "create") else 1
    except BrokenPipeError:
        os._exit(1)


def _say(value: dict[str, Any], options: dict[str, list[str]]) -> None:
    print(filled(options["format"][0], value) if "format" in options else json.dumps([value]), flush=True)


def about_engine() -> dict[str, Any]:
    """What `docker info` and `docker version` say."""
    seen = os.uname()
    return {
        "ServerVersion": VERSION,
        "Architecture": seen.machine,
        "OSType": "linux",
        "DriverStatus": [],
        "DockerRootDir": str(store.root()),
        "SecurityOptions": ["name=bare"],
        "Server": {"Version": VERSION},
    }


def _info(words: list[str]) -> None:
    _say(about_engine(), asked.split(words, ["format"])[0])


def _ps(words: list[str]) -> None:
    options, _ = asked.split(words, ["format", "filter"])
    filters = [each.split("=", 1) for each in options.get("filter", [])]
    for container in matching(filters):
        state = container.state
        if "all" not in options and not any(key == "status" for key, _ in filters) and state["Status"] not in store.RUNS:
            continue
        id = container.id if "no-trunc" in options else container.id[:12]
        row = {"ID": id, "Names": container.name, "Image": container.config["Image"], "Status": status_words(state)}
        row["Labels"] = container.config["Labels"]
        print(filled(options["format"][0], row) if "format" in options else id)


def matching(filters: list[list[str]]) -> list[Container]:
    """The containers that have all labels of these filters, and one of their states."""
    wanted = [text.partition("=") for key, text in filters if key == "label"]
    states = [text for key, text in filters if key == "status"]
    others = [(key, text) for key, text in filters if key not in ("label", "status")]

    def fits(each: Container) -> bool:
        labels = each.config["Labels"]
        labelled = all(name in labels and (not equals or labels[name] == value) for name, equals, value in wanted)
        named = all(key in ("name", "id") and text in (each.name, each.id) for key, text in others)
        return labelled and named and (not states or each.state["Status"] in states)

    return [each for each in store.containers() if fits(each)]


def status_words(state: dict[str, Any]) -> str:
    """A state as `docker ps` says it."""
    words = {"created": "Created", "running": f"Up since {state.get('StartedAt', '')[11:19]}"}
    code = state.get("ExitCode", 0)
    ends = {"exited": f"Exited ({code}) at {state.get('FinishedAt', '')[11:19]}", "restarting": f"Restarting ({code})"}
    return {**words, **ends}.get(state["Status"], state["Status"])


def _inspect(words: list[str]) -> int:
    options, names = asked.split(words, ["format"])
    code = 0
    for name in names:
        try:
            _say(store.find(name).about(), options)
        except Refused:
            print(f"Error: No such object: {name}", file=sys.stderr)
            code = 1
    return code


def _create(words: list[str]) -> None:
    print(store.add(asked.container(words)[0]).id, flush=True)


def _run(words: list[str]) -> int:
    config, options = asked.container(words)
    if "detach" not in options and "d" not in options:
        container = store.add(config)
        return keeper.run_here(container, "interactive" in options or "i" in options)
    container = store.add(config)
    print(container.id, flush=True)
    try:
        keeper.start(container)
    except Refused:
        store.remove(container)
        raise
    return 0


def _start(words: list[str]) -> None:
    for name in asked.split(words, [])[1]:
        keeper.start(store.find(name))
        print(name)


def _exec(words: list[str]) -> int:
    options, rest = asked.split(words, ["workdir", "w", "env", "e", "user", "u"])
    interactive = "interactive" in options or "i" in options
    return keeper.run_inside(store.find(rest[0]), rest[1:], interactive)


def _logs(words: list[str]) -> None:
    options, names = asked.split(words, ["since", "tail"])
    lines: list[tuple[str, bytes, bytes]] = []
    tail = options.get("tail", ["all"])[0]
    times, out = "timestamps" in options, sys.stdout.buffer

    def take(at: str, _: int, text: bytes, end: bytes) -> None:
        if tail == "all":
            out.write((f"{at} ".encode() if times else b"") + text + (end or b"\n" * times))
        else:
            lines.append((at, text, end))

    keeper.read_log(store.find(names[0]), "follow" in options, options.get("since", [""])[0], take)
    for at, text, end in lines[-int(tail) :] if tail != "all" else ():
        out.write((f"{at} ".encode() if times else b"") + text + end)
    out.flush()


def _events(words: list[str]) -> None:
    """The ends of one container between two times: all that Muster asks for."""
    options, _ = asked.split(words, ["since", "until", "filter", "format"])
    named = dict(each.split("=", 1) for each in options.get("filter", []))
    container = store.find(named.get("container", ""))
    for at, code in (store.read(container.folder / "state.json") or {}).get("Ends", []):
        if options["since"][0] <= at <= options["until"][0]:
            print(filled(options["format"][0], {"Actor": {"Attributes": {"exitCode": str(code)}}}))


def _rm(words: list[str]) -> int:
    options, names = asked.split(words, [])
    code = 0
    for name in names:
        try:
            end(store.find(name), "force" in options or "f" in options)
            print(name)
        except Refused as refused:
            print(f"Error response from daemon: {refused}", file=sys.stderr)
            code = 1
    return code


def end(container: Container, force: bool) -> None:
    """Remove a container. Raises Refused if it runs, and nobody forces its end."""
    if container.state["Status"] in store.RUNS:
        if not force:
            raise Refused(f"cannot remove container {container.id}: it is running: stop it, or force its removal", 409)
        with suppress(Refused):
            processes.send(container.id, signal.SIGKILL)
        limit = time.monotonic() + 10
        while container.folder.exists() and container.is_kept() and time.monotonic() < limit:
            time.sleep(0.01)
        processes.sweep(container)
    store.remove(container)


def _image_inspect(words: list[str]) -> int:
    options, names = asked.split(words, ["format"])
    code = 0
    for name in names:
        try:
            _say(store.image(name), options)
        except Refused:
            print(f"Error response from daemon: No such image: {name}", file=sys.stderr)
            code = 1
    return code


def _image_ls(words: list[str]) -> None:
    for id in sorted({about["Id"] for about in store.images()}):
        print(id)


def _image_rm(words: list[str]) -> None:
    for name in asked.split(words, [])[1]:
        store.drop_image(name)


def _image_add(words: list[str]) -> None:
    """`image add NAME LAYER VOLUME`: an image whose Python is that of an environment in a volume; '': the host's own."""
    name, layer, volume = words
    base = str(store.root() / "volumes" / volume / "data") if volume else _plain_python()
    layer = layer or "sha256:" + hashlib.sha256(f"{sys.version} {platform.libc_ver()}".encode()).hexdigest()
    path = f"{processes.BASE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    about = {"Config": {"Env": [f"PATH={path}", "PYTHONUNBUFFERED=1"]}, "Layers": [layer], "Base": base}
    _keep_image(name, about, "2026-01-01T00:00:00Z")


def _keep_image(name: str, about: dict[str, Any], created: str) -> None:
    machines = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = os.uname().machine
    id = hashlib.sha256(json.dumps([name, about], sort_keys=True).encode()).hexdigest()
    known = {"Id": f"sha256:{id}", "RepoTags": [name], "Created": created, "Size": 0, "Os": "linux"}
    layers = {"Type": "layers", "Layers": about["Layers"]}
    named = {"Architecture": machines.get(machine, machine), "RootFS": layers, "Base": about["Base"]}
    store.keep_image({**known, **named, "Config": about["Config"]})


def _plain_python() -> str:
    """An environment with this Python and no packages: what a host has beside it is no part of a run."""
    place = store.volume(f"muster-python-{platform.python_version()}")
    (place / "bin").mkdir(exist_ok=True)
    program = os.path.realpath(sys.executable)
    for name in ("python", "python3"):
        with suppress(FileExistsError):
            (place / "bin" / name).symlink_to(program)
    text = f"home = {os.path.dirname(program)}\ninclude-system-site-packages = false\n"
    (place / "pyvenv.cfg").write_text(f"{text}version = {platform.python_version()}\n")
    version = "python%d.%d" % sys.version_info[:2]
    (place / "lib" / version / "site-packages").mkdir(parents=True, exist_ok=True)
    return str(place)


def _load(words: list[str]) -> None:
    """An archive with the settings of an image whose layers are here already."""
    entries: dict[str, bytes] = {}
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|*") as archive:
        for entry in archive:
            if entry.isreg() and entry.size < 1 << 20 and (file := archive.extractfile(entry)):
                entries[entry.name] = file.read()
    (about,) = json.loads(entries["manifest.json"])
    config = json.loads(entries[about["Config"]])
    layers = config["rootfs"]["diff_ids"]
    known = [image for image in store.images() if image["RootFS"]["Layers"] == layers]
    if not known:
        raise Refused("no container engine is on this host: it takes no layers of an image")
    image = {"Config": config["config"], "Layers": layers, "Base": known[0]["Base"]}
    _keep_image(about["RepoTags"][0], image, config.get("created", ""))


def _volume_create(words: list[str]) -> None:
    options, names = asked.split(words, ["label"])
    for name in names:
        store.volume(name, dict(each.partition("=")[::2] for each in options.get("label", [])))
        print(name)


def _volume_ls(words: list[str]) -> None:
    options, _ = asked.split(words, ["filter"])
    wanted = [each.removeprefix("label=").partition("=") for each in options.get("filter", [])]
    for about in store.volumes():
        labels = about["Labels"]
        if all(name in labels and (not equals or labels[name] == value) for name, equals, value in wanted):
            print(about["Name"])


def _volume_inspect(words: list[str]) -> None:
    options, names = asked.split(words, ["format"])
    for about in store.volumes():
        if about["Name"] in names:
            _say(about, options)


def _volume_rm(words: list[str]) -> int:
    options, names = asked.split(words, [])
    code = 0
    for name in names:
        try:
            store.drop_volume(name)
        except Refused as refused:
            if refused.status != 404 or not {"force", "f"} & options.keys():
                print(f"Error response from daemon: {refused}", file=sys.stderr)
                code = 1
    return code


def _pull(words: list[str]) -> None:
    raise Refused("this host has no container engine: it takes no image of a registry")


def _keep(words: list[str]) -> None:
    keeper.guard(store.find(words[0]), int(words[1]))


def _dial(_: list[str]) -> None:
    api.serve()


_COMMANDS = {
    "info": _info,
    "version": _info,
    "ps": _ps,
    "inspect": _inspect,
    "create": _create,
    "run": _run,
    "start": _start,
    "exec": _exec,
    "logs": _logs,
    "events": _events,
    "rm": _rm,
    "pull": _pull,
    "load": _load,
    "image inspect": _image_inspect,
    "image ls": _image_ls,
    "image rm": _image_rm,
    "image add": _image_add,
    "volume create": _volume_create,
    "volume ls": _volume_ls,
    "volume inspect": _volume_inspect,
    "volume rm": _volume_rm,
    "keep": _keep,
    "system dial-stdio": _dial,
}
