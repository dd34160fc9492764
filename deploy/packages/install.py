"""Packages onto the places of a run (hosts, or this machine): one resolves them once, each installs them for itself.

The order: ask each place what it has; find the lock of an earlier time, or let the first place that reaches an index
make it; let each place that lacks the packages install them; compare the digests of all installed files.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ..core import docker_faults
from ..core.errors import DeployError
from ..core.fields import record, text, whole
from ..core.program import FAB
from ..core.results import Results
from ..core.text import amount
from ..image import official
from . import git, passwords, store, uv
from .exchange import Exchange, Files, Unreached
from .places import Place
from .requirements import Requirements
from .settings import Settings
from .store import Lock

Tell = Callable[[str, str], None]
Each = Callable[[Sequence[Place], Callable[[Place], Any]], Results[Any]]
_MOST_COPIED = 64 << 30  # bytes of packages, from a host that reaches an index to one that does not
_INSTALLED = record({"digest": text(64, "[0-9a-f]{64}"), "size": whole()})


@dataclass(frozen=True)
class PackageRequest:
    """What to install, with which settings. `tell(place, words)` gets each line of progress, from any thread.

    `each` does one thing at all places at once: for hosts that is `ssh.session.on_all`. `instead`: installs for places
    that reach no index, if no other does; they get the files.
    """

    requirements: Requirements
    settings: Settings
    tell: Tell
    each: Each
    instead: Place | None = None


@dataclass(frozen=True)
class Installed:
    """The packages of a run at all its places. `environments` by place, empty if the base has all that is needed.

    `variables`: of the base. `size`: bytes, 0 if they were there before. `sent`: bytes of uv and wheels through here.
    """

    lock: Lock
    environments: Mapping[str, str]
    variables: Mapping[str, str]
    size: int = 0
    sent: int = 0


def bring(places: Sequence[Place], asked: PackageRequest, folder: Path | None = None) -> Installed:
    """Install the requested packages at every place.

    Raises DeployError with the tool's own words; the packages that were there before stay.
    """
    folder, sent = folder or store.default_folder(), [0]
    has = asked.each(places, lambda place: place.look()).all()
    first = next(iter(has.values()))
    key = asked.requirements.key(store.FORMAT, uv.VERSION, list(first.base), asked.settings.public)
    lock = store.find(key, folder)
    if lock is None:
        lock = _locked(places, asked, sent)
        store.keep(key, lock, folder)
    if not lock.lines:
        return Installed(lock, {}, first.variables)
    digest = lock.digest(*first.base)
    names = {place.name: place.environment(digest) for place in places}
    lacking = [place for place in places if names[place.name] not in has[place.name].environments]
    done = _everywhere(places, lacking, asked, lock, digest, sent) if lacking else {}
    files = _agreed(lacking, {name: answer["digest"] for name, answer in done.items()}, lock, digest)
    if files != lock.files:
        store.keep(key, replace(lock, files=files), folder)
    size = max((answer["size"] for answer in done.values()), default=0)
    return Installed(lock, names, first.variables, size, sent[0])


def _locked(places: Sequence[Place], asked: PackageRequest, sent: list[int]) -> Lock:
    """The lock that the first place with a way to an index makes. Raises DeployError with uv's words."""
    needs, unreached = asked.requirements, dict[str, DeployError]()
    texts = [path for path, content in needs.files if path.endswith((".txt", ".in", ".toml")) and len(content) != 32]
    fetched = git.fetch_all(needs.git, lambda words: asked.tell(places[0].name, words))
    order: dict[str, Any] = {
        "mode": "lock",
        "kind": needs.kind,
        "requirements": needs.path,
        "builds": bool(needs.packages or needs.git or needs.unsent),
        "files_read": texts,
        "git": list(map(passwords.plain, fetched)),
        "kept": {f"kept-{number}": path for number, path in enumerate(needs.unsent)},
    }
    contents = dict(needs.files)
    sources: dict[str, bytes | mmap.mmap] = {name: contents[path] for name, path in order["kept"].items()}
    sources |= {f"git-{number}.tar": content for number, content in enumerate(fetched.values())}
    for place in (*places, *([asked.instead] if asked.instead else ())):
        try:
            answer, wheels = _do(place, asked, order, sources, "", sent)
        except Unreached as fault:
            unreached[place.name] = fault
        else:
            read = store.LOCK(answer, f"{place.name}: its lock")
            return Lock(tuple(read["lock"]), tuple(read["left_out"]), read["base"], wheels)
    Results(unreached).all()
    raise DeployError("no host to lock packages on")


