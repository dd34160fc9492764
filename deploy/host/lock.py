"""One deploy per host at a time: a lock folder on the host itself, which says who holds it and since when.

`take` before anything is changed, `release` (or leaving the `with`) after. lock.py guards what is on this machine.
A small script on the host (scripts/lock.sh) keeps the lock as long as our connection lives: Ctrl-C and kill -9 let go
at once, a cut cable and a laptop that sleeps after STALE_AFTER_S seconds. What can still be left (the host lost its
power) is shown as stale, and taken off on request. docs/decisions/0024 says why it is not `flock` alone.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from ..core.errors import BadAnswer, DeployError
from ..core.fields import decimal, document, real, record, text, whole
from ..core.results import Results
from ..core.scripts import Scripts
from ..ssh.session import Session, on_all
from . import audit

BEAT_S, STALE_AFTER_S = 5.0, 60.0
_POLL_S, _RELEASE_S, _ANSWER_S, _MOST_SAID = 0.5, 5.0, 60.0, 64 << 10
_SCRIPT = Scripts(__file__)


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: `since` in unix seconds of the control machine."""

    user: str
    control: str
    pid: int
    run: str
    since: float

    @property
    def shown(self) -> str:
        """`alice@laptop (run r1, process 42) since 2026-11-21 02:31:07`."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.user}@{self.control} (run {self.run}, process {self.pid}) since {since}"


class Held:
    """Locks that are held on some hosts, until `release` or the end of the `with`."""

    def __init__(self, holds: list[_Hold]) -> None:
        self._holds = holds

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def lost(self) -> list[str]:
        """Hosts whose lock is no longer ours: somebody broke it, or the connection is gone."""
        return [hold.host for hold in self._holds if hold.lost]

    def refuse_lost(self) -> None:
        """Raise DeployError where a host's lock is no longer ours: another deploy may be at work there."""
        if lost := ",".join(self.lost):
            raise DeployError(
                f"{lost}: our lock was taken off while we worked", f"ask who did: fab status --hosts {lost}"
            )

    def release(self) -> None:
        """Let go on every host; what somebody else holds by now is left alone. Calling it again does nothing."""
        _release(self._holds)


def take(sessions: Iterable[Session], run_id: str, wait_s: float = 0.0) -> Held:
    """Lock all hosts or none, waiting up to `wait_s` seconds for others to let go.

    One host after the other, by name: two deploys that want the same hosts meet at the first, so neither waits for the
    other while holding what that one wants. Raises DeployError, which names the holder; then, and when it is
    interrupted, nothing is left held.
    """
    deadline = time.monotonic() + wait_s
    holds: list[_Hold] = []
    try:
        for session in sorted(sessions, key=lambda session: session.host.name):
            _take_one(session, run_id, deadline, holds)
    except BaseException:
        _release(holds)
        raise
    return Held(holds)


def look(sessions: Iterable[Session]) -> Results[Standing | None]:
    """Who holds each host's lock; None where nobody does."""
    return on_all(sessions, lambda session: _standing(_step(session, "show")))


def break_lock(sessions: Iterable[Session], seen: Mapping[str, Standing]) -> Results[str]:
    """Take the locks that were `seen` off their hosts; returns who held each.

    By its token: a lock that was taken since we looked is not the one we were asked to break.
    """

    def one(session: Session) -> str:
        standing = seen[session.host.name]
        _step(session, "drop", standing.token or "any")
        audit.note(session, f"took off the lock of {standing.shown}")
        return standing.shown

    return on_all((session for session in sessions if session.host.name in seen), one)


def sweep(sessions: Iterable[Session]) -> Results[str]:
    """Take off each host a lock whose keeper there has died (with the host's power, say); who held it, "" if none."""

    def one(session: Session) -> str:
        standing = _standing(_step(session, "sweep"))
        if standing is None:
            return ""
        audit.note(session, f"took off the lock of {standing.shown}, which is gone")
        return standing.shown

    return on_all(sessions, one)


_HOLDER = record(
    {"user": text(100), "control": text(300), "pid": whole(0, 1 << 32), "run": text(100), "since": real(0.0, 1e11)}
)


@dataclass(frozen=True)
class Standing:
    """A lock as a host tells of it: seconds since its holder was heard, by the host's own clock."""

    age_s: float
    token: str
    holder: Holder | None

    @property
    def alive(self) -> bool:
        """Whether its holder was heard a moment ago: a deploy that goes on."""
        return self.age_s <= STALE_AFTER_S

    @property
    def shown(self) -> str:
        """The holder in words."""
        return self.holder.shown if self.holder else "somebody who left no name"


