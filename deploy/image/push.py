"""Push an image to hosts without a registry: ask each host what it has, send what it lacks, and let it prove it.

The order of one push: build the image from the base (here, or pulled on the hosts) and the folder; look at each host
and decide (image/push_plan.py); once every host can take the image, stream an archive into `docker load`, and try the
image. The base is read once for all hosts. A large folder goes beside the image (image/folder_push.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from ..causes import docker_faults
from ..core.ahead import Ahead
from ..core.errors import DeployError
from ..core.results import Results
from ..core.text import amount
from ..door.session import Done, Session, on_all
from ..engine import images
from ..host import audit
from . import code_layer, commands, folder_push
from .archive import Archive, archive
from .code_layer import CodeLayer
from .folder_look import FolderLook
from .folder_push import HostFolders, LargeFolder
from .layer_cache import LayerCache, default_folder
from .layer_source import LayerSource
from .model import Base, Image, base_of, has_trainer, parse_base, refuse_other_trainer, run_image
from .proofs import Proofs
from .push_plan import (
    HAS_IT,
    PushPlan,
    Store,
    check_space,
    codec_for,
    full_push,
    parse_image,
    parse_store,
    plan_push,
    replaced,
)

Tell = Callable[[str, int, int], None]
HERE = "this machine"
READER = "this machine reads"
_LOOK_S = 60.0
_TRY_S = 120.0
# An engine prints nothing while it pulls; 10 GB at 2 MB/s take an hour and a half.
_PULL_S = 4 * 3600.0
# Faults that another try does not cure.
_HOPELESS = ("disk-full", "docker-down", "docker-permission")


@dataclass(frozen=True)
class Pushed:
    """What a push did on one host: the bytes sent (0 if the host had the image), and the reason.

    A large folder is not in the image: `folder` is where the host has it, `digest` names its content. `code_layers`:
    how many layers of the image are not those of its base.
    """

    sent_bytes: int
    why: str
    folder: str = ""
    digest: str = ""
    code_layers: int = 1


@dataclass(frozen=True)
class _PushContext:
    """One push: the image, and where its layers come from."""

    image: Image
    base: Base
    local: bool
    source: LayerSource
    tell: Tell
    proofs: Proofs
    large: LargeFolder | None = None


class _Has(NamedTuple):
    """What a host has: images, and large folders. `store`: None if it has just proved that it has the base alone as the
    image, which takes half as many questions."""

    store: Store | None
    folders: HostFolders


def push(
    sessions: Iterable[Session],
    base: str,
    code: FolderLook | None,
    tag: str,
    tell: Tell,
    cache: LayerCache | None = None,
    proven: bool = False,
) -> Results[Pushed]:
    """Put `base` with the folder of `code` on top onto every host, as `tag`.

    Returns per host what was sent, or its fault.

    Calls `tell(host, sent, total)` from several threads with the bytes so far; for `READER`, while this machine reads
    the base from its engine. An interrupted push leaves nothing; the next one starts from zero. proven: an image of
    this name has just run on the hosts; if it is this image, push does not try it again.
    Raises UsageError for a bad folder or name, DeployError if neither side has the base. If a host cannot take the
    image, raises HostsFailed with every such host before it sends anything to any host.
    """
    sessions = list(sessions)
    folders = Ahead(lambda: _known_folders(sessions, code))  # it takes longest
    bases = _find_base(sessions, base, pull=True)
    cache = cache or LayerCache(default_folder())
    context, looks = _context(sessions, bases, code, tag, tell, cache, folders)
    has = on_all(sessions, lambda session: _ready(session, context, bases, looks)).all()
    saved = Ahead(large.save) if (large := context.large) else None
    pushed = on_all(sessions, lambda session: _bring(session, context, has[session.host.name], proven))
    if large and saved:
        saved.result()
        if pushed.values:
            large.keep()
    return pushed


def foresee(sessions: Iterable[Session], base: str, code: FolderLook | None, tag: str) -> Results[PushPlan]:
    """What `push` would send to each host, and why. Changes nothing. Raises as `push` does."""
    sessions = list(sessions)
    bases = _find_base(sessions, base, pull=False)
    if not bases.values:
        return on_all(sessions, lambda session: PushPlan((), False, f"the host would pull {base} first"))
    cache = LayerCache(default_folder())
    folders = Ahead(lambda: _known_folders(sessions, code))
    context, looks = _context(sessions, bases, code, tag, lambda host, sent, total: None, cache, folders, prove=False)

    def plan(session: Session) -> PushPlan:
        has = looks.all()[session.host.name]
        planned = _planned(context, has)
        if not (large := context.large):
            return planned
        folders = _folders(session, large, has.folders)
        lacking = large.plan(folders)
        words = lacking.why if lacking.stream else ""
        return replace(planned, folder=folders.of(large.content), digest=large.content.digest, lacking=words)

    return on_all(sessions, plan)


def look(session: Session, image: Image, base: Base) -> Store:
    """Ask a host's engine what it is and what it has. Raises DeployError if no engine answers."""
    names = (image.tag, base.name, *base.sources)
    done = session.run(commands.look_at_images(names), timeout_s=_LOOK_S, check=False)
    # `docker info` ends with 0 even if no engine answered.
    if done.code or '"version":""' in done.out:
        raise docker_faults.fault(done.err)
    return parse_store(done.out)


