"""What the runs and deploys of all users have of this host, or wait for: files in a folder that they share.

A claim is a file that its process keeps locked (docs/decisions/0048, 0057). The agent of a node on a host keeps its
own, `run-NUMBER-TOKEN`, from its first moment to its end. MUSTER_CLAIM has its text. Who looks and then takes something
holds the lock of the folder itself meanwhile. Other users write what they like there. Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

TEXT, FOLDER = "MUSTER_CLAIM", Path("/muster/claims")
DEPLOYS, RESTS, WAITS, HOLDS, RUNS = "deploys", "rests", "waits", "holds", "runs"
_NAME = re.compile(r"(claim|run)-([0-9]{1,20})-([0-9a-f]{1,64})")
_MOST_BYTES, _MOST_WORDS, _MOST_CLAIMS = 4000, 200, 10_000
_LOCK_S, _POLL_S = 30.0, 0.05
# An engine starts a node again within a minute. A claim whose lock is not there yet has just been made.
_RETURN_S, _BEGIN_S = 90.0, 60.0
# Hosts remove old files of a temporary folder.
_TOUCH_S = 3600.0
# A node that waits touches its claim at each question: one that is stopped, or hangs, must not keep the others waiting.
_STALE_S = 60.0


class NoClaim(Exception):
    """The folder of the claims cannot be used; the message says why."""


@dataclass(frozen=True)
class Claim:
    """The claim of somebody else, or ours. `number` gives the order in which they wait."""

    number: int
    token: str
    run: str
    user: str
    gpus: tuple[str, ...]
    whole: bool
    state: str

    @property
    def shown(self) -> str:
        """`run r1 (alice)`."""
        return f"{'the deploy of' if self.state == DEPLOYS else 'run'} {self.run} ({self.user})"


class Claims:
    """The claims of a host as one of its nodes sees them. `token`: of our own."""

    def __init__(self, text: str, folder: Path = FOLDER) -> None:
        """`text`: our own claim, as JSON. Raises NoClaim."""
        self._about: dict[str, Any] = json.loads(text)
        self.token, self._folder = str(self._about["token"]), folder
        self._unlocked: dict[str, float] = {}
        self._written = b""
        name = f"run-{self._about['number']}-{self.token}"
        try:
            self._own = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._own, fcntl.LOCK_EX)
            if os.fstat(self._own).st_size:
                self._read_own()
            self.write()
        except OSError as fault:
            raise NoClaim(f"{folder}/{name} cannot be written: {fault.strerror}") from fault
        self._path = folder / name

    @property
    def own(self) -> Claim:
        """Our own claim, as it stands."""
        return _claim(int(self._about["number"]), self.token, self._about)

    def write(self, **changes: Any) -> None:
        """Change fields of our own claim. Raises NoClaim where the disk takes no more."""
        about = {**self._about, **changes}
        about["waits"] = about["state"] == WAITS
        data = json.dumps(about).encode() + b"\n"
        if data == self._written:
            return
        try:
            os.pwrite(self._own, data, 0)
            os.ftruncate(self._own, len(data))
        except OSError as fault:
            raise NoClaim(f"our claim on this host cannot be written: {fault.strerror}") from fault
        self._about, self._written = about, data

    def beat(self) -> None:
        """Tell the others that this node still waits."""
        with suppress(OSError):
            os.utime(self._own)

    def leave(self) -> None:
        """Give everything back."""
        with suppress(OSError):
            self._path.unlink()
        os.close(self._own)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this host: no other process looks and takes meanwhile. Raises NoClaim."""
        descriptor, end = self._open_folder(), time.monotonic() + _LOCK_S
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > end:
                    raise NoClaim(f"another run or deploy has looked at this host for {_LOCK_S:.0f} s")
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(descriptor)

    def others(self) -> list[Claim]:
        """The living claims of others, in the order of their numbers. Raises NoClaim."""
        claims = []
        try:
            names = sorted(os.listdir(self._folder))[:_MOST_CLAIMS]
        except OSError as fault:
            raise NoClaim(f"{self._folder}: {fault.strerror}") from fault
        for name in names:
            match = _NAME.fullmatch(name)
            if match and match[3] != self.token and (claim := self._read(name, int(match[2]), match[3])):
                claims.append(claim)
        return sorted(claims, key=lambda claim: (claim.number, claim.token))

    def _read_own(self) -> None:
        """Go on with what our claim says since before a restart of this node."""
        with suppress(ValueError, TypeError):
            entry = json.loads(os.pread(self._own, _MOST_BYTES, 0))
            # What a wait had is given back: it has to ask for it again.
            if entry.get("state") == RUNS:
                self._about |= {name: entry[name] for name in ("state", "gpus", "returns") if name in entry}

    def _read(self, name: str, number: int, token: str) -> Claim | None:
        try:
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                return None
            entry = json.loads(os.read(descriptor, _MOST_BYTES).partition(b"\n")[0])
            if _is_locked(descriptor):
                self._unlocked.pop(name, None)
            elif not self._may_live(name, entry, about.st_mtime):
                return None
            claim = _claim(number, token, entry)
            stale = name.startswith("run-") and time.time() - about.st_mtime > _STALE_S
            return replace(claim, state=RESTS) if stale and claim.state in (WAITS, HOLDS) else claim
        except (OSError, ValueError, RecursionError, TypeError, KeyError):
            return None
        finally:
            os.close(descriptor)

    def _may_live(self, name: str, entry: Mapping[str, Any], changed: float) -> bool:
        """Whether a node whose claim is not locked may be about to start, for the first time or again."""
        now = time.monotonic()
        since = self._unlocked.setdefault(name, now)
        if not name.startswith("run-"):
            return False
        if entry.get("returns") is True:
            return now - since < _RETURN_S
        return 0 <= time.time() - changed < _BEGIN_S

    def _open_folder(self) -> int:
        try:
            return os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as fault:
            raise NoClaim(f"{self._folder}: {fault.strerror}") from fault

    def stay(self) -> None:
        """Keep the host from removing our claim as an old file. Never returns."""
        while True:
            time.sleep(_TOUCH_S)
            self.beat()


def own(environment: MutableMapping[str, str]) -> Claims | None:
    """This node's own claim; None where no host gave it one. Raises NoClaim."""
    text = environment.pop(TEXT, "")
    if not text:
        return None
    claims = Claims(text)
    threading.Thread(target=claims.stay, daemon=True).start()
    return claims


def who_is_next(own: Claim, others: Sequence[Claim]) -> str:
    """The run that has waited longer than ours for the same, in words; empty if there is none."""
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
    """The GPUs that we get now, or why we have to wait. `gpus`: the index of each GPU of the host, by its UUID.

    A node that uses no GPU (`own.whole`) gets a host where no other run is. No run overtakes one that waited longer.
    `busy`: who computes on a GPU without a claim, in words, by its UUID.
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


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


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
    """Shorten text of another user, and replace the control characters that a terminal would obey."""
    text = value if isinstance(value, str) else "?"
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MOST_WORDS])
