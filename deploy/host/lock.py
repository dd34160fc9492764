"""One deploy per host at a time: a lock folder on the host, which records who holds the lock and since when.

`lock_hosts` before any change; `release` it, or leave the `with`, afterwards. A small script on the host
(scripts/lock.sh) keeps the lock while our connection lives. Ctrl-C and SIGKILL release it immediately; a cut cable or a
sleeping laptop releases it after STALE_AFTER_S seconds. A lock can stay only if the host loses power: the next deploy
then reports it as silent, and `muster unlock` removes it. docs/decisions/0139 explains why `flock` alone is not enough.
run/files/locks.py has the locks on this machine.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from ..core.errors import BadAnswer, DeployError
from ..core.fields import decimal, document, real, record, text, whole
from ..core.results import Results
from ..core.text import in_seconds
from ..door.session import Session, among, on_all
from ..job.option_words import command_of
from . import audit
from .commands import script

BEAT_S, STALE_AFTER_S = 5.0, 60.0
# How many seconds a deploy with --wait waits for another deploy's lock; every other command is refused immediately.
WAIT_S = 600.0
_POLL_S, _RELEASE_S, _ANSWER_S, _MOST_LINES = 0.5, 5.0, 60.0, 100


@dataclass(frozen=True)
class Holder:
    """The holder of a lock; `since` is in unix seconds by the clock of the control machine."""

    user: str
    control: str
    pid: int
    run: str
    since: float

    @property
    def shown(self) -> str:
        """For people: `alice@laptop (run r1, process 42) since 2026-11-21 02:31:07`."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.user}@{self.control} (run {self.run}, process {self.pid}) since {since}"


class HeldLocks:
    """The locks that this process holds on some hosts, until `release` or the end of the `with`."""

    def __init__(self, holds: list[_Hold]) -> None:
        self._holds = holds

    def __enter__(self) -> HeldLocks:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def lost(self) -> list[str]:
        """Hosts whose lock is no longer ours: somebody removed it, or the connection ended."""
        return [hold.host for hold in self._holds if hold.lost]

    def refuse_lost(self) -> None:
        """Raise DeployError if a host's lock is no longer ours: another deploy may be running there."""
        if lost := ",".join(self.lost):
            raise DeployError(
                f"{lost}: somebody removed the lock of this deploy while it ran",
                f"to see which runs are there: {command_of('status', hosts=lost)}",
            )

    def release(self) -> None:
        """Release the locks on all hosts. A lock that somebody else holds now stays. A second call does nothing."""
        _release(self._holds)


def lock_hosts(sessions: Iterable[Session], run_id: str, wait_s: float = 0.0) -> HeldLocks:
    """Lock all hosts or none, waiting up to `wait_s` seconds for others to release theirs.

    It locks one host after the other, by name, so two deploys that want the same hosts meet at the first one and cannot
    deadlock. Raises DeployError with the holder. After an error or an interruption it holds no lock.
    """
    deadline = time.monotonic() + wait_s
    holds: list[_Hold] = []
    try:
        for session in sorted(sessions, key=lambda session: session.name):
            _take_one(session, run_id, deadline, holds)
    except BaseException:
        _release(holds)
        raise
    return HeldLocks(holds)


def read_states(sessions: Iterable[Session]) -> Results[LockState | None]:
    """The state of each host's lock; None if it is free."""
    return on_all(sessions, lambda session: _standing(_step(session, "show")))


def break_lock(sessions: Iterable[Session], standings: Mapping[str, LockState]) -> Results[str]:
    """Remove the locks in `standings` from their hosts; returns the holder of each.

    A lock is removed by its token: a lock that somebody has taken since the look stays.
    """

    def break_one(session: Session) -> str:
        standing = standings[session.name]
        _step(session, "drop", standing.token or "any")
        audit.note(session, audit.Action.UNLOCKED, standing.shown)
        return standing.shown

    return on_all(among(sessions, standings), break_one)


def sweep(sessions: Iterable[Session]) -> Results[str]:
    """Remove locks whose script on the host has died (for example, at a power loss); return each holder, or ""."""

    def sweep_one(session: Session) -> str:
        standing = _standing(_step(session, "sweep"))
        if standing is None:
            return ""
        audit.note(session, audit.Action.UNLOCKED, f"{standing.shown}, whose process is dead")
        return standing.shown

    return on_all(sessions, sweep_one)


_HOLDER = record(
    {"user": text(100), "control": text(300), "pid": whole(1 << 32), "run": text(100), "since": real(1e11)}
)