class _Hold:
    """One host's lock: a thread that keeps the script there alive, and its word on whether we have the lock."""

    def __init__(self, session: Session, run_id: str) -> None:
        user, control = audit.who()
        self.host, self.taken = session.host.name, False
        self._holder = json.dumps(asdict(Holder(user, control, os.getpid(), run_id, time.time())))
        self._session, self._token = session, secrets.token_hex(16)
        self._answered, self.over = threading.Event(), threading.Event()
        self._said, self._length = "", 0
        self._fault: DeployError | None = None
        self.thread = threading.Thread(target=self._keep, daemon=True, name=f"muster-lock-{self.host}")
        self.thread.start()

    def answer(self) -> Standing | None:
        """None once the lock is ours, else who has it. Raises DeployError when the host could not be asked."""
        if not self._answered.wait(_ANSWER_S):
            self.over.set()
            raise DeployError(
                f"{self.host}: its lock was not answered for within {_ANSWER_S:g} s",
                f"look there at: ls -ld ~/.muster/lock-*; then fab unlock --hosts {self.host}",
            )
        if self._fault:
            raise self._fault
        return None if self.taken else _standing(self._said)

    @property
    def lost(self) -> bool:
        """Whether it was ours, and ended without our word."""
        return self.taken and not self.thread.is_alive() and not self.over.is_set()

    def _keep(self) -> None:
        argv = _SCRIPT("lock", "take", self._token, f"{STALE_AFTER_S:g}")
        try:
            self._said = self._session.run(argv, input=self._beats(), timeout_s=None, on_line=self._heard).out
        except DeployError as fault:
            self._fault = fault
        finally:
            self._answered.set()

    def _beats(self) -> Iterator[bytes]:
        yield f"{self._holder}\n".encode()
        while not self.over.wait(BEAT_S):
            yield b"\n"

    def _heard(self, line: str) -> None:
        self._length += len(line) + 1
        if self._length > _MOST_SAID:
            raise DeployError(f"{self.host}: said more than {_MOST_SAID >> 10} KB when it was asked for its lock")
        if line == "taken":
            self.taken = True
            self._answered.set()


def _take_one(session: Session, run_id: str, deadline: float, holds: list[_Hold]) -> None:
    """Add the host's lock to `holds`, from where an interrupted caller lets go of it."""
    while True:
        holds.append(_Hold(session, run_id))
        standing = holds[-1].answer()
        if holds[-1].taken:
            return
        holds.pop()
        left = deadline - time.monotonic()
        if left <= 0 and standing:
            raise _refusal(session.host.name, standing)
        time.sleep(min(_POLL_S, max(0.0, left)))


def _release(holds: Iterable[_Hold]) -> None:
    """End the scripts' input, each then lets go by itself; wait a little, so that who asks next finds them gone."""
    until = time.monotonic() + _RELEASE_S
    for hold in holds:
        hold.over.set()
    for hold in holds:
        hold.thread.join(max(0.0, until - time.monotonic()))


def _refusal(host: str, standing: Standing) -> DeployError:
    unlock = f"`fab unlock --hosts {host}`"
    if not standing.alive:
        stale = f"{host}: locked by {standing.shown}, not heard from for {standing.age_s:.0f} s"
        return DeployError(stale, f"if that deploy is gone for certain: {unlock}")
    return DeployError(
        f"{host}: locked by {standing.shown}", f"wait for its end; {unlock} only if it is gone for certain"
    )


def _standing(answer: str) -> Standing | None:
    """What `show` answered: None where nobody holds the lock. Raises BadAnswer."""
    if not answer.strip():
        return None
    age, token, told = (*answer.split("\n", 2), "", "")[:3]
    try:
        holder: Holder | None = Holder(**_HOLDER(document(told, "the lock's holder"), "the lock's holder"))
    except BadAnswer:  # cut while it wrote, or none of ours
        holder = None
    return Standing(decimal(-1e11, 1e11)(age, "the lock's age"), text(100, r"[!-~]*")(token, "its token"), holder)


def _step(session: Session, what: str, token: str = "") -> str:
    return session.run(_SCRIPT("lock", what, token, f"{STALE_AFTER_S:g}")).out