def is_anywhere(sessions: Sequence[Session], name: str) -> bool:
    """Whether this machine or a host has an image of that name."""
    if images.inspect(name):
        return True
    held = on_all(sessions, lambda session: session.run(commands.inspect_image(name), timeout_s=_LOOK_S, check=False))
    return any(done.code == 0 for done in held.values.values())


def _find_base(sessions: Sequence[Session], name: str, pull: bool) -> Results[Base]:
    """The base, by `HERE` if the local engine has it; otherwise by host, and with `pull` hosts pull it if needed."""
    if inspected := images.inspect(name):
        return Results({HERE: base_of(name, inspected)})

    def ask(session: Session) -> Base:
        done = session.run(commands.inspect_image(name), timeout_s=_LOOK_S, check=False)
        if done.code and not docker_faults.lacks_image(done.err):
            raise docker_faults.fault(done.err)
        if done.code and pull:
            pulled = session.run(commands.pull_image(name), timeout_s=_PULL_S, check=False)
            if pulled.code:
                raise DeployError(
                    f"{name} is neither on this machine nor on {session.host.name}, which cannot pull it: "
                    + _last_line(pulled.err),
                    _where_from(name),
                )
            done = session.run(commands.inspect_image(name), timeout_s=_LOOK_S, check=False)
        if done.code:
            raise docker_faults.fault(done.err)
        return parse_base(name, done.out)

    bases = on_all(sessions, ask)
    if bases.faults and pull and images.pull(name, _platform(sessions)):
        return Results(
            {HERE: base_of(name, images.inspect(name))}
        )  # hosts without a way to a registry get it from here
    return bases


def _platform(sessions: Sequence[Session]) -> str:
    """The hosts' platform as an engine names it."""
    done = on_all(sessions[:1], lambda session: session.run(("uname", "-m"), check=False).out.strip()).values
    machine = next(iter(done.values()), "")
    return f"linux/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine, machine) }" if machine else ""


def _where_from(name: str) -> str:
    if name.startswith("muster-trainer:"):
        target = name.partition(":")[2]
        return f"build it in Muster's checkout: make image{' TARGET=gpu' if target == 'gpu' else ''}; or name another"
    return f"build it here, or pull it: docker pull {name}"


def _agreed(bases: Results[Base]) -> Base:
    """The base image: the first name that exists. Raises if none does, or if its trainer is of another Muster."""
    for base in bases.values.values():
        refuse_other_trainer(base)
        return base
    bases.all()
    raise DeployError("no host to push to")


