"""The `docker` commands that Muster uses on hosts, with the same options and output as Docker's own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from . import arguments, keeper, processes, store
from .arguments import Options
from .store import Any, Refused
from .template import filled


def main() -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:]
    name = " ".join(words[:2]) if " ".join(words[:2]) in _COMMANDS else "".join(words[:1])
    try:
        if name not in _COMMANDS:
            raise Refused(f"docker: '{name}' is not a command here: this host has no container engine")
        return _COMMANDS[name](*arguments.split(words[len(name.split()) :])) or 0
    except Refused as refused:
        return _refuse(refused, 125 if name in ("run", "create") else 1)
    except BrokenPipeError:
        os._exit(1)


def _refuse(refused: Refused, code: int = 1) -> int:
    print(f"Error response from daemon: {refused}", file=sys.stderr)
    return code


def _say(value: Any, options: Options, plain: str = "") -> None:
    print(filled(options["format"][0], value) if "format" in options else plain or json.dumps([value]), flush=True)


def _each(names: Iterable[str], act: Callable[[str], Any]) -> int:
    """Call `act` for each name; returns 1 if one was refused, else 0."""
    code = 0
    for name in names:
        try:
            act(name)
        except Refused as refused:
            code = _refuse(refused)
    return code


def _ps(options: Options, _: list[str]) -> None:
    filters = [each.split("=", 1) for each in options.get("filter", [])]
    every = "all" in options or any(key == "status" for key, _ in filters)
    for container in store.matching(filters):
        row, id = container.row(), container.id if "no-trunc" in options else container.id[:12]
        if every or row["State"] in store.RUNS:
            _say({**row, "ID": id, "Names": container.name, "Image": container.config["Image"]}, options, id)


def _run(options: Options, words: list[str]) -> int:
    container = store.add(arguments.container(options, words))
    if "detach" not in options:
        return keeper.run_here(container, "interactive" in options)
    print(container.id, flush=True)
    try:
        keeper.start(container)
    except Refused:
        store.remove(container)
        raise
    return 0


def _exec(options: Options, rest: list[str]) -> int:
    container = store.find("".join(rest[:1]))
    container.require_running()
    return keeper.wait_for(processes.spawn(container, rest[1:], "interactive" in options).pid)


def _logs(options: Options, names: list[str]) -> None:
    since, tail = arguments.moment(options.get("since", [""])[0]), options.get("tail", ["all"])[0]
    container = store.find("".join(names))
    for line in keeper.lines(container, "timestamps" in options, tail, since, "follow" in options):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def _events(options: Options, _: list[str]) -> None:
    """Print the last end of one container, if it was between two times: the only event that Muster asks for."""
    state = store.find(store.pairs(options["filter"])["container"]).noted()
    if options["since"][0] <= state.get("FinishedAt", "") <= options["until"][0]:
        print(filled(options["format"][0], {"Actor": {"Attributes": {"exitCode": str(state["ExitCode"])}}}))


def _rm(options: Options, names: list[str]) -> int:
    def remove(name: str) -> None:
        container = store.find(name)
        if container.state["Status"] in store.RUNS and "force" not in options:
            raise Refused(f"cannot remove container {name}: it is running: stop it, or force its removal", 409)
        keeper.end(container)
        print(name)

    return _each(names, remove)


def _image_add(_: Options, words: list[str]) -> None:
    """Add an image NAME with the Python of the environment in VOLUME, or with the host's own if VOLUME is empty.

    The other words are variables of its containers.
    """
    name, volume, *variables = words
    base = f"{store.root()}/volumes/{volume}/data" if volume else _plain_python()
    path = f"{processes.BASE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # The name of an environment's volume ends with a digest of its content.
    content = volume.rpartition("-")[2] or f"{store.python_version()} {os.uname().machine}"
    store.add_image(name, content, base, [f"PATH={path}", "PYTHONUNBUFFERED=1", *variables])


def _plain_python() -> str:
    """An environment with this Python and no packages: the host's other packages are not part of a run."""
    import venv

    place = store.volume(f"muster-python-{store.python_version()}")
    venv.create(place, symlinks=True)
    _lend_bytecode(os.path.dirname(os.__file__))
    return place


def _lend_bytecode(library: str) -> None:
    """Link the compiled files of this Python's library into the folder where containers look for bytecode."""
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if not name.endswith("-packages")]
        if folder.endswith("/__pycache__"):
            place = store.bytecode() + os.path.dirname(folder)
            os.makedirs(place, exist_ok=True)
            for name in names:
                with suppress(OSError):
                    os.symlink(f"{folder}/{name}", f"{place}/{name}")


def _volume_ls(options: Options, _: list[str]) -> None:
    for about in store.volumes():
        if store.is_labelled(about["Labels"], [each.removeprefix("label=") for each in options.get("filter", [])]):
            _say(about, options, about["Name"])


def _volume_create(options: Options, names: list[str]) -> int:
    labels = store.pairs(options.get("label", []))
    return _each(names, lambda name: store.volume(name, labels))


def _volume_rm(options: Options, names: list[str]) -> int:
    return _each(names, lambda name: store.drop_volume(name, "force" in options))


def _serve(*_: Any) -> None:
    from . import api

    api.serve()


# The function for each command.
_COMMANDS: dict[str, Callable[[Options, list[str]], int | None]] = {
    **dict.fromkeys(("info", "version"), lambda options, _: _say(store.about_engine(), options)),
    "ps": _ps,
    "inspect": lambda options, names: _each(names, lambda name: _say(store.find(name).about(), options)),
    "create": lambda options, words: print(store.add(arguments.container(options, words)).id),
    "run": _run,
    "start": lambda _, names: _each(names, lambda name: keeper.start(store.find(name))),
    "exec": _exec,
    "logs": _logs,
    "events": _events,
    "rm": _rm,
    "image inspect": lambda options, names: _each(names, lambda name: _say(store.image(name), options)),
    "image ls": lambda *_: print("\n".join(sorted({about["Id"] for about in store.images()}))),
    "image add": _image_add,
    "volume create": _volume_create,
    "volume ls": _volume_ls,
    "volume rm": _volume_rm,
    "keep": lambda _, words: keeper.keep(store.find(words[0])),
    "system dial-stdio": _serve,
}
