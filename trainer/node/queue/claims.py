"""What the runs and deploys of all users hold on this host, or wait for: files in a folder that root owns.

MUSTER_CLAIM contains the text of this node's own claim, `run-NUMBER-TOKEN` (docs/decisions/0057, 0139). From start to
end the agent keeps the lock file next to it locked; a container normally sees only this lock file of all claims. A node
that waits also has its own claim's text, and may read other nodes' claims. Taking something needs no lock: a node
writes what it takes, and then checks once more for rivals. Other users may write anything into this folder. Standard
library only.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muster.files import object_of, seen_at

TEXT, OWN, FOLDER = "MUSTER_CLAIM", seen_at("/muster/claim"), seen_at("/muster/claims")
DEPLOYS, RESTS, WAITS, HOLDS, RUNS = "deploys", "rests", "waits", "holds", "runs"
_NAME = re.compile(r"(claim|run)-([0-9]{1,20})-([0-9a-f]{1,64})(?:-[0-9a-f]{1,16})?")
# Only this many claims of each user count, so that no user can crowd out the claims of others.
_MOST_BYTES, _MOST_WORDS, _MOST_CLAIMS = 4000, 200, 200
# An engine restarts a node within a minute. A working command touches its claim every few seconds, and a new claim is
# not locked yet.
_RETURN_S, _FRESH_S = 90.0, 60.0
# Hosts remove old files from temporary folders, so a claim is touched. Whoever may read a file can prevent its owner
# from locking it: the owner then touches the file more often instead.
_TOUCH_S, _UNLOCKED_TOUCH_S = 3600.0, 15.0
# The kernel's struct flock, for the whole file. Only a process that may write to a file can lock it for writing.
_LOCK = struct.Struct("hhqqi4x")
# A waiting node touches its claim at each question: a node that is stopped or hangs must not keep the others waiting.
_STALE_S = 60.0


class NoClaim(Exception):
    """The claims folder cannot be used; the message says why."""


@dataclass(frozen=True)
class Claim:
    """A claim, of this run or another. `number` gives the order in which claims wait."""

    number: int
    token: str
    run: str
    user: str
    gpus: tuple[str, ...]
    whole: bool
    state: str

    @property
    def shown(self) -> str:
        """Text such as `run r1 (alice)`."""
        return f"{'the deploy of' if self.state == DEPLOYS else 'run'} {self.run} ({self.user})"


class Claims:
    """The claims on a host, as one of its nodes sees them. `token` is the token of this node's own claim."""

    def __init__(self, text: str, own: Path = OWN, folder: Path = FOLDER) -> None:
        """Open this node's own claim; `text` is its JSON, `own` its file, which only a waiting node has.

        Raises NoClaim.
        """
        self._about: dict[str, Any] = json.loads(text)
        self.token, self._folder = str(self._about["token"]), folder
        self._unlocked: dict[str, float] = {}
        self._written, self._own = b"", -1
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            lock = _lock_of(own)
            self._lock = os.open(os.path.realpath(lock) if "MUSTER_ROOT" in os.environ else lock, flags)
            with suppress(FileNotFoundError):
                self._own = os.open(own, flags)
                self._read_own()
        except OSError as fault:
            raise NoClaim(
                f"the run's claim on this host cannot be opened: {fault.filename}: {fault.strerror}"
            ) from fault
        self._locked = _lock_to_write(self._lock)
        self._user = os.fstat(self._lock).st_uid
        self.beat()
        self.write()

    @property
    def own(self) -> Claim:
        """This node's own claim, with its current content."""
        return _claim(int(self._about["number"]), self.token, self._about)

    def write(self, **changes: Any) -> None:
        """Change fields of this node's own claim. Raises NoClaim if the disk accepts no more."""
        about = {**self._about, **changes}
        # The reason contains other users' text: in full length it could make this claim too long to be read.
        about |= {"waits": about["state"] == WAITS, "why": str(about.get("why", ""))[:_MOST_WORDS]}
        data = json.dumps(about).encode() + b"\n"
        if data == self._written:
            return
        try:
            if self._own >= 0:
                os.pwrite(self._own, data, 0)
                os.ftruncate(self._own, len(data))
        except OSError as fault:
            raise NoClaim(f"the run's claim on this host cannot be written: {fault.strerror}") from fault
        self._about, self._written = about, data

    def beat(self) -> None:
        """Show the other nodes that this node still waits, or is alive."""
        for descriptor in (self._own, self._lock):
            with suppress(OSError):
                os.utime(descriptor)

    def leave(self) -> None:
        """Give everything back. The files are removed with the container."""
        with suppress(OSError):
            os.ftruncate(self._own, 0)
        for descriptor in (self._own, self._lock):
            with suppress(OSError):
                os.close(descriptor)
        self._own = self._lock = -1

    def others(self) -> list[Claim]:
        """The living claims of others, in the order of their numbers. Raises NoClaim."""
        counts, claims = Counter[int](), []
        try:
            for match, user in self._named():
                counts[user] += 1
                if counts[user] <= _MOST_CLAIMS and match[3] != self.token:
                    claims.append(self._read(match[0], int(match[2]), match[3]))
        except OSError as fault:
            raise NoClaim(f"{self._folder}: {fault.strerror}") from fault
        return sorted((claim for claim in claims if claim), key=lambda claim: (claim.number, claim.token))

    def _named(self) -> Iterator[tuple[re.Match[str], int]]:
        """The claim files, recognised by their names, each with its owner."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # the file was removed meanwhile
                    if (match := _NAME.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
                        yield match, entry.stat(follow_symlinks=False).st_uid

    def _read_own(self) -> None:
        """Continue with the state that the claim had before a restart of this node."""
        entry = object_of(os.pread(self._own, _MOST_BYTES, 0))
        # Only a running claim keeps its GPUs: a waiting one has given its places back and has to ask again.
        if entry.get("state") == RUNS:
            self._about |= {name: entry[name] for name in ("state", "gpus", "returns") if name in entry}

    def _read(self, name: str, number: int, token: str) -> Claim | None:
        descriptor = _open(self._folder / name)
        if descriptor is None:
            return None
        try:
            about = os.fstat(descriptor)
            entry = object_of(os.read(descriptor, _MOST_BYTES).partition(b"\n")[0])
            if entry.get("token") != token or not self._lives(name, descriptor, entry):
                return None
            claim = _claim(number, token, entry)
            if about.st_uid != self._user:  # its text may contain any user's name
                claim = replace(claim, user=f"{claim.user}, uid {about.st_uid}")
            stale = name.startswith("run-") and time.time() - about.st_mtime > _STALE_S
            return replace(claim, state=RESTS) if stale and claim.state in (WAITS, HOLDS) else claim
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _lives(self, name: str, descriptor: int, entry: Mapping[str, Any]) -> bool:
        """Whether the claim's process is alive, or is about to start, for the first time or again."""
        if _shows_life(descriptor) or self._is_kept(name, os.fstat(descriptor).st_uid):
            self._unlocked.pop(name, None)
            return True
        now = time.monotonic()
        since = self._unlocked.setdefault(name, now)
        return name.startswith("run-") and entry.get("returns") is True and now - since < _RETURN_S

    def _is_kept(self, name: str, user: int) -> bool:
        """Whether the lock file of this user's claim shows life.

        A script can close its own descriptor, but not free the lock.
        """
        path = _lock_of(self._folder / name)
        if (lock := _open(path)) is None:
            with suppress(OSError):
                return path.lstat().st_uid == user and not os.access(path, os.R_OK)
            return False
        try:
            return os.fstat(lock).st_uid == user and _shows_life(lock)
        finally:
            os.close(lock)

    def stay(self) -> None:
        """Show that this node is alive, and keep the host from deleting its claim as an old file.

        Returns after `leave`.
        """
        while self._lock >= 0:
            time.sleep(_TOUCH_S if self._locked else _UNLOCKED_TOUCH_S)
            self._locked = self._locked or _lock_to_write(self._lock)
            self.beat()


