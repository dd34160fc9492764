"""Send a folder to hosts, each content into its own read-only folder; refuse data with another digest than promised.

A host has each content once, named by its digest. If only a little has changed, the host makes the new content from an
older one, and only the changed files are sent. A node reads all of it when it starts, and refuses content with another
digest (trainer/node/files/work.py). For data, cluster.toml may give the digest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock

from ...causes import docker_faults
from ...core import fields
from ...core.errors import BadAnswer, DeployError, UsageError
from ...core.fields import digits
from ...core.scripts import Scripts
from ...core.text import amount, last_line, several
from ...door.session import Session
from ...job.option_words import command_of
from ...run.files.folders import CHECKOUT, INSTALLED, PACKAGE
from ..road.cargo import Cargo
from ..road.road import Road
from ..space import refuse_full
from . import content
from .content import CODE, WORKSPACE, Content, Entry, HostFolder, record_of
from .folder_look import FolderLook
from .folder_stream import FolderStream

_SCRIPT, _LOOK_S = Scripts(__file__), 600.0
_AT, _FREE, _LISTING = fields.text(4096, r"/[^\x00-\x1f\x7f]*"), digits(1 << 50), fields.text(64, r"[0-9a-f]{0,64}")
# By their place inside `muster`, which is where a wheel has them too.
_PACKAGES = {"muster": PACKAGE, "muster/trainer": CHECKOUT / "trainer"}
_HALVES = {"deploy", "trainer"}


@dataclass(frozen=True)
class HostFolders:
    """What a host has.

    `at` and `data`: where it keeps folders and data. `free`: the free bytes there. `listings`: the listing of each
    content, by name.
    """

    at: str
    free: int | None
    listings: Mapping[str, str]
    data: str = ""


@dataclass(frozen=True)
class FolderPlan:
    """What one host lacks.

    `stream`: what to send; None if the host has everything. `below`: the digest of the content that the changes apply
    to. `why`: what is sent, in words; empty if the host has everything.
    """

    stream: FolderStream | None
    below: str
    why: str


def name_of(digest: str, is_data: object) -> str:
    """The name that hosts use for a content: data is kept apart from the code, which each push replaces."""
    return f"data/{digest}" if is_data else digest


class Outgoing:
    """A folder as it is now, which containers will see at `target`, and the older versions that hosts may have.

    Several threads may use it. `what`: its name in messages. `places`: as in FolderStream. `look`: the look that found
    the entries; its memory has the older contents, the newest first, with their listings.
    """

    def __init__(
        self,
        target: str,
        folder: Path,
        entries: Mapping[str, Entry],
        content: Content,
        *,
        what: str = "",
        places: Mapping[str, Path] | None = None,
        look: FolderLook | None = None,
    ) -> None:
        self.target, self.content, self.is_data = target, content, bool(look and look.data)
        self._folder, self._entries, self._what, self._places, self._look = folder, entries, what, places, look
        self._memory = memory = look.memory if look else None
        self._lock, self._plans = Lock(), dict[str, FolderPlan]()
        # The hosts are being asked meanwhile, and most likely have the newest older content: plan for that one now.
        if memory and (newest := next(iter(self.older), "")):
            self._plans[newest] = self._planned(memory.content(newest))

    @property
    def older(self) -> list[str]:
        """The digests of the older contents that hosts may have, the newest first."""
        listings = self._memory.listings if self._memory else {}
        return [digest for digest in listings if digest != self.content.digest]

    @property
    def names(self) -> list[str]:
        """The names of this content, and of the older ones, on a host."""
        return [self._name(digest) for digest in (self.content.digest, *self.older)]

    def _name(self, digest: str) -> str:
        return name_of(digest, self.is_data)

    def plan(self, folders: HostFolders) -> FolderPlan:
        """What a host with these folders lacks."""
        listed = folders.listings.get(self._name(self.content.digest))
        if listed and listed == self.content.listing:
            return FolderPlan(None, "", "")
        known = self._memory.listings if self._memory else {}
        listings = folders.listings
        below = next((digest for digest in self.older if listings.get(self._name(digest)) == known[digest]), "")
        with self._lock:
            if below not in self._plans:
                self._plans[below] = self._planned(self._memory.content(below) if self._memory and below else None)
            return self._plans[below]

    def on_host(self, folders: HostFolders) -> HostFolder:
        """Where the host has it, or will have it, and what the host lacks of it."""
        plan, digest = self.plan(folders), self.content.digest
        at, size = folders.data if self.is_data else folders.at, plan.stream.size if plan.stream else 0
        return HostFolder(f"{at}/{digest}", self.target, digest, plan.why, size)

    def save(self) -> None:
        """Remember the files' digests, and compute the listing that `keep` needs, while hosts are at work."""
        if self._look:
            self._look.memory.save(self._entries, self._look.choice)
        self.content.listing  # noqa: B018 (a cached property)

    def keep(self) -> None:
        """Remember that a host has it now: the next push can send only the changes."""
        if self._memory:
            self._memory.keep(self.content)

    def _planned(self, below: Content | None) -> FolderPlan:
        if below:
            paths, gone = self.content.since(below)
            changed = [self._entries[path] for path in paths]
            all_bytes = sum(entry.size for entry in self._entries.values())
            if sum(entry.size for entry in changed) <= all_bytes // (1 if self.is_data else 4):
                what = [several(len(changed), "new or changed path")] if changed else []
                what += [several(len(gone - paths), "removed path")] if gone - paths else []
                return FolderPlan(FolderStream(self._folder, changed, gone), below.digest, self._why(", ".join(what)))
        files = sum(not entry.isdir() for entry in self._entries.values())
        stream = FolderStream(self._folder, self._entries.values(), places=self._places)
        return FolderPlan(
            stream, "", self._why(several(files, "file") if files == 1 else f"all {several(files, 'file')}")
        )

    def _why(self, what: str) -> str:
        return f"{what}{self._what}"


