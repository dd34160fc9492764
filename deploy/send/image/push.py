"""Push an image to hosts without a registry: ask what each has, send what it lacks, prove that all have the same.

A push has these steps: find the base (on this machine, or pulled on the hosts); look at each host and decide
(push_plan.py); once every host can take the image, stream an archive into `docker load`, and try the image. The base is
read once for all hosts. The user's folder and, if the base lacks it, Muster's agent are sent next to the image, not in
it (folder/folder_push.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from ...causes import docker_faults
from ...core.errors import DeployError
from ...core.results import Results
from ...core.text import amount, last_line
from ...door.session import Done, Session, on_all
from ...host import audit
from ...run.files import own_files
from ...run.files.folders import cache_folder
from ..background import BackgroundTask
from ..folder import folder_push
from ..folder.content import HostFolder
from ..folder.folder_look import FolderLook
from ..folder.folder_push import HostFolders, Outgoing
from ..image.base import agreed_base, find_base
from ..remember import remember
from ..road.cargo import Cargo
from ..road.guide import Tell
from ..road.rates import Rates
from ..road.road import Road
from ..road.routes import HERE
from . import commands
from .archive import archive
from .base_transfer import BaseTransfer, HeldLayers
from .compression import PLAIN
from .layer_cache import BaseLayers, LayerCache
from .model import Base, Image, has_trainer, run_image
from .push_plan import (
    HAS_IT,
    PushPlan,
    Store,
    check_space,
    codec_for,
    parse_image,
    parse_store,
    plan_push,
    replaced,
)

READER = "this machine reads"
_LOOK_S = 60.0
_MOST_PROOFS, _PROVED = 1000, "proved"  # lines; beyond that the oldest are dropped
_TRY_S = 120.0
# Faults that another attempt does not cure.
_HOPELESS = ("disk-full", "docker-down", "docker-permission")


class Proofs:
    """The images that a host has proved to this machine, by creating a container from each after a push had sent it.

    They are remembered in `folder`/proved, with a line `HOST MARK` for each. To create and remove a container takes
    most of the time of a push of one changed file; for a proved image, a host must only show the image and its layers
    again. If the host name belongs to another machine by now, that machine shows its own layers; only the container is
    not tried there. Several threads may use it. If the file cannot be read or written, hosts prove the image once more.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, Lock()
        self._lines = self._read()

    def has(self, host: str, mark: str) -> bool:
        """Whether the host has proved the image with this mark."""
        return f"{host} {mark}" in self._lines

    def note(self, host: str, mark: str, proved: bool) -> None:
        """Record that the host has just proved the image; or, if not `proved`, that it must prove it again."""
        line = f"{host} {mark}"
        if self.has(host, mark) == proved:
            return
        with self._lock:
            # Another push may have added lines since.
            self._lines = self._read()
            self._lines.pop(line, None)
            if proved:
                self._lines[line] = None
            remember(self._folder, _PROVED, "\n".join([*self._lines][-_MOST_PROOFS:]).encode())

    def _read(self) -> dict[str, None]:
        with suppress(OSError):
            return dict.fromkeys(own_files.read(self._folder / _PROVED).decode(errors="replace").split("\n"))
        return {}


@dataclass(frozen=True)
class Pushed:
    """What a push did on one host: the bytes sent (0 if none were lacking), the reason, the folders next to the image.

    `sources`: the bytes by source, which is a host's name or HERE (road/routes.py).
    """

    sent_bytes: int
    why: str
    folders: tuple[HostFolder, ...] = ()
    sources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _PushContext:
    """One push: the image, the source of its layers, and the folders that go next to it."""

    image: Image
    base: Base
    layers: BaseLayers
    proofs: Proofs
    outgoing: Sequence[Outgoing]


class _Has(NamedTuple):
    """The images and folders that a host has.

    `store`: None if the host has just proved that it has the image, which takes half as many questions.
    """

    store: Store | None
    folders: HostFolders


