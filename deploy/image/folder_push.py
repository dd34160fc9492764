"""A large folder onto hosts: as files in a folder of their own, which the run's container gets read-only.

An engine would write what it loads twice. So only small folders are a layer of the image (code_layer.py). A host has
each content once, by its digest; a content that changed a little is made from the one before, and only the changed
files are sent. A node reads all of it when it starts, and refuses what has another digest (trainer/node/work.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from ..causes import docker_faults
from ..core import fields
from ..core.errors import BadAnswer, DeployError
from ..core.fields import digits
from ..core.program import FAB
from ..core.text import amount, last_line, several
from ..door.session import Session
from . import commands
from .content import Content
from .folder_look import FolderLook
from .folder_stream import FolderStream

# Below this size, a layer is as fast, and the image alone says what ran.
LARGE = 32 << 20
_LOOK_S = 600.0
_ROOM = f"on that host: df -h ~; `{FAB} clean` shows what Muster keeps there"
_SLACK = 64 << 20  # bytes that must stay free on a host's disk
_AT, _FREE, _LISTING = fields.text(4096, r"/[^\x00-\x1f\x7f]*"), digits(0, 1 << 50), fields.text(64, r"[0-9a-f]{0,64}")


@dataclass(frozen=True)
class HostFolders:
    """What a host has: `at`, where it keeps folders; the bytes `free` there; and by digest the listing of each."""

    at: str
    free: int | None
    listings: Mapping[str, str]

    def of(self, wanted: Content) -> str:
        """Where the host has that content, or will have it."""
        return f"{self.at}/{wanted.digest}"


@dataclass(frozen=True)
class FolderPlan:
    """What one host lacks: `stream` is None if it has all. `below`: the digest that the changes stand on."""

    stream: FolderStream | None
    below: str
    why: str


class LargeFolder:
    """A folder as it is now, and what hosts may have of it. Several threads may ask."""

    def __init__(self, code: FolderLook, tell: Callable[[int, int], None]) -> None:
        self._folder, self._memory, self._choice = code.folder, code.memory, code.choice
        self._entries = {entry.path: entry for entry in code.result().entries}
        self.content = self._memory.now(self._entries, tell)
        self._lock, self._plans = Lock(), dict[str, FolderPlan]()
        # The hosts look meanwhile, and most likely have what was pushed last.
        if newest := next(iter(self.older), ""):
            self._plans[newest] = self._planned(self._memory.content(newest))

    @property
    def digests(self) -> list[str]:
        """All that a host is asked for."""
        return [self.content.digest, *self.older]

    @property
    def older(self) -> list[str]:
        """The digests of the contents before this one."""
        return [digest for digest in self._memory.listings if digest != self.content.digest]

    def plan(self, folders: HostFolders) -> FolderPlan:
        """What a host with these folders lacks."""
        listed = folders.listings.get(self.content.digest)
        if listed and listed == self.content.listing:
            return FolderPlan(None, "", "the host has the folder")
        older = (digest for digest in self.older if folders.listings.get(digest) == self._memory.listings[digest])
        below = next(older, "")
        with self._lock:
            if below not in self._plans:
                self._plans[below] = self._planned(self._memory.content(below) if below else None)
            return self._plans[below]

    def save(self) -> None:
        """Remember the digests of its files, and make what `keep` needs: hosts are at work meanwhile."""
        self._memory.save(self._entries, self._choice)
        self.content.listing  # noqa: B018 (a cached property)

    def keep(self) -> None:
        """A host has it now: the next push may stand on it."""
        self._memory.keep(self.content)

    def _planned(self, below: Content | None) -> FolderPlan:
        if below:
            paths, gone = self.content.since(below)
            changed = [self._entries[path] for path in paths]
            if sum(entry.size for entry in changed) <= sum(entry.size for entry in self._entries.values()) // 4:
                what = [several(len(changed), "new or changed path")] if changed else []
                what += [several(len(gone - paths), "removed path")] if gone - paths else []
                return FolderPlan(FolderStream(self._folder, changed, gone), below.digest, ", ".join(what))
        files = sum(not entry.isdir() for entry in self._entries.values())
        return FolderPlan(FolderStream(self._folder, self._entries.values()), "", f"all {several(files, 'file')}")


def look(session: Session, digests: Sequence[str]) -> HostFolders:
    """Ask a host which of these contents it has. Raises DeployError."""
    return parse(session.run(commands.look_folders(digests), timeout_s=_LOOK_S).out, digests)


def parse(answer: str, digests: Sequence[str]) -> HostFolders:
    """Read the answer of the script look-folders. Raises BadAnswer."""
    at, free, listings = "", None, {}
    for line in answer.split("\n"):
        word, _, rest = line.partition(" ")
        if word == "at":
            at = _AT(rest, "its folders")
        elif word == "free":
            free = _FREE(rest, "free") * 1024
        elif word == "has" and (name := rest.partition(" ")[0]) in digests:
            listings[name] = _LISTING(rest.partition(" ")[2], "a listing")
    if not at:
        raise BadAnswer("its folders", "`at FOLDER`", answer[:200])
    return HostFolders(at, free, listings)


def check_space(plan: FolderPlan, folders: HostFolders) -> None:
    """Raise DeployError if the stream does not fit."""
    need = plan.stream.room + _SLACK if plan.stream else 0
    if folders.free is not None and folders.free < need:
        raise DeployError(
            f"not enough disk space in {folders.at}: the folder needs {amount(need)}, {amount(folders.free)} are free",
            _ROOM,
        )


def bring(
    session: Session,
    large: LargeFolder,
    folders: HostFolders,
    tell: Callable[[int, int], None],
) -> int:
    """Send what the host lacks; returns the bytes. Raises DeployError; what the host had before stays then."""
    plan = large.plan(folders)
    if plan.stream is None:
        return 0
    check_space(plan, folders)
    size, wanted = plan.stream.size, large.content
    # What stands on another folder needs no listing, which takes its time.
    listing = "" if plan.below else wanted.listing
    argv = commands.receive_folder(wanted.digest, listing, plan.below, large.older)
    tell(0, size)
    done = session.run(argv, input=plan.stream.read(lambda sent: tell(sent, size)), moving=True, check=False)
    if done.code:
        raise refused(done.err, session.host.name, folders, plan.stream.room)
    return size


def refused(err: str, host: str, folders: HostFolders, need: int) -> DeployError:
    """Why a host did not take a folder that needs so many bytes there, from its last words."""
    cause = docker_faults.read(err)
    if cause and cause.name == "disk-full":
        before = f", and {amount(folders.free)} were free before" if folders.free is not None else ""
        text = f"{host}: its disk is full at {folders.at}: the folder needs {amount(need)} there{before}"
        how = f"`df -h ~` there; `{FAB} clean --hosts {host}` shows what Muster keeps"
        return DeployError(f"{text}; nothing of it stays", f"free room on {host} ({how}), then push again")
    return DeployError(f"{folders.at}: the host did not take the folder: {last_line(err.encode())}", "push again")
