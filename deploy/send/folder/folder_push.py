"""A folder onto hosts, in a folder of its own, read-only; data of another digest than cluster.toml names are refused.

A host has each content once, by its digest. A content that changed a little is made from the one before: only the
changed files are sent. A node reads all of it when it starts, and refuses another digest (trainer/node/files/work.py).
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
from ...job.again import command_of
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
# By its place within `muster`, where a wheel has it too.
_PACKAGES = {"muster": PACKAGE, "muster/trainer": CHECKOUT / "trainer"}
_HALVES = {"deploy", "trainer"}


@dataclass(frozen=True)
class HostFolders:
    """What a host has: `at` and `data`, where it keeps folders and data; the bytes `free` there; and by their names the
    listing of each."""

    at: str
    free: int | None
    listings: Mapping[str, str]
    data: str = ""


@dataclass(frozen=True)
class FolderPlan:
    """What one host lacks: `stream` is None if it has all. `below`: the digest that the changes stand on. `why`: what
    is sent, in words; empty if it has all."""

    stream: FolderStream | None
    below: str
    why: str


def name_of(digest: str, is_data: object) -> str:
    """What hosts call a content: data lies apart from what a push of code replaces."""
    return f"data/{digest}" if is_data else digest


class Outgoing:
    """A folder as it is now, to lie at `target` in containers, and what hosts may have of it. Several threads may ask.

    `what`: its name in messages. `places`: as FolderStream has them. `older`: the contents that hosts may have of it,
    by their digests, the newest first, each with its listing and how to read it.
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
        # The hosts look meanwhile, and most likely have what was pushed last.
        if memory and (newest := next(iter(self.older), "")):
            self._plans[newest] = self._planned(memory.content(newest))

    @property
    def older(self) -> list[str]:
        """The digests of the contents before this one."""
        listings = self._memory.listings if self._memory else {}
        return [digest for digest in listings if digest != self.content.digest]

    @property
    def names(self) -> list[str]:
        """What this content, and those before it, are called on a host."""
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
        """Where the host has it, or will have it, and what it lacks of it."""
        plan, digest = self.plan(folders), self.content.digest
        at, size = folders.data if self.is_data else folders.at, plan.stream.size if plan.stream else 0
        return HostFolder(f"{at}/{digest}", self.target, digest, plan.why, size)

    def save(self) -> None:
        """Remember the digests of its files, and make what `keep` needs: hosts are at work meanwhile."""
        if self._look:
            self._look.memory.save(self._entries, self._look.choice)
        self.content.listing  # noqa: B018 (a cached property)

    def keep(self) -> None:
        """A host has it now: the next push may stand on it."""
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
    """The user's folder, or data. Raises as FolderLook.result, for a file that cannot be read, and for data that is not
    what cluster.toml says."""
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
    """Muster's own packages, for an image that lacks them. A checkout and an installed Muster give the same."""
    entries, places, records = dict[str, Entry](), dict[str, Path](), list[str]()
    for path, place in _trainer():
        if entry := content.read_entry(place.parent, place.name):
            entry.path, entry.mode = path, 0o644 if entry.isreg() else entry.mode
            digest = hashlib.sha256(place.read_bytes()).hexdigest() if entry.isreg() else ""
            entries[path], places[path] = entry, place
            records.append(record_of(path, entry, digest))
    return Outgoing(CODE, CHECKOUT, entries, Content(tuple(records)), what=" of Muster", places=places)


def _trainer() -> Iterator[tuple[str, Path]]:
    """The paths of the trainer package, and of what it needs, each with the file that it is here."""
    for name, folder in _PACKAGES.items():
        yield name, folder
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            half = folder == PACKAGE and INSTALLED and inside.parts[0] in _HALVES
            if not half and "__pycache__" not in inside.parts:
                yield f"{name}/{inside.as_posix()}", path


def look_at_folders(session: Session, names: Sequence[str]) -> HostFolders:
    """Ask a host which of these contents, by their names there, it has. Raises DeployError."""
    return parse(session.run(_SCRIPT("look-folders", *names), timeout_s=_LOOK_S).out, names)


def parse(answer: str, names: Sequence[str]) -> HostFolders:
    """Read the answer of the script look-folders. Raises BadAnswer."""
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
    """Raise DeployError if the streams do not fit."""
    rooms = [plan.stream.room for plan in plans if plan.stream]
    if rooms:
        refuse_full(folders.at, "the folder", sum(rooms), folders.free)


def send_folder(session: Session, outgoing: Outgoing, folders: HostFolders, road: Road) -> Counter[str]:
    """Send what the host lacks; returns the bytes by who sent them. Raises DeployError; what the host had before stays
    then."""
    plan, name = outgoing.plan(folders), outgoing.names[0]
    if plan.stream is None:
        if outgoing.is_data:
            session.run(_SCRIPT("use-data", name))
        return Counter()
    check_space([plan], folders)
    # What stands on another folder needs no listing, which takes its time.
    listing = "" if plan.below else outgoing.content.listing
    argv = _SCRIPT("receive-folder", name, listing, plan.below, *outgoing.older)
    done, sources = road.send(session, argv, Cargo(plan.stream.parts, plan.stream.room))
    if done.code:
        raise refused(done.err, session.name, folders, plan.stream.room)
    return sources


def refused(err: str, host: str, folders: HostFolders, need: int) -> DeployError:
    """Why a host did not take a folder that needs so many bytes there, from its last words."""
    cause = docker_faults.read(err)
    if cause and cause.name == "disk-full":
        before = f", and {amount(folders.free)} were free before" if folders.free is not None else ""
        text = f"{host}: its disk is full at {folders.at}: the folder needs {amount(need)} there{before}"
        how = f"`df -h ~` there; `{command_of('clean', hosts=host)}` shows what Muster keeps"
        return DeployError(f"{text}; nothing of it stays there", f"free some space on {host} ({how}), then push again")
    return DeployError(f"{folders.at}: the host did not accept the folder: {last_line(err)}", "push again")