def push(
    sessions: Iterable[Session],
    base: str,
    code: FolderLook | None,
    tag: str,
    tell: Tell,
    cache: LayerCache | None = None,
    note: Callable[[str], None] = lambda _: None,
    data: Sequence[FolderLook] = (),
) -> Results[Pushed]:
    """Put `base` onto every host, named `tag`, with the folder of `code` and the `data` next to it.

    Returns what was sent to each host, or its fault.

    Calls `tell` from several threads with the bytes so far; under the name `READER` while this machine reads the base
    from its engine. `note` gets a sentence if hosts cannot get something from each other. If a push is interrupted, the
    next one continues from there. Raises UsageError for a bad folder or name, DeployError if neither this machine nor a
    host has the base. If some hosts cannot take the image, raises HostsFailed with all of them, before anything is sent
    to any host.
    """
    sessions, beside = list(sessions), [look for look in (code, *data) if look]
    folders = _known_folders(sessions, beside)
    cache = cache or LayerCache(cache_folder() / "layers", note=note)
    road = Road(len(sessions), tell, note, Rates(cache.folder.parent))
    transfer = BaseTransfer(road, lambda session: _look(session, ()), note)
    bases = find_base(sessions, base, transfer.pull)
    context, looks = _context(sessions, bases, beside, tag, partial(tell, READER), cache, folders)
    has = on_all(sessions, lambda session: _ready(session, context, bases, looks)).all()
    saved = [BackgroundTask(outgoing.save) for outgoing in context.outgoing]
    with road:
        road.offer([session for session in sessions if _is_complete(context, has[session.name])])
        held = BackgroundTask(lambda: _bring_base(sessions, context, has, transfer))
        # All hosts at the same time: a host that started later would not be in the chain.
        pushed = on_all(
            sessions,
            lambda session: _push_to(session, context, has[session.name], transfer, held),
            cap=max(1, len(sessions)),
        )
    for save in saved:
        save.result()
    for outgoing in context.outgoing if pushed.values else ():
        outgoing.keep()
    return pushed


def foresee(
    sessions: Iterable[Session], base: str, code: FolderLook | None, tag: str, data: Sequence[FolderLook] = ()
) -> Results[PushPlan]:
    """What `push` would send to each host, and why. Changes nothing. Raises as `push` does."""
    sessions, beside = list(sessions), [look for look in (code, *data) if look]
    folders = _known_folders(sessions, beside)
    bases = find_base(sessions, base, None)
    if not bases.values:
        outgoing, pull = _outgoing(None, beside), f"the hosts would first pull {base}: each host, or one for all"
        seen = folders.result().all()

        def plan_pull(session: Session) -> PushPlan:
            return PushPlan((), False, pull, _beside(outgoing, _folders(session, outgoing, seen[session.name])))

        return on_all(sessions, plan_pull)
    cache = LayerCache(cache_folder() / "layers")
    context, looks = _context(sessions, bases, beside, tag, lambda read, size: None, cache, folders)

    def plan(session: Session) -> PushPlan:
        has = looks.all()[session.name]
        folders = _folders(session, context.outgoing, has.folders)
        planned = _planned(context, has)
        weight = context.layers.weight(planned.layers)
        return replace(planned, folders=_beside(context.outgoing, folders), bytes=weight)

    return on_all(sessions, plan)


def _bring_base(
    sessions: Sequence[Session], context: _PushContext, has: Mapping[str, _Has], transfer: BaseTransfer
) -> HeldLayers:
    """Get the base to hosts that lack it, from another host or a registry that has it."""
    plans = {session: _planned(context, has[session.name]).layers for session in sessions}
    lacking = {session: layers for session, layers in plans.items() if layers}
    return transfer.distribute(context.base, [session for session in sessions if session not in lacking], lacking)


def look(session: Session, image: Image, base: Base) -> Store:
    """Ask a host what engine it has and which images. Raises DeployError if no engine answers."""
    return _look(session, (image.tag, base.name, *base.sources))


def _look(session: Session, names: Sequence[str]) -> Store:
    done = session.run(commands.look_at_images(names), timeout_s=_LOOK_S, check=False)
    # `docker info` exits with 0 even if no engine answered.
    if done.code or '"version":""' in done.out:
        raise docker_faults.fault(done.err)
    return parse_store(done.out)


def _context(
    sessions: Sequence[Session],
    bases: Results[Base],
    beside: Sequence[FolderLook],
    tag: str,
    tell: Callable[[int, int], None],
    cache: LayerCache,
    folders: BackgroundTask[Results[HostFolders]],
) -> tuple[_PushContext, Results[_Has]]:
    """Prepare one push, and ask what the hosts have. `tell` gets the bytes of the base read so far, and the total."""
    base, local = agreed_base(bases), HERE in bases.values
    image, proofs = run_image(base, tag), Proofs(cache.folder.parent)

    def ask(session: Session) -> _Has:
        known = proofs.has(session.name, image.mark)
        proved = known and not _fault(session, image, _try(session, image, (), proofs), proofs)
        store, seen = None if proved else look(session, image, base), folders.result()
        if fault := seen.faults.get(session.name):
            raise fault
        return _Has(store, seen.values[session.name])

    looks = BackgroundTask(lambda: on_all(sessions, ask))  # meanwhile this machine looks at the folder
    outgoing = _outgoing(base, beside)
    layers = BaseLayers(base, local, cache, lambda read: tell(min(read, base.size), base.size))
    return _PushContext(image, base, layers, proofs, outgoing), looks.result()