def _context(
    sessions: Sequence[Session],
    bases: Results[Base],
    code: FolderLook | None,
    tag: str,
    tell: Tell,
    cache: LayerCache,
    folders: Ahead[Results[HostFolders]],
    prove: bool = True,
) -> tuple[_PushContext, Results[_Has]]:
    base, local = _agreed(bases), HERE in bases.values
    bare, proofs = run_image(base, (), tag), Proofs(cache.folder.parent)
    # A large folder was sent before, so it went beside the image.
    is_likely = prove and bool(code and code.memory.listings) and has_trainer(base)

    def ask(session: Session) -> _Has:
        proved = is_likely and not _fault(session, bare, _try(session, bare, (), proofs), proofs)
        store, seen = None if proved else look(session, bare, base), folders.result()
        if fault := seen.faults.get(session.host.name):
            raise fault
        return _Has(store, seen.values[session.host.name])

    looks = Ahead(lambda: on_all(sessions, ask))  # while this machine looks at the folder
    layer, large = _code(code, base, cache, tell)
    image = run_image(base, (layer.digest,) if layer else (), tag)
    source = LayerSource(base, layer, local, cache, lambda read: tell(READER, min(read, base.size), base.size))
    return _PushContext(image, base, local, source, tell, proofs, large), looks.result()


def _known_folders(sessions: Sequence[Session], code: FolderLook | None) -> Results[HostFolders]:
    """What each host has of the large folders that this machine has sent before."""
    known = list(code.memory.listings) if code else []
    return on_all(sessions, lambda session: folder_push.look(session, known))


def _code(
    code: FolderLook | None, base: Base, cache: LayerCache, tell: Tell
) -> tuple[CodeLayer | None, LargeFolder | None]:
    """The layer on top of the base: the user's folder if it is small, and the trainer if the base is not made from
    Muster's image. And the folder if it is large."""
    apart, large = not has_trainer(base), None
    folder, entries = (code.folder, code.result().entries) if code else (None, ())
    if code and sum(entry.size for entry in entries) >= folder_push.LARGE:
        large = LargeFolder(code, lambda read, total: tell(READER, read, total))
        folder, entries = None, ()
    if not folder and not apart:
        return None, large
    return code_layer.pack_entries(folder, entries, apart, cache.folder), large


def _folders(session: Session, large: LargeFolder, folders: HostFolders) -> HostFolders:
    """The folders of a host; it is asked once more if it may have this content from another machine."""
    plan = large.plan(folders)
    return folder_push.look(session, large.digests) if plan.stream and not plan.below else folders


def _ready(session: Session, context: _PushContext, bases: Results[Base], looks: Results[_Has]) -> _Has:
    """What the host has. Raises DeployError if it cannot take the image."""
    host = session.host.name
    if host in bases.faults:
        raise bases.faults[host]
    # Its settings too: their variables decide which code runs, and one host would decide it for all.
    if (own := bases.values.get(host)) and own.content != context.base.content:
        raise DeployError(
            f"{host} has another {context.base.name} than {next(iter(bases.values))}",
            "name the base by its digest (name@sha256:...), so that all hosts pull the same",
        )
    if host in looks.faults:
        raise looks.faults[host]
    store, folders = looks.values[host]
    if store is None and len(context.image.layers) > len(context.base.layers):
        store = look(session, context.image, context.base)  # the folder has become small enough for a layer
    if store and (lacking := plan_push(context.image, store, context.base.name).layers):
        check_space(store, [context.source.weight(lacking)])
    if large := context.large:
        folders = _folders(session, large, folders)
        folder_push.check_space(large.plan(folders), folders)
    return _Has(store, folders)


def _planned(context: _PushContext, has: _Has) -> PushPlan:
    """What to send of the image to a host."""
    return plan_push(context.image, has.store, context.base.name) if has.store else PushPlan((), True, HAS_IT)


def _bring(session: Session, context: _PushContext, has: _Has, proven: bool) -> Pushed:
    """The image and the large folder; both at once if the image needs only its proof."""

    def bring_image() -> Pushed:
        return _bring_image(session, context, has, proven)

    over = len(context.image.layers) - len(context.base.layers)
    if not (large := context.large):
        return replace(bring_image(), code_layers=over)
    ahead = Ahead(bring_image) if _planned(context, has).present else None
    sent = folder_push.bring(session, large, has.folders, partial(context.tell, session.host.name))
    pushed = ahead.result() if ahead else bring_image()
    if sent:
        audit.note(session, f"pushed a folder of {context.image.tag}: {amount(sent)}")
    why = "; ".join(dict.fromkeys((pushed.why, large.plan(has.folders).why)))
    return Pushed(pushed.sent_bytes + sent, why, has.folders.of(large.content), large.content.digest, over)


