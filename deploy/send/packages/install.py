"""Install packages at the places of a run: this machine resolves them, and each place installs them.

The order: ask each place what it has, and what its base has, which must be the same everywhere; find an earlier lock,
or resolve a new one here (torch's sisters may come from PyTorch's index); let each place that lacks the packages build
what has no wheel, for itself alone, and install; compare the digests of the installed files. No place decides anything
for another.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock as Mutex
from typing import Any

from ...causes import docker_faults
from ...core.errors import DeployError
from ...core.fields import array, default, flag, record, text, whole
from ...core.results import Results
from ...job.option_words import command_of
from ...job.options import FLAG
from ...run.files.folders import cache_folder
from ..background import BackgroundTask
from . import addresses, base, resolve, store, uv
from .base import Base, Foreseeing, Foreseen, NotYet, of_lock
from .exchange import Exchange, Files, ToolFailed, Unreached
from .from_source import archives, git, sources
from .inside.tools import LOST
from .places import HERE, Has, Place, on_all_places
from .requirements import Requirements
from .settings import Settings, drop_logins
from .store import Content, Lock, Source

Tell = Callable[[str, str], None]
Each = Callable[[Sequence[Place], Callable[[Place], Any]], Results[Any]]
OTHER_PYTHON = f"{resolve.HERE} with such a Python and torch; on hosts: {FLAG.image} NAME, or {FLAG.dockerfile} FILE"
_SISTER = re.compile(r"torch(?:vision|audio)==[^\s+]+\+(cpu|cu[0-9]+)\b")
_EARLIER_HOSTS = "the hosts of an earlier time"
_INSTALLED = record({"digest": text(64, "[0-9a-f]{64}"), "size": whole()})
_BUILT = record(
    {
        "key": text(32, "[0-9a-f]{32}"),
        "wheel": text(300, store.WHEEL),
        "sha256": text(64, "[0-9a-f]{64}"),
        "name": text(200, store.NAME),
        "version": text(200, store.VERSION),
        "requires": default(array(text(4000)), []),
        "extras": default(array(text(200, store.NAME)), []),
    },
    {"empty": flag},
)


@dataclass(frozen=True)
class PackageRequest:
    """What to install, and with which settings. `tell(place, words)` gets each line of progress, from any thread.

    `source`: the folder that is sent. `resolved` gets what the places will have, before they install it. `foreseen`: a
    lock for these places, which counts if they have the base it was made for. `each`: does one thing at all places.
    """

    requirements: Requirements
    settings: Settings
    tell: Tell
    source: Path
    resolved: Callable[[Base], object] = lambda base: None
    foreseen: Foreseeing | None = None
    each: Each = on_all_places


@dataclass(frozen=True)
class Installed:
    """A run's packages at all its places. `environments`: by place; empty if the base has all that is needed.

    `variables`: of each place's base. `size`: in bytes; 0 if nothing was installed. `sent`: bytes sent by this machine.
    `python`: the version that all places run. `empty`: packages built from the folder or from git that have no code.
    """

    lock: Lock
    environments: Mapping[str, str]
    variables: Mapping[str, Mapping[str, str]]
    size: int = 0
    sent: int = 0
    python: str = ""
    empty: tuple[str, ...] = ()


def install_packages(places: Sequence[Place], asked: PackageRequest, folder: Path | None = None) -> Installed:
    """Install the requested packages at every place.

    Raises DeployError with the tool's own words; packages that were there before stay.
    """
    work = _Work(places, asked, folder)
    try:
        return work.bring()
    finally:
        work.clean()


def foresee(
    places: Sequence[Place], asked: PackageRequest, coming: Base | None, folder: Path | None = None
) -> Foreseen | None:
    """The lock for places as they are, or as they will be with a base that is `coming`, which the index has too.

    None if only builds can tell what is needed, or if it fails for that base. Raises DeployError for places as they
    are.
    """
    work = _Work(places, asked, folder)
    try:
        return work.foresee(coming)
    except DeployError as fault:
        if not coming and not isinstance(fault, NotYet):
            raise
        return None


class _Work:
    """One command's work at all places."""

    def __init__(self, places: Sequence[Place], asked: PackageRequest, folder: Path | None) -> None:
        self._places, self._asked, self._folder = places, asked, store.own(folder or cache_folder() / "packages")
        self._scratch: dict[str, str] = {}
        self._built: dict[str, dict[str, dict[str, Any]]] = {place.name: {} for place in places}
        self._offline: Files | None = None
        self._sent, self._mutex = 0, Mutex()
        self._fetched = dict[str, Content]()
        self._sdists: dict[str, mmap.mmap] = {}
        self._foresees = False

    def bring(self) -> Installed:
        """Install, from the first question to the comparison of the installed files."""
        asked, folder = self._asked, self._folder
        foreseen = asked.foreseen.result() if asked.foreseen else None
        self._look()
        known_lock = store.find(key := self._key(), folder)
        is_foreseen = foreseen and foreseen.is_for(self._base)
        lock = known_lock or (foreseen.lock if foreseen and is_foreseen else self._resolved())
        asked.resolved(of_lock(self._base, lock))
        if lock.count:
            try:
                names, done = self._install(lock)
            except sources.Differ:
                if not known_lock:
                    raise
                store.drop(key, folder)  # what hosts reported then differs from what these report
                lock, known_lock = self._resolved(), None
                names, done = self._install(lock)
        else:
            names, done = {}, {}
        files = self._agreed({name: answer["digest"] for name, answer in done.items()}, lock)
        if not known_lock or files != lock.files:
            store.keep(key, replace(lock, files=files), folder)
        size = max((answer["size"] for answer in done.values()), default=0)
        variables = {name: has.variables for name, has in self._has.items()}
        rows = [row for built in self._built.values() for row in built.values()]
        without = {row["key"] for row in rows if row.get("empty")}
        empty = tuple(sources.shown(each) for each in lock.sources if each.key in without and each.kind != "index")
        return Installed(lock, names, variables, size, self._sent, self._base.python, empty)

    def foresee(self, coming: Base | None) -> Foreseen:
        """The base and its lock; if no base is coming: for the places as they are. Raises DeployError."""
        self._foresees = True
        self._look(coming)
        return Foreseen(self._base, store.find(self._key(), self._folder) or self._resolved(coming is not None))

    def _look(self, coming: Base | None = None) -> None:
        folder, each = self._folder, self._asked.each
        self._tool = BackgroundTask(lambda: uv.program(folder))  # it may have to be fetched, while the places answer
        self._has: dict[str, Has] = each(self._places, lambda place: place.look()).all()
        self._base = coming or self._described()

    def _key(self) -> str:
        asked = self._asked
        return asked.requirements.key(store.FORMAT, uv.VERSION, self._base.digest, asked.settings.public)

    def clean(self) -> None:
        """Remove the built wheels that no install has removed."""
        left = [place for place in self._places if place.name in self._scratch]
        if left:
            self._asked.each(left, lambda place: place.forget(self._scratch[place.name]))

    def _described(self) -> Base:
        """The base of all places, as they reported it before or report it now. Raises DeployError if they differ."""
        layers = {place.name: self._has[place.name].base for place in self._places}
        before = {place.name: base.remembered(self._folder, place.who, layers[place.name]) for place in self._places}
        asked = [place for place in self._places if before[place.name] is None]
        now = self._asked.each(asked, self._describe).all() if asked else {}
        described = {name: known or now[name] for name, known in before.items()}
        try:
            agreed = base.same(described)
        except DeployError:
            if len(asked) == len(self._places):
                raise
            asked = list(self._places)  # an earlier report may have been wrong
            agreed = base.same(described := self._asked.each(asked, self._describe).all())
        for place in asked:
            base.remember(self._folder, place.who, layers[place.name], described[place.name])
        return agreed

    def _describe(self, place: Place) -> Base:
        return base.read(self._do(place, {"mode": "describe"}, {}), f"{place.name}: its base")

    def _resolved(self, of_index: bool = False) -> Lock:
        """A new lock. `of_index`: the index has the base too. Raises DeployError with uv's words."""
        asked = self._asked
        tell = partial(asked.tell, HERE)
        needs = asked.requirements
        for address in needs.indexes:
            addresses.check_reached(address)
        of_git = git.fetch_all(needs.git, tell)
        remote = archives.fetch_all(needs, asked.settings, tell)
        wheels = archives.wheels([*needs.archives, *remote.items()])
        to_build = {word: content for word, content in remote.items() if word not in wheels}
        fetched, far = {**of_git, **to_build}, [*sources.of_git(of_git), *sources.of_archives(to_build)]
        self._fetched = {source.place: content for source, content in zip(far, fetched.values(), strict=True)}
        self._fetched |= {wheels[word].file: content for word, content in remote.items() if word in wheels}
        local = sources.of_folder(needs, asked.source)
        by_address = dict(zip(map(drop_logins, fetched), far, strict=True))
        build = self._described_by_builds
        question = resolve.Question(needs, self._base, local, by_address, wheels, build, of_index)
        with TemporaryDirectory(prefix="muster-packages-") as name:
            self._tool.result()
            try:
                lock = self._locked(question, Path(name))
            except uv.Failed as fault:
                raise self._failed_here(fault) from fault
        used = {source.place for source in lock.sources}
        used |= {wheel.file for wheel in wheels.values() if any(wheel.sha256 in line for line in lock.lines)}
        return replace(lock, fetched={name: data for name, data in self._fetched.items() if name in used})

    def _locked(self, question: resolve.Question, scratch: Path) -> Lock:
        """The lock, with torch's sisters from PyTorch's own index if only that index has the base's build.

        If the user names their own index, packages come only from there. Raises Failed, or UsageError.
        """
        own, tell = self._asked.settings, partial(self._asked.tell, HERE)

        def once(settings: Settings, name: str) -> Lock:
            (scratch / name).mkdir()
            tool = uv.Uv(self._folder, scratch / name, settings, tell)
            return resolve.Resolving(question, tool, scratch / name).lock()

        try:
            return once(own, "index")
        except resolve.OtherTorch as fault:
            if own.indexes:
                fault.hint = "add PyTorch's own index for CPUs to yours: pip config set global.extra-index-url"
                raise
            tell(f"{fault.words}: asking PyTorch's own index")
            try:
                return once(own.with_torch("cpu"), "pytorch")
            except uv.Failed as second:
                raise resolve.OtherTorch(f"{fault.words}\n{second.words}") from second

    def _failed_here(self, fault: uv.Failed) -> DeployError:
        words = fault.words
        if not fault.hint and LOST.search(words) and "HTTP status" not in words:
            return Unreached(HERE, words.splitlines()[0].removeprefix("error: "), uv=False)
        what = f"uv could not resolve the packages of {self._asked.requirements.path}"
        return ToolFailed(HERE, what, words, fault.hint or hint(words, fault.excluding))

    def _described_by_builds(self, wanted: Sequence[Source]) -> list[Source]:
        """What these sources need, as the builds at all places report it. Raises DeployError if they differ."""
        if self._foresees:
            raise NotYet("builds on all hosts say what it needs")
        self._build(self._places, wanted)
        return [
            sources.agree({p.name: self._built[p.name][source.key] for p in self._places}, _to_describe(source))
            for source in wanted
        ]

    def _build(self, places: Sequence[Place], wanted: Sequence[Source]) -> None:
        """Let each place build what it has not built yet."""
        lacking = [p for p in places if any(source.key not in self._built[p.name] for source in wanted)]
        if not lacking:
            return
        from .from_source import sdists  # an HTTP library that few deploys need

        for source in wanted:
            if source.kind == "index" and source.key not in self._sdists:
                digests = [word.removeprefix("--hash=sha256:") for word in source.place.split() if "--hash" in word]
                self._sdists[source.key] = sdists.fetch(source.url, digests, self._asked.settings)
        self._asked.each(lacking, lambda place: self._build_at(place, wanted)).all()

    def _build_at(self, place: Place, wanted: Sequence[Source]) -> None:
        todo = [source for source in wanted if source.key not in self._built[place.name]]
        files, rows = dict[str, Content](), list[dict[str, Any]]()
        for number, source in enumerate(todo):
            row: dict[str, Any] = {"key": source.key, "kind": source.kind, "subdirectory": source.subdirectory}
            if source.kind == "folder":
                row |= {"path": source.place, "editable": source.editable}
            else:
                row["tar"] = f"source-{number}"
                files[f"source-{number}"] = (
                    self._sdists[source.key] if source.kind == "index" else self._fetched[source.place]
                )
            row |= {"line": source.place} if source.kind == "index" else {}
            row |= {"name": source.name} if source.name else {}
            rows.append(row)
        keep = {source.key: self._cache_key(source) for source in todo}
        order = {"mode": "build", "sources": rows, "keep": keep}
        answer = self._do(place, order, files)
        made = array(_BUILT)(answer.get("built"), f"{place.name}: its builds")
        by_key = {row["key"]: row for row in made}
        if missing := [source for source in todo if source.key not in by_key]:
            raise DeployError(f"{place.name}: it built nothing from {sources.shown(missing[0])}")
        if odd := [need for row in made for need in row["requires"] if not sources.is_need(need)]:
            raise DeployError(f"{place.name}: a package that it built needs {odd[0][:200]!r}, which nobody can install")
        self._built[place.name] |= by_key

    def _cache_key(self, source: Source) -> str:
        """A key of all that decides a wheel's content: under this name, the place may keep the wheel for itself."""
        text = json.dumps([store.FORMAT, uv.VERSION, source.key, self._base.digest, self._asked.settings.public])
        return hashlib.sha256(text.encode()).hexdigest()

    def _install(self, lock: Lock) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Install at each place that lacks the packages. Returns the environments, and the answers of these places."""
        names = {place.name: place.environment(self._digest(place, lock)) for place in self._places}
        lacking = [place for place in self._places if names[place.name] not in self._has[place.name].environments]
        sisters = [match[1] for line in lock.lines if (match := _SISTER.match(line))]
        if sisters and not self._asked.settings.indexes:
            self._asked = replace(self._asked, settings=self._asked.settings.with_torch(sisters[0]))
        self._fetched = {**self._fetched, **lock.fetched}
        if lacking and lock.sources:
            self._build(lacking, lock.sources)
            for source in lock.sources:
                rows = {place.name: self._built[place.name][source.key] for place in lacking}
                sources.agree({**({_EARLIER_HOSTS: asdict(source)} if source.described else {}), **rows}, source)
        done = self._asked.each(lacking, lambda place: self._install_at(place, lock)).all() if lacking else {}
        return names, done

    def _digest(self, place: Place, lock: Lock) -> str:
        """A digest of what a place installs. It includes the place's own report about its base."""
        return lock.digest(self._has[place.name].base, self._base.digest)

    def _install_at(self, place: Place, lock: Lock) -> dict[str, Any]:
        digest = self._digest(place, lock)
        built = [self._built[place.name][source.key] for source in lock.sources]
        rows = [{"wheel": row["wheel"], "sha256": row["sha256"]} for row in built]
        own = self._own_wheels(lock)
        order = {"mode": "install", "lock": list(lock.lines), "built": rows}
        try:
            answer = self._do(place, order, own, digest)
        except Unreached:
            sent = self._wheels(lock, own)
            self._asked.tell(place.name, "it cannot reach an index: its packages are sent from here")
            answer = self._do(place, order, {**own, **sent}, digest, offline=True)
        self._scratch.pop(place.name, None)
        installed: dict[str, Any] = _INSTALLED(answer, f"{place.name}: its packages")
        return installed

    def _own_wheels(self, lock: Lock) -> Files:
        """The wheels in the folder, and those fetched from their address: no index has them."""
        named = [*self._asked.requirements.archives, *lock.fetched.items()]
        return {f"wheels/{archives.file_of(word)}": data for word, data in named if archives.is_wheel(word)}

    def _wheels(self, lock: Lock, own: Files) -> Files:
        """The wheels of a lock, fetched here by their hashes, for hosts that cannot reach an index."""
        with self._mutex:
            if self._offline is None:
                from .from_source import sdists

                digests = {hashlib.sha256(content).hexdigest() for content in own.values()}
                lines = [line for line in lock.lines if line.rpartition(":")[2] not in digests]
                try:
                    self._offline = sdists.fetch_wheels(lines, self._base, self._asked.settings, self._folder)
                except uv.Failed as fault:  # the place is not at fault: this machine failed
                    raise self._failed_here(fault) from fault
            return self._offline

    def _do(
        self, place: Place, order: Mapping[str, Any], files: Files, digest: str = "", offline: bool = False
    ) -> dict[str, Any]:
        """Let a place carry out one order; if the place cannot get uv, repeat it with uv from this machine."""
        asked = self._asked
        settings = replace(asked.settings, variables={"UV_NO_INDEX": "1"}) if offline else asked.settings
        scratch = self._scratch.setdefault(place.name, secrets.token_hex(16)) if order["mode"] == "build" else ""
        scratch = scratch or (self._scratch.get(place.name, "") if order["mode"] == "install" else "")
        what = f"{order['mode']} the packages of {asked.requirements.path}"

        def once(files: Files) -> dict[str, Any]:
            with self._mutex:
                self._sent += sum(map(len, files.values()))
            exchange = Exchange(place.name, settings, lambda words: asked.tell(place.name, words))
            return exchange.finish(place.run(exchange, order, files, digest, scratch), what, hint)

        def with_uv() -> dict[str, Any]:
            asked.tell(place.name, "sending uv")
            return once({**files, "uv": uv.program_for(place.name, place.machine(), self._folder)})

        if self._has[place.name].lacks_uv and order["mode"] != "describe":
            return with_uv()
        try:
            return once(files)
        except Unreached as fault:
            if not fault.uv:
                raise
            return with_uv()

    def _agreed(self, digests: Mapping[str, str], lock: Lock) -> str:
        """The one digest of the installed files. If they differ, removes the odd ones and raises DeployError.

        A digest from other hosts at an earlier time counts only if one of these hosts has the packages from then.
        """
        before = [place.name for place in self._places if place.name not in digests]
        now = list(digests.values())
        known = lock.files if before else ""
        if not now or (len(set(now)) == 1 and known in ("", now[0])):
            return now[0] if now else lock.files
        usual = known or max(now, key=now.count)
        odd = [place for place in self._places if digests.get(place.name, usual) != usual]
        others = [place.name for place in self._places if place not in odd]
        doubted = odd if known or len(others) > len(odd) else [p for p in self._places if p.name in digests]
        for place in doubted:
            place.remove(self._digest(place, lock))
        raise DeployError(
            f"{', '.join(place.name for place in odd)}: the installed files differ from those of {', '.join(others)}, "
            "from the same lock",
            f"{command_of('clean', hosts=','.join(place.name for place in doubted), caches=True)}; deploy again; if "
            "they still differ, the index serves different files under one name, or a host lies",
        )


def _to_describe(source: Source) -> Source:
    """The source, marked to be described by its builds if its own files do not tell what it needs."""
    return replace(source, described=True) if source.kind == "index" or not source.name else source


def hint(words: str, excluding: Sequence[str] = ()) -> str:
    """The next step for the user, after uv's words. `excluding`: as of uv.Failed."""
    low = words.lower()
    if excluding:
        loosen = f"loosen that line; or {resolve.OTHER_TORCH.format('that version', 'TAG')}"
        narrow = all(path.endswith("uv.lock") for path in excluding)
        return f"--requirements pyproject.toml, if that allows it; {loosen}" if narrow else loosen
    if "does not satisfy python" in low or "requires-python" in low:
        return f"{OTHER_PYTHON}; or without the packages: --requirements no"
    if docker_faults.disk_is_full(words):
        return "on that host: df -h ~; if it has Docker: docker system df; `muster clean` shows what Muster keeps there"
    if any(word in low for word in ("gcc", "compiler", "cc1", "nvcc", "cuda_home", "g++")):
        return "it needs a compiler: choose an image that has one (--image pytorch/pytorch:...-devel)"
    return f"correct the file; {resolve.WITHOUT}"
