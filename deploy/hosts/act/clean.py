"""`muster clean`: show what Muster keeps on the hosts, and remove what the user chooses.

It removes nothing that a container uses and nothing of another user: it checks each item on the host again first.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from ...core.errors import DONE, STOPPED, DeployError, UsageError
from ...core.names import run_id
from ...core.results import Results
from ...core.text import amount, duration, several, shortened
from ...door.session import Session, SshFault, among, on_all, open_all
from ...engine import reach
from ...host import audit, commands, leftovers
from ...host import lock as host_lock
from ...host.leftovers import KINDS, InUse, Leftover, Selection
from ...job.load import known_cluster
from ...job.options import FLAG, Options, flag_of
from ...report.console import Console
from .. import nodes
from ..node.sent_folders import words_of
from ..start import observe
from .delete import delete_folder

_LOOK_S, _REMOVE_S = 600.0, 3600.0


def clean(options: Options, wanted: Selection, console: Console) -> int:
    """List what the hosts keep, or remove what is `wanted` once the user has agreed.

    Raises UsageError if it cannot ask the user, DeployError with every host that failed.
    """
    with open_all(known_cluster(options).hosts) as opened:
        sessions = list(opened.all().values())
        by_host = leftovers.mark_shared_runs(on_all(sessions, look).all())
        if not wanted.has_any:
            _show(by_host, console)
            return DONE
        for kind, name in leftovers.unknown(by_host, wanted):
            raise UsageError(f"{flag_of(kind)} {name}: no host has it", "muster clean lists what they have")
        choices = {host: leftovers.chosen(things, wanted) for host, things in by_host.items()}
        for host, (_, used) in choices.items():
            for thing in used:
                console.note(f"{host}: {thing.kind} {thing.name} stays: a container uses it")
        goes = {host: free for host, (free, _) in choices.items() if free}
        if not goes:
            console.note("nothing to remove")
            return DONE
        if not options.yes and not _agreed(goes, console):
            console.note("nothing was removed")
            return STOPPED
        busy = among(sessions, goes)
        # A deploy holds the same lock until its nodes run.
        with host_lock.lock_hosts(busy, "clean"):
            removed = on_all(busy, lambda session: _remove(session, goes[session.name]))
        return _tell(removed, goes, console)


def look(session: Session) -> list[Leftover]:
    """List what Muster keeps on a host. Raises DeployError."""
    answer = session.run(commands.script("clean-list"), timeout_s=_LOOK_S).out
    return leftovers.parse(answer, _had(session), *reach.on_host(session).stored(_LOOK_S))


def _had(session: Session) -> InUse:
    """What containers on the host use now: our running runs, and the folders that any user's containers use."""
    runs = frozenset(each.run for each in observe.containers_of(session) if each.ours and each.code is None)
    return InUse(runs, frozenset().union(*(words_of(each.labels) for each in reach.on_host(session).containers())))


def _agreed(goes: Mapping[str, Sequence[Leftover]], console: Console) -> bool:
    for host, things in goes.items():
        for thing in things:
            console.note(f"{host}: {'   '.join(_cells(thing))}")
    count = sum(map(len, goes.values()))
    size = sum(thing.bytes or 0 for things in goes.values() for thing in things)
    return console.ask(f"Remove {several(count, 'item')}, {amount(size)}?", f"to remove what is listed, add {FLAG.yes}")


def _remove(session: Session, things: Sequence[Leftover]) -> dict[str, str]:
    """Remove these items, and return what happened to each, by kind and name."""
    ends = {f"{thing.kind} {thing.name}": _remove_one(session, thing) for thing in things}
    gone = [what for what, end in ends.items() if end == "removed"]
    if gone:
        audit.note(session, audit.Action.CLEANED, ", ".join(gone)[:500])
    return ends


def _remove_one(session: Session, thing: Leftover) -> str:
    """Remove one item; returns `removed`, `used` or `failed`. Something may have started since the item was listed."""
    try:
        if thing.kind in ("images", "packages") or ("/" not in thing.name and thing.kind == "caches"):
            gone = reach.on_host(session).remove_stored("images" if thing.kind == "images" else "volumes", thing.name)
            return "removed" if gone else "used"
        if _had(session).uses(thing.kind, thing.name):
            return "used"
        if thing.kind == "runs":
            nodes.remove([session], thing.name).all()
            delete_folder(session, run_id(thing.name))
        else:
            session.run(commands.script("clean-remove", thing.kind, thing.name), timeout_s=_REMOVE_S)
    except SshFault:
        raise
    except DeployError:
        return "failed"
    return "removed"


def _tell(removed: Results[dict[str, str]], goes: Mapping[str, Sequence[Leftover]], console: Console) -> int:
    """Print what was removed and what was not. Raises DeployError if something could not be removed."""
    failed = []
    for host, ends in removed.values.items():
        for what, end in ends.items():
            console.line(f"{host}  {end}  {what}", {"kind": "cleaned", "host": host, "what": what, "end": end})
            failed += [f"{host}: {what}"] if end == "failed" else []
        size = sum(thing.bytes or 0 for thing in goes[host] if ends.get(f"{thing.kind} {thing.name}") == "removed")
        shared = any(what.startswith("images ") for what, end in ends.items() if end == "removed")
        console.note(f"{host}: removed {amount(size)}{', but images share layers' if shared else ''}")
    removed.all()
    if failed:
        raise DeployError(f"could not be removed: {', '.join(failed)}", "look at it on that host")
    return DONE


def _show(by_host: Mapping[str, Sequence[Leftover]], console: Console) -> None:
    for host, of_host in by_host.items():
        things = sorted(of_host, key=lambda entry: (KINDS.index(entry.kind), entry.age_s or 0))
        rows = [(host, *_cells(thing), "in use" if thing.used else "") for thing in things]
        values = (
            {"kind": "kept", "host": host, "what": thing.kind, "name": thing.name, "age_s": thing.age_s,
             "bytes": thing.bytes, "used": thing.used} for thing in things
        )  # fmt: skip
        console.table((), rows, values)
        total = amount(sum(thing.bytes or 0 for thing in things))
        shared = "; images share layers" if sum(thing.kind == "images" for thing in things) > 1 else ""
        console.note(f"{host}: {several(len(things), 'item')}, {total}{shared}" if things else f"{host}: nothing")
        if others := [thing.name for thing in things if thing.kind == "elsewhere"]:
            whose = (
                f"{host}: left by a host with another name: an earlier name of this host, or a host that shares "
                "its home folder"
            )
            console.note(f"{whose}; once nobody uses it, run there: rm -rf ~/.muster/{others[0]}")
    sizes = Counter[str]()
    for thing in itertools.chain(*by_host.values()):
        if not thing.used and thing.kind != "elsewhere":
            sizes[f"{flag_of(thing.kind)}{' ID' * (thing.kind in ('runs', 'data'))}"] += thing.bytes or 0
    if sizes:
        adds = ", ".join(f"{flag} ({amount(size)})" if size else flag for flag, size in sizes.most_common())
        console.hint(f"to remove some of it, add to this command: {adds}; it asks first")


def _cells(thing: Leftover) -> tuple[str, ...]:
    """The item's kind, name, age and size; a folder's digest is shortened, since users do not type it."""
    name = shortened(thing.name, 12) if thing.kind == "folders" else thing.name
    age = duration(thing.age_s) if thing.age_s is not None else "unknown age"
    return thing.kind, name, age, amount(thing.bytes) if thing.bytes is not None else "unknown size"