def outgoing_folder(look: FolderLook) -> Outgoing:
    """The user's folder, or data.

    Raises the errors of FolderLook.result, DeployError for a file that cannot be read, and UsageError if data does not
    have the digest that cluster.toml gives.
    """
    entries, data = {entry.path: entry for entry in look.result().entries}, look.data
    now = look.memory.now(entries)
    if data and data.digest not in ("", now.digest):
        raise UsageError(
            f"{look.folder}: the digest of this data is {now.digest}, but cluster.toml has {data.digest}",
            "use the right folder; or, if the data may change, remove the digest from the file",
        )
    what = f" of {data.target}" if data else " of your folder"
    return Outgoing(data.target if data else WORKSPACE, look.folder, entries, now, what=what, look=look)


@cache
def outgoing_trainer() -> Outgoing:
    """Muster's own packages, for an image that lacks them. A checkout and an installed Muster give the same content."""
    entries, places, records = dict[str, Entry](), dict[str, Path](), list[str]()
    for path, place in _trainer():
        if entry := content.read_entry(place.parent, place.name):
            entry.path, entry.mode = path, 0o644 if entry.isreg() else entry.mode
            digest = hashlib.sha256(place.read_bytes()).hexdigest() if entry.isreg() else ""
            entries[path], places[path] = entry, place
            records.append(record_of(path, entry, digest))
    return Outgoing(CODE, CHECKOUT, entries, Content(tuple(records)), what=" of Muster", places=places)


def _trainer() -> Iterator[tuple[str, Path]]:
    """The paths of the trainer package and of what it needs, each with the file on this machine."""
    for name, folder in _PACKAGES.items():
        yield name, folder
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            half = folder == PACKAGE and INSTALLED and inside.parts[0] in _HALVES
            if not half and "__pycache__" not in inside.parts:
                yield f"{name}/{inside.as_posix()}", path


def look_at_folders(session: Session, names: Sequence[str]) -> HostFolders:
    """Ask a host which of these contents it has, by their names there. Raises DeployError."""
    return parse(session.run(_SCRIPT("look-folders", *names), timeout_s=_LOOK_S).out, names)


def parse(answer: str, names: Sequence[str]) -> HostFolders:
    """Parse the output of the script look-folders. Raises BadAnswer."""
    at, data, free, listings = "", "", None, {}
    for line in answer.split("\n"):
        word, _, rest = line.partition(" ")
        if word == "at":
            at = _AT(rest, "its folders")
        elif word == "data":
            data = _AT(rest, "its data")
        elif word == "free":
            free = _FREE(rest, "free") * 1024
        elif word == "has" and (name := rest.partition(" ")[0]) in names:
            listings[name] = _LISTING(rest.partition(" ")[2], "a listing")
    if not at or not data:
        raise BadAnswer("its folders", "`at FOLDER` and `data FOLDER`", answer[:200])
    return HostFolders(at, free, listings, data)


def check_space(plans: Sequence[FolderPlan], folders: HostFolders) -> None:
    """Raise DeployError if the streams do not fit on the host's disk."""
    rooms = [plan.stream.room for plan in plans if plan.stream]
    if rooms:
        refuse_full(folders.at, "the folder", sum(rooms), folders.free)


def send_folder(session: Session, outgoing: Outgoing, folders: HostFolders, road: Road) -> Counter[str]:
    """Send what the host lacks; return the bytes by their source.

    Raises DeployError; the host then still has what it had before.
    """
    plan, name = outgoing.plan(folders), outgoing.names[0]
    if plan.stream is None:
        if outgoing.is_data:
            session.run(_SCRIPT("use-data", name))
        return Counter()
    check_space([plan], folders)
    # Changes to another folder need no listing, which takes time to compute.
    listing = "" if plan.below else outgoing.content.listing
    argv = _SCRIPT("receive-folder", name, listing, plan.below, *outgoing.older)
    done, sources = road.send(session, argv, Cargo(plan.stream.parts, plan.stream.room))
    if done.code:
        raise refused(done.err, session.name, folders, plan.stream.room)
    return sources


def refused(err: str, host: str, folders: HostFolders, need: int) -> DeployError:
    """Why a host did not take a folder that needs `need` bytes there, from the last words of the script."""
    cause = docker_faults.read_cause(err)
    if cause and cause.name == "disk-full":
        before = f", and {amount(folders.free)} were free before" if folders.free is not None else ""
        text = f"{host}: its disk is full at {folders.at}: the folder needs {amount(need)} there{before}"
        how = f"`df -h ~` there; `{command_of('clean', hosts=host)}` shows what Muster keeps"
        return DeployError(f"{text}; nothing of it stays there", f"free some space on {host} ({how}), then push again")
    return DeployError(f"{folders.at}: the host did not accept the folder: {last_line(err)}", "push again")