@dataclass(frozen=True)
class LockState:
    """A lock as its host reports it. `age_s`: seconds since its holder's last beat, by the host's clock."""

    age_s: float
    token: str
    holder: Holder | None

    @property
    def is_alive(self) -> bool:
        """Whether its holder has sent a beat lately, so its deploy is still running."""
        return self.age_s <= STALE_AFTER_S

    @property
    def shown(self) -> str:
        """The holder, in words."""
        return self.holder.shown if self.holder else "somebody who did not leave a name"


class _Hold:
    """One host's lock, and the script there that keeps it while we send beats. `taken`: the lock is ours."""

    def __init__(self, session: Session, run_id: str) -> None:
        user, control = audit.user_and_machine()
        self.host, self.taken, self.over = session.name, False, threading.Event()
        holder = json.dumps(asdict(Holder(user, control, os.getpid(), run_id, time.time())))
        self.stream = session.stream(script("lock", "take", secrets.token_hex(16), f"{STALE_AFTER_S:g}"))
        self.stream.write(f"{holder}\n".encode())

    def answer(self) -> LockState | None:
        """The state of the lock; None if it is ours now, or free. Raises DeployError if the host does not report it."""
        lines = list[str]()
        while not lines or lines[-1] not in ("taken", "."):
            lines.append(self.stream.read_line(_ANSWER_S).decode(errors="replace"))
            if len(lines) > _MOST_LINES:
                raise DeployError(f"{self.host}: its answer about the lock has more than {_MOST_LINES} lines")
        self.taken = lines.pop() == "taken"
        if self.taken:
            threading.Thread(target=self._beat, daemon=True, name=f"muster-lock-{self.host}").start()
        return None if self.taken else _standing("\n".join(lines))

    @property
    def lost(self) -> bool:
        """Whether we had the lock, and lost it without releasing it."""
        return self.taken and not self.over.is_set() and not self._lives()

    def end(self, wait_s: float) -> None:
        """Wait until the script has released the lock; the end of its input tells it to."""
        with suppress(DeployError):
            self.stream.read_line(wait_s)
        self.stream.close()

    def _beat(self) -> None:
        while not self.over.wait(BEAT_S) and self._lives():
            pass

    def _lives(self) -> bool:
        try:
            self.stream.write(b"\n")
        except DeployError:
            return False
        return True


def _take_one(session: Session, run_id: str, deadline: float, holds: list[_Hold]) -> None:
    """Lock one host. The lock is added to `holds` first, so that an interrupted caller can release it."""
    while True:
        holds.append(_Hold(session, run_id))
        standing = holds[-1].answer()
        if holds[-1].taken:
            return
        holds.pop().stream.close()
        left = deadline - time.monotonic()
        if left <= 0 and standing:
            raise _refusal(session.name, standing)
        time.sleep(min(_POLL_S, max(0.0, left)))


def _release(holds: Iterable[_Hold]) -> None:
    """End the input of the scripts, which then release their locks. Wait up to 5 s until they have done so."""
    until = time.monotonic() + _RELEASE_S
    for hold in holds:
        hold.over.set()
        hold.stream.end_input()
    for hold in holds:
        hold.end(max(0.01, until - time.monotonic()))


def _refusal(host: str, standing: LockState) -> DeployError:
    unlock = f"`{command_of('unlock', hosts=host)}`"
    if not standing.is_alive:
        stale = f"{host}: locked by {standing.shown}, silent for {in_seconds(standing.age_s)}"
        return DeployError(stale, f"if you are sure that the deploy has ended: {unlock}")
    return DeployError(
        f"{host}: locked by {standing.shown}",
        "another Muster command is working there now (a run that trains holds no lock): try again in a few "
        f"seconds; use {unlock} only if you are sure that the command has ended",
    )


def _standing(answer: str) -> LockState | None:
    """Read the answer to `show`: None if the lock is free. Raises BadAnswer."""
    if not answer.strip():
        return None
    age, token, holder_text = (*answer.split("\n", 2), "", "")[:3]
    try:
        holder: Holder | None = Holder(**_HOLDER(document(holder_text, "the lock's holder"), "the lock's holder"))
    except BadAnswer:  # whoever wrote it was interrupted, or was not Muster
        holder = None
    return LockState(decimal(-1e11)(age, "the lock's age"), text(100, r"[!-~]*")(token, "its token"), holder)


def _step(session: Session, what: str, token: str = "") -> str:
    return session.run(script("lock", what, token, f"{STALE_AFTER_S:g}")).out