def own_claim(environment: MutableMapping[str, str]) -> Claims | None:
    """This node's own claim; None if the host gave it no claim. Raises NoClaim."""
    text = environment.pop(TEXT, "")
    if not text:
        return None
    claims = Claims(text)
    threading.Thread(target=claims.stay, daemon=True).start()
    return claims


def who_is_next(own: Claim, others: Sequence[Claim]) -> str:
    """The run that has waited longer than this one for the same resources, in words; empty if there is none."""
    before = [each for each in others if each.state == WAITS and each.whole == own.whole]
    first = min(before, key=lambda each: (each.number, each.token), default=own)
    return f"{first.shown} waits there and is next" if (first.number, first.token) < (own.number, own.token) else ""


def choose(
    asked: str | int | Sequence[int],
    gpus: Mapping[str, int],
    own: Claim,
    others: Sequence[Claim],
    busy: Mapping[str, str] | None = None,
) -> tuple[tuple[str, ...], str]:
    """The GPUs that this run gets now, or why it has to wait. `gpus`: the index of each GPU of the host, by its UUID.

    A node that uses no GPU (`own.whole`) gets a host on which there is no other run. No run overtakes one that has
    waited longer. `busy`: by a GPU's UUID, who uses it without a claim, in words.
    """
    if first := who_is_next(own, others):
        return (), first
    rivals = [claim for claim in others if claim.whole == own.whole]
    if own.whole:
        holders = [claim for claim in rivals if claim.state in (DEPLOYS, HOLDS)]
        holders += [claim for claim in others if claim.state == RUNS]
        return (), f"{', '.join(claim.shown for claim in holders[:4])} is there" if holders else ""
    taken = dict(busy or {})
    taken |= {uuid: claim.shown for claim in others if claim.state in (DEPLOYS, HOLDS, RUNS) for uuid in claim.gpus}
    wanted = [uuid for uuid, index in gpus.items() if isinstance(asked, int | str) or index in asked]
    free = [uuid for uuid in wanted if uuid not in taken]
    count = asked if isinstance(asked, int) else len(wanted)
    if len(free) >= count:
        return tuple(free[:count]), ""
    held = ", ".join(f"{taken[uuid]} has GPU {gpus[uuid]}" for uuid in wanted if uuid in taken)
    return (), f"{len(free)} of {count} GPUs are free: {held}"