def _everywhere(
    places: Sequence[Place], lacking: Sequence[Place], asked: PackageRequest, lock: Lock, digest: str, sent: list[int]
) -> dict[str, dict[str, Any]]:
    """Install at each place that lacks the packages; one that reaches no index gets the files of one that has them."""
    results = asked.each(lacking, lambda place: _install(place, asked, lock, digest, sent))
    unreached = [place for place in lacking if isinstance(results.faults.get(place.name), Unreached)]
    having = [place for place in places if place not in lacking or place.name in results.values]
    if not unreached or len(unreached) < len(results.faults) or not (having or asked.instead):
        return results.all()
    source = having[0] if having else asked.instead
    assert source is not None
    if not having and source.environment(digest) not in source.look().environments:
        _install(source, asked, lock, digest, sent)
    with TemporaryFile() as file:
        asked.tell(source.name, f"its packages are copied to {', '.join(place.name for place in unreached)}")

        def take(piece: bytes) -> None:
            if file.tell() > _MOST_COPIED:
                raise DeployError(f"{source.name}: its packages are more than {amount(_MOST_COPIED)}")
            file.write(piece)

        source.export(digest, take)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            order = {"mode": "unpack"}
            files = {"packages.tar": content}
            copied = asked.each(unreached, lambda place: _do(place, asked, order, files, digest, sent)[0]).all()
    return {**results.values, **{name: _INSTALLED(answer, "its packages") for name, answer in copied.items()}}


def _install(place: Place, asked: PackageRequest, lock: Lock, digest: str, sent: list[int]) -> dict[str, Any]:
    files = {f"wheels/{name}": data for name, data in lock.wheels.items()}
    answer, _ = _do(place, asked, {"mode": "install", "lock": list(lock.lines)}, files, digest, sent)
    installed: dict[str, Any] = _INSTALLED(answer, "its packages")
    return installed


def _do(
    place: Place, asked: PackageRequest, order: Mapping[str, Any], files: Files, digest: str, sent: list[int]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Let a place do one order; once more with the uv of this machine if it gets none."""

    def once(files: Files) -> tuple[dict[str, Any], dict[str, bytes]]:
        sent[0] += sum(map(len, files.values()))
        exchange = Exchange(place.name, asked.settings, lambda words: asked.tell(place.name, words))
        return exchange.finish(place.run(digest, exchange, order, files), order["mode"], asked.requirements.path, hint)

    try:
        return once(files)
    except Unreached as fault:
        if not fault.uv:
            raise
        asked.tell(place.name, "sending uv")
        return once({**files, "uv": uv.program_for(place.name, place.machine())})


def _agreed(places: Sequence[Place], digests: Mapping[str, str], lock: Lock, digest: str) -> str:
    """The one digest of the installed files. Where there are others, removes them and raises DeployError."""
    wanted = lock.files or next(iter(digests.values()), "")
    if odd := [place for place in places if digests[place.name] != wanted]:
        for place in odd:
            place.remove(digest)
        raise DeployError(
            f"{', '.join(place.name for place in odd)}: the installed files differ from those of the other hosts, from "
            "the same lock",
            "deploy again; if they still differ, the index serves different files under one name",
        )
    return wanted


def hint(words: str) -> str:
    """The next step after uv's words."""
    low = words.lower()
    if "excludes" in low and "of the base image" in low:
        return "loosen that line, or name a base with that version and Python 3.11: --image pytorch/pytorch:TAG"
    if "name an image with torchvision" in low:
        return f"--image pytorch/pytorch:{official.USUAL.tag}, or another that has torch and torchvision"
    if docker_faults.disk_is_full(words):
        return f"on that host: docker system df; `{FAB} clean` shows what Muster keeps there"
    if any(word in low for word in ("gcc", "compiler", "cc1", "nvcc", "cuda_home", "g++")):
        return "it needs a compiler: name an image that has one (--image pytorch/pytorch:...-devel)"
    return "correct the file; --requirements no leaves the packages out"