def _outgoing(base: Base | None, beside: Sequence[FolderLook]) -> list[Outgoing]:
    """What goes next to the image: the agent (unless the base is known to have it), the user's folder, and data."""
    agent = [] if base and has_trainer(base) else [folder_push.outgoing_trainer()]
    return [*agent, *map(folder_push.outgoing_folder, beside)]


def _known_folders(sessions: Sequence[Session], beside: Sequence[FolderLook]) -> BackgroundTask[Results[HostFolders]]:
    """Ask each host what it has of the folders this machine sent before. This takes longest, so it starts first."""

    def ask() -> Results[HostFolders]:
        known = [folder_push.outgoing_trainer().content.digest]
        known += [folder_push.name_of(digest, look.data) for look in beside for digest in look.memory.listings]
        return on_all(sessions, lambda session: folder_push.look_at_folders(session, known))

    return BackgroundTask(ask)


def _folders(session: Session, outgoing: Sequence[Outgoing], folders: HostFolders) -> HostFolders:
    """The folders of a host. It is asked once more if it may have a content from another folder or machine."""
    plans = [each.plan(folders) for each in outgoing]
    if not any(plan.stream and not plan.below for plan in plans):
        return folders
    return folder_push.look_at_folders(session, [name for each in outgoing for name in each.names])


def _beside(outgoing: Sequence[Outgoing], folders: HostFolders) -> tuple[HostFolder, ...]:
    """The folders next to the image on a host with these folders."""
    return tuple(each.on_host(folders) for each in outgoing)


def _ready(session: Session, context: _PushContext, bases: Results[Base], looks: Results[_Has]) -> _Has:
    """What the host has. Raises DeployError if it cannot take the image."""
    host = session.name
    if host in bases.faults:
        raise bases.faults[host]
    # Compare the settings too: their variables decide which code runs, and one host would decide that for all.
    if (own := bases.values.get(host)) and own.content != context.base.content:
        raise DeployError(
            f"{host} has a different {context.base.name} from {next(iter(bases.values))}",
            "name the base by its digest (name@sha256:...), so that all hosts pull the same",
        )
    if host in looks.faults:
        raise looks.faults[host]
    store, folders = looks.values[host]
    if store:
        lacking = plan_push(context.image, store, context.base.name).layers
        check_space(store, [context.layers.weight(lacking)] if lacking else [])
    folders = _folders(session, context.outgoing, folders)
    folder_push.check_space([outgoing.plan(folders) for outgoing in context.outgoing], folders)
    return _Has(store, folders)


def _planned(context: _PushContext, has: _Has) -> PushPlan:
    """What to send of the image to a host."""
    return plan_push(context.image, has.store, context.base.name) if has.store else PushPlan((), True, HAS_IT)


def _is_complete(context: _PushContext, has: _Has) -> bool:
    """Whether nothing needs to be sent to a host."""
    return _planned(context, has).present and not any(each.plan(has.folders).stream for each in context.outgoing)


def _push_to(
    session: Session, context: _PushContext, has: _Has, transfer: BaseTransfer, held: BackgroundTask[HeldLayers]
) -> Pushed:
    """Send the image and the folders next to it; both at the same time if the image only needs to be proved."""
    work = partial(_push_image, session, context, has, transfer, held)
    ahead = BackgroundTask(work) if _planned(context, has).present else None
    beside, sources = _beside(context.outgoing, has.folders), Counter[str]()
    for outgoing in context.outgoing:
        sources += folder_push.send_folder(session, outgoing, has.folders, transfer.road)
    pushed = ahead.result() if ahead else work()
    if sent := sources.total():
        audit.note(session, audit.Action.PUSHED, f"a folder of {context.image.tag}: {amount(sent)}")
    sources += Counter(pushed.sources) + transfer.sources[session.name]
    words = [word for word in (pushed.why, *(folder.lacking for folder in beside)) if word and word != HAS_IT]
    return Pushed(sources.total(), "; ".join(words) or HAS_IT, beside, sources)