def rival(own: Claim, others: Sequence[Claim]) -> str:
    """Who has taken the same things as this node's claim, in words; empty if nobody has."""
    for claim in others:
        both = claim.state == RUNS or claim.whole if own.whole else set(own.gpus) & set(claim.gpus)
        if claim.state in (DEPLOYS, HOLDS, RUNS) and both:
            return f"{claim.shown} has taken the same"
    return ""


def _lock_of(claim: Path) -> Path:
    return claim.with_name(f"{claim.name}.lock")


def _open(path: Path) -> int | None:
    """Open another user's regular file for reading, without blocking; None if it is anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _lock_to_write(descriptor: int) -> bool:
    """Lock a file for writing until it is closed; False if that fails, because another process holds a read lock."""
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
        return True
    return False


def _shows_life(descriptor: int) -> bool:
    """Whether this file is locked for writing, or has just been touched."""
    asked = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _LOCK.pack(fcntl.F_RDLCK, 0, 0, 0, 0))
    fresh = abs(time.time() - os.fstat(descriptor).st_mtime) < _FRESH_S
    return fresh or bool(_LOCK.unpack(asked)[0] == fcntl.F_WRLCK)


def _claim(number: int, token: str, entry: Mapping[str, Any]) -> Claim:
    gpus = entry.get("gpus")
    state = entry.get("state", WAITS if entry.get("waits") is True else DEPLOYS)
    return Claim(
        number,
        token,
        _words(entry.get("run")),
        _words(entry.get("user")),
        tuple(uuid for uuid in gpus if isinstance(uuid, str)) if isinstance(gpus, list) else (),
        entry.get("whole") is True,
        state if state in (DEPLOYS, RESTS, WAITS, HOLDS, RUNS) else RUNS,
    )


def _words(value: object) -> str:
    """Shorten another user's text, and replace control characters that a terminal would obey."""
    text = value if isinstance(value, str) else "?"
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MOST_WORDS])
