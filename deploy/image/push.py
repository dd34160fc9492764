"""An image onto hosts without a registry: a host is asked what it has, sent what it lacks, and has to prove the result.

The order of one push: the base (here, or pulled on the hosts) and the folder make the image; per host look and decide
(image/push_plan.py); once every host can take it, stream an archive into `docker load`, try the image. The base is read
once for all hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core import docker_faults
from ..core.errors import DeployError
from ..core.results import Results
from ..core.text import amount
from ..engine import images
from ..host import audit
from ..ssh.session import Done, Session, on_all
from . import code_layer, commands
from .archive import Archive, archive
from .credentials import NO_CHOICE, Choice
from .layer_cache import LayerCache, default_folder
from .layer_source import Supply
from .model import Base, Image, base_of, digest, has_trainer, parse_base, refuse_other_trainer, run_image
from .push_plan import Sending, Store, check_space, codec_for, everything, parse_image, parse_store, plan_push, replaced

Tell = Callable[[str, int, int], None]
HERE = "this machine"
_LOOK_S = 60.0
_TRY_S = 120.0
# An engine that pulls says nothing meanwhile; 10 GB at 2 MB/s take an hour and a half.
_PULL_S = 4 * 3600.0
# Sending more would not help.
_HOPELESS = ("disk-full", "docker-down", "docker-permission")


@dataclass(frozen=True)
class Pushed:
    """What a push did on one host: bytes sent (0 when it had the image), and why as many."""

    sent_bytes: int
    why: str


@dataclass(frozen=True)
class _Goods:
    """What is pushed, and where its layers come from."""

    image: Image
    base: Base
    local: bool
    supply: Supply
    tell: Tell


def push(
    sessions: Iterable[Session],
    base: str,
    folder: Path | None,
    tag: str,
    tell: Tell,
    cache: LayerCache | None = None,
    proven: bool = False,
    choice: Choice = NO_CHOICE,
) -> Results[Pushed]:
    """Bring `base` with `folder` on top onto every host, named `tag`; per host what it took, or its fault.

    `tell(host, sent, total)` is called from several threads with bytes so far, also for `HERE` while the base is read
    from the local engine. A push that was cut leaves nothing; the next one starts from zero. proven: an image of this
    name has just run on the hosts; if it is this image, it is not tried again. choice: which files to send.
    Raises UsageError for a bad folder or name, DeployError when nobody has the base, and HostsFailed, before anything
    is sent to any host, with every host that cannot take it.
    """
    sessions = list(sessions)
    bases = _find_base(sessions, base, pull=True)
    goods = _goods(bases, _code(folder, _agreed(bases), choice), tag, tell, cache or LayerCache(default_folder()))
    stores = on_all(sessions, lambda session: _ready(session, goods, bases)).all()
    return on_all(sessions, lambda session: _bring(session, goods, stores[session.host.name], proven))


def foresee(
    sessions: Iterable[Session], base: str, folder: Path | None, tag: str, choice: Choice = NO_CHOICE
) -> Results[Sending]:
    """What `push` would send to each host, and why. Changes nothing. Raises as `push` does."""
    sessions = list(sessions)
    bases = _find_base(sessions, base, pull=False)
    if not bases.values:
        return on_all(sessions, lambda session: Sending((), False, f"{base} would be pulled there first"))
    base_image = _agreed(bases)
    code = _code(folder, base_image, choice)
    image = run_image(base_image, digest(code) if code else None, tag)
    return on_all(sessions, lambda session: plan_push(image, look(session, image, base_image)))


def look(session: Session, image: Image, base: Base) -> Store:
    """Ask a host's engine what it is and has. Raises DeployError when it has none that answers."""
    names = (image.tag, base.name, *base.sources)
    done = session.run(commands.look_at_images(names), timeout_s=_LOOK_S, check=False)
    # `docker info` ends with 0 also when no engine answered.
    if done.code or '"version":""' in done.out:
        raise docker_faults.fault(done.err)
    return parse_store(done.out)


def _find_base(sessions: Sequence[Session], name: str, pull: bool) -> Results[Base]:
    """The base under `HERE` when the local engine has it; else as each host has it, pulled there if need be."""
    if inspected := images.inspect(name):
        return Results({HERE: base_of(name, inspected)})

    def ask(session: Session) -> Base:
        done = session.run(commands.inspect_image(name), timeout_s=_LOOK_S, check=False)
        if done.code and "no such image" not in done.err.lower():
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

    return on_all(sessions, ask)


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


def _goods(bases: Results[Base], code: bytes | None, tag: str, tell: Tell, cache: LayerCache) -> _Goods:
    base, local = _agreed(bases), HERE in bases.values
    image = run_image(base, digest(code) if code else None, tag)
    supply = Supply(base, code, local, cache, lambda read: tell(HERE, min(read, base.size), base.size))
    return _Goods(image, base, local, supply, tell)