def _push_image(
    session: Session, context: _PushContext, has: _Has, transfer: BaseTransfer, held: BackgroundTask[HeldLayers]
) -> Pushed:
    store, plan = has.store, _planned(context, has)
    if store is None:
        return Pushed(0, plan.why)
    if not plan.layers:
        return _deliver(session, context, transfer.road, store, plan)
    layers, why = held.result(), plan.why
    store, plan = _seen(session, context)  # the host may have pulled the base meanwhile
    if plan.layers and layers.keys() >= set(plan.layers):
        try:
            return replace(_deliver(session, context, transfer.road, store, plan, layers), why=why)
        except DeployError as fault:
            transfer.note(f"{session.name}: does not get {context.base.name} from another host: {fault.message}")
            transfer.pull([session], context.base.sources)
            store, plan = _seen(session, context)
    return replace(_deliver(session, context, transfer.road, store, plan), why=why)


def _seen(session: Session, context: _PushContext) -> tuple[Store, PushPlan]:
    """What a host has now, and what to send of the image."""
    store = look(session, context.image, context.base)
    return store, plan_push(context.image, store, context.base.name)


def _deliver(
    session: Session, context: _PushContext, road: Road, store: Store, plan: PushPlan, held: HeldLayers | None = None
) -> Pushed:
    """Send the image and let the host prove it; if that fails, send all layers. `held`: what another host keeps."""
    sources = Counter[str]()
    old, carry = replaced(context.image, store), road.deliver if held else road.send
    every = PushPlan(context.image.layers, False, "all layers, because those on the host did not make this image")
    for attempt in (plan,) if held else (plan, every):
        if attempt.present:
            done = _try(session, context.image, old, context.proofs)
        else:
            stream = _stream(context, store, attempt, held)
            context.proofs.note(session.name, context.image.mark, proved=False)
            done, came = carry(session, commands.receive_image(context.image.tag, old), stream)
            sources += came
        if not (fault := _fault(session, context.image, done, context.proofs)):
            if sent := sources.total():
                audit.note(session, audit.Action.PUSHED, f"{context.image.tag}: {amount(sent)}")
            return Pushed(sent, attempt.why, sources=sources)
        if attempt.layers == context.image.layers:
            break
    hint = docker_faults.hint(fault, session.name) if docker_faults.read_cause(fault) else "push again"
    raise DeployError(f"{context.image.tag} was sent, but {fault}", hint)


def _try(session: Session, image: Image, old: Sequence[str], proofs: Proofs) -> Done:
    """Let the host show the image, and create a container from it, unless it has proved the image before."""
    is_known = not old and proofs.has(session.name, image.mark)
    argv = commands.show_image(image.tag) if is_known else commands.try_image(image.tag, old)
    return session.run(argv, timeout_s=_TRY_S, check=False)


def _stream(context: _PushContext, store: Store, plan: PushPlan, held: HeldLayers | None) -> Cargo:
    """The archive for `docker load`. Raises DeployError if it does not fit on the host's disk."""
    codec = PLAIN if held else codec_for(store)
    layers = [held[layer] for layer in dict.fromkeys(plan.layers)] if held else context.layers.get(plan.layers, codec)
    check_space(store, [layer.size for layer in layers])
    return archive(context.image, layers, context.layers.sizes(), codec)


def _fault(session: Session, image: Image, done: Done, proofs: Proofs) -> str:
    """What is wrong with the image after `_try`; empty if nothing is: then the host has proved it.

    The output of `docker load` proves nothing: from version 27 on, engines load and name an image without having its
    layers. Such an image is removed. Raises DeployError if sending more would not help.
    """
    if done.code and (cause := docker_faults.read_cause(done.err)) and cause.name in _HOPELESS:
        raise docker_faults.fault(done.err)
    shown = next(iter(done.out.splitlines()), "")
    if not shown:
        return f"the engine refuses it: {last_line(done.err)}"
    loaded = parse_image(shown)
    if loaded.layers != image.layers or loaded.mark != image.mark:
        return "its name belongs to another image"
    if done.code:
        session.run(("docker", "image", "rm", image.tag), timeout_s=_TRY_S, check=False)
        return f"the engine cannot create a container from it: {last_line(done.err)}"
    proofs.note(session.name, image.mark, proved=True)
    return ""