def _bring_image(session: Session, context: _PushContext, has: _Has, proven: bool) -> Pushed:
    store, plan = has.store, _planned(context, has)
    if store is None or (proven and plan.present and not replaced(context.image, store)):
        return Pushed(0, plan.why)
    if _lacks_base(context, plan) and _pulled(session, context):
        store = look(session, context.image, context.base)
        plan = plan_push(context.image, store, context.base.name)
    return _deliver(session, context, store, plan)


def _deliver(session: Session, context: _PushContext, store: Store, plan: PushPlan) -> Pushed:
    """Send, and let the host prove it; if that fails, send all layers once more."""
    sent = 0
    old = replaced(context.image, store)
    for attempt in (plan, full_push(context.image, "all layers: those of the host did not give this image")):
        if attempt.present:
            done = _try(session, context.image, old, context.proofs)
        else:
            stream = _stream(context, store, attempt)
            context.proofs.drop(session.host.name, context.image.mark)
            argv, chunks = (
                commands.receive_image(context.image.tag, old),
                _counted(session.host.name, stream, context.tell),
            )
            done = session.run(argv, input=chunks, moving=True, check=False)
            sent += stream.size
        if not (fault := _fault(session, context.image, done, context.proofs)):
            if sent:
                audit.note(session, f"pushed {context.image.tag}: {amount(sent)}")
            return Pushed(sent, attempt.why)
        if attempt.layers == context.image.layers:
            break
    hint = docker_faults.hint(fault, session.host.name) if docker_faults.read(fault) else "push again"
    raise DeployError(f"{context.image.tag} was sent, but {fault}", hint)


def _try(session: Session, image: Image, old: Sequence[str], proofs: Proofs) -> Done:
    """Let the host show the image, and create a container from it unless it did so before."""
    is_known = not old and proofs.has(session.host.name, image.mark)
    argv = commands.show_image(image.tag) if is_known else commands.try_image(image.tag, old)
    return session.run(argv, timeout_s=_TRY_S, check=False)


def _stream(context: _PushContext, store: Store, plan: PushPlan) -> Archive:
    """The archive for `docker load`. Raises DeployError if it does not fit on the host's disk."""
    codec = codec_for(store)
    layers = context.source.get(plan.layers, codec)
    check_space(store, [layer.size for layer in layers])
    return archive(context.image, layers, context.source.sizes(), codec)


def _counted(host: str, stream: Archive, tell: Tell) -> Iterator[bytes]:
    """The archive in chunks; calls `tell` for each chunk that the connection took."""
    sent = 0
    tell(host, 0, stream.size)
    for chunk in stream.read():
        yield chunk
        sent += len(chunk)
        tell(host, sent, stream.size)


def _lacks_base(context: _PushContext, plan: PushPlan) -> bool:
    return context.local and not set(context.base.layers).isdisjoint(plan.layers)


def _pulled(session: Session, context: _PushContext) -> bool:
    """Let the host pull the base itself, by digest; whether it could. Its own network is usually the faster one."""
    return any(
        session.run(commands.pull_image(source), timeout_s=_PULL_S, check=False).code == 0
        for source in context.base.sources
    )


def _fault(session: Session, image: Image, done: Done, proofs: Proofs) -> str:
    """What is wrong with the image after `_try`, or nothing: then the host has proved it.

    The output of `docker load` proves nothing: engines from 27 on load and name an image without having its layers.
    Such an image is removed. Raises DeployError if sending more would not help.
    """
    if done.code and (cause := docker_faults.read(done.err)) and cause.name in _HOPELESS:
        raise docker_faults.fault(done.err)
    shown = next(iter(done.out.splitlines()), "")
    if not shown:
        return f"the engine refuses it: {_last_line(done.err)}"
    loaded = parse_image(shown)
    if loaded.layers != image.layers or loaded.mark != image.mark:
        return "its name belongs to another image"
    if done.code:
        session.run(commands.remove_images([image.tag]), timeout_s=_TRY_S, check=False)
        return f"the engine cannot create a container from it: {_last_line(done.err)}"
    proofs.add(session.host.name, image.mark)
    return ""


def _last_line(stderr: str) -> str:
    return next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "no message")