def _code(folder: Path | None, base: Base, choice: Choice) -> bytes | None:
    """The layer on top of the base: the user's folder, and the trainer where the base is not Muster's own image."""
    apart = not has_trainer(base)
    return code_layer.pack(folder, apart, choice) if folder or apart else None


def _ready(session: Session, goods: _Goods, bases: Results[Base]) -> Store:
    """What the host has. Raises DeployError when it cannot take the image."""
    host = session.host.name
    if host in bases.faults:
        raise bases.faults[host]
    if (own := bases.values.get(host)) and own.layers != goods.base.layers:
        raise DeployError(
            f"{host} has another {goods.base.name} than {next(iter(bases.values))}",
            "name the base by its digest (name@sha256:...), so that all hosts pull the same",
        )
    store = look(session, goods.image, goods.base)
    if lacking := plan_push(goods.image, store).layers:
        check_space(store, [goods.supply.weight(lacking)])
    return store


def _bring(session: Session, goods: _Goods, store: Store, proven: bool) -> Pushed:
    sending = plan_push(goods.image, store)
    if sending.there and proven and not replaced(goods.image, store):
        return Pushed(0, sending.why)
    if _lacks_base(goods, sending) and _pulled(session, goods):
        store = look(session, goods.image, goods.base)
        sending = plan_push(goods.image, store)
    return _deliver(session, goods, store, sending)


def _deliver(session: Session, goods: _Goods, store: Store, sending: Sending) -> Pushed:
    """Send, and have the host prove it; where that fails, once more with all layers."""
    sent = 0
    old = replaced(goods.image, store)
    for attempt in (sending, everything(goods.image, "all layers: what was there did not do")):
        if attempt.there:
            done = session.run(commands.try_image(goods.image.tag, old), timeout_s=_TRY_S, check=False)
        else:
            parcel = _parcel(goods, store, attempt)
            argv, chunks = commands.receive_image(goods.image.tag, old), _counted(session.host.name, parcel, goods.tell)
            done = session.run(argv, input=chunks, moving=True, check=False)
            sent += parcel.size
        if not (fault := _fault(session, goods.image, done)):
            if sent:
                audit.note(session, f"pushed {goods.image.tag}: {amount(sent)}")
            return Pushed(sent, attempt.why)
        if attempt.layers == goods.image.layers:
            break
    raise DeployError(f"{goods.image.tag} was sent, but {fault}", "push again")


def _parcel(goods: _Goods, store: Store, sending: Sending) -> Archive:
    """What `docker load` is to be given. Raises DeployError when it would not fit on the host's disk."""
    codec = codec_for(store)
    layers = goods.supply.take(sending.layers, codec)
    check_space(store, [layer.size for layer in layers])
    return archive(goods.image, layers, goods.supply.sizes(), codec)


def _counted(host: str, parcel: Archive, tell: Tell) -> Iterator[bytes]:
    """The archive in chunks; `tell` hears of each once the connection has taken it."""
    sent = 0
    tell(host, 0, parcel.size)
    for chunk in parcel.read():
        yield chunk
        sent += len(chunk)
        tell(host, sent, parcel.size)


def _lacks_base(goods: _Goods, sending: Sending) -> bool:
    return goods.local and not set(goods.base.layers).isdisjoint(sending.layers)


def _pulled(session: Session, goods: _Goods) -> bool:
    """Whether the host could fetch the base itself, by digest: its own network is mostly the faster one."""
    return any(
        session.run(commands.pull_image(source), timeout_s=_PULL_S, check=False).code == 0
        for source in goods.base.sources
    )


def _fault(session: Session, image: Image, done: Done) -> str:
    """What is wrong with the image that the host was to show and to create a container from; or nothing.

    The output of `docker load` is no proof: engines from 27 on load and name an image whose layers they did not get.
    Such an image is removed. Raises DeployError where sending more would not help.
    """
    if done.code and (cause := docker_faults.read(done.err)) and cause.name in _HOPELESS:
        raise docker_faults.fault(done.err)
    shown = next(iter(done.out.splitlines()), "")
    if not shown:
        return f"the engine refuses it: {_last_line(done.err)}"
    held = parse_image(shown)
    if held.layers != image.layers or held.mark != image.mark:
        return "the name stands for another image"
    if done.code:
        session.run(commands.remove_images([image.tag]), timeout_s=_TRY_S, check=False)
        return f"no container can be created from it: {_last_line(done.err)}"
    return ""


def _last_line(stderr: str) -> str:
    return next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "it said nothing")
