"""This node's part in a run of several roles: it tells the others what it is at, and hears what they are at.

A thread asks every other node several times a second, over the run's key (peers.py), and says of itself in each
question: a node that ends has then told everybody. What to do is decided by plan.py. Standard library only.
"""

from __future__ import annotations

import hmac
import signal
import socket
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.errors import DONE, FAILED, STOPPED, Refused, TrainError

from ...run_dir import RankFolder, in_run
from ...verdict import Verdict, done, publish
from ..ending.ends import Life
from ..hang import links
from ..membership import peers
from ..queue.waits import Ends
from . import ready
from .plan import ENDED, READY, RUNS, WAITS, Over, Plan, View, read, row_of, view_of

PLAN, SECRET = "MUSTER_ROLES", "MUSTER_ROLE_SECRET"
_ROUND_S, _LOOK_S = 0.2, 0.05
# A role that fails because the one that ends the run has just gone hears of that within this time.
_EXCUSE_S = 2.0
# At the end everybody is to hear of it; who does not answer for so long hears it from others, or is gone.
_TELL_S = 3.0
# One that cannot start may be the first to know: the others' containers begin some seconds later.
_TELL_LATER_S = 20.0
_AT_ONCE = 32


class Part:
    """A node's part, from `join` to `end`. Threads of peers.py call `_answer`."""

    def __init__(self, plan: Plan, node: str, first_rank: int, run_folder: Path) -> None:
        self.plan, self.node, self.role, self._first = plan, node, plan.role_of(node), first_rank
        alone = node == self.role.name or node.startswith(f"{self.role.name}-")
        self.who = node if alone else f"{self.role.name} on {node}"
        self._folder, self._events = run_folder, RankFolder(run_folder, first_rank, node)
        log = run_folder / "logs" / f"rank-{in_run(first_rank)}.log"
        now = time.monotonic()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._views = {name: View(seen=now + plan.within) for role in plan.roles for name in role.nodes}
        address, self._port, self._service = self.role.nodes[node]
        self._ready = ready.look_of(self.role.ready, address, self._service, log, Path.cwd())
        self._pid, self._began, self._why_not, self._late, self._over_at = 0, 0.0, "", "", 0.0
        self._starts, self._died = 0, ""
        self._asked_at, self._unready_since, self._alive = 0.0, now, False
        try:
            self._listening = peers.serve(address, self._port, plan.key, self._answer)
        except OSError as fault:
            what = f"{node} cannot listen on {address}:{self._port} for the other roles: {fault.strerror}"
            raise TrainError(what, "start the run again: it takes other ports") from fault
        for work in (self._ask_all, self._look_all):
            threading.Thread(target=work, daemon=True, name="muster-roles").start()

    @property
    def over(self) -> Over | None:
        """Whether the run is over, and by whom."""
        with self._lock:
            return self._views[self.node].over

    def wait_to_start(self) -> Over | None:
        """Wait until the roles that this one uses are ready. Returns how the run is over, where that comes first.

        Raises KeyboardInterrupt when the node is asked to stop, Refused for a port that somebody else has.
        """
        previous = signal.signal(signal.SIGTERM, _interrupt)
        try:
            while not self.over and self._missing():
                time.sleep(_LOOK_S)
        finally:
            signal.signal(signal.SIGTERM, previous)
        if self.over:
            return self.over
        address = self.role.nodes[self.node][0]
        for port in {self._service, ready.port_of(self.role.ready, self._service)} - {0}:
            if not ready.port_answers(address, port):
                what = f"port {port} is taken: something answers there already"
                raise Refused(what, "give the role another port, or end what has it")
        self._unready_since = time.monotonic()
        self._tell(RUNS)
        return None

    def _missing(self) -> list[str]:
        with self._lock:
            missing = self.plan.waits_for(self.role, self._views)
            waits = f"waits for {', '.join(missing[:3])}" if missing else ""
            news = bool(waits) and self._views[self.node].why != waits
        if news:
            self._tell(WAITS, waits)
        return missing

    def look(self, lives: Sequence[Life], died: str = "") -> None:
        """Look at the present life of the program. `died`: how the last one ended that failed."""
        life = min(lives, key=lambda each: each.local_rank, default=None)
        if life is None or self.over:
            return
        self._died, self._alive, began = died, life.code is None, life.pid != self._pid
        was_ready = self._phase() == READY and (began or not self._alive)
        # One that dies before it is ready has no more time for that: it would start again for ever.
        self._unready_since = time.monotonic() if was_ready else self._unready_since
        if began:
            self._pid, self._began, self._starts = life.pid, life.began, self._starts + 1
            if self._starts > 1:
                self._tell(RUNS, self._died, restarts=self._starts - 1)
        elif was_ready:
            self._tell(RUNS, "its program has ended")

    def unready(self) -> str:
        """Why the program is not ready although it has had the time for it; empty while it has."""
        late = time.monotonic() - self._unready_since > self.role.within and (self._why_not or self._died)
        if late and self._phase() == RUNS and not self.over and not self._late:
            about = self.role.ready, self.role.nodes[self.node][0], self._service
            why = f"{self._why_not}{ready.elsewhere(*about, links.listening(self._pid))}"
            if self._died and self.role.ready:
                why = f"it was started {self._starts} times, and {self._died}"
            self._late = f"{self.who} is not ready after {self.role.within:g} s: {why}"
        return self._late

    def ask(self) -> None:
        """Somebody asks this node to stop."""
        self._asked_at = self._asked_at or time.monotonic()

    def may_stop(self) -> bool:
        """Whether it is this role's turn to stop, once the run is over or the node was asked to."""
        since = self._asked_at or self._over_at
        waited = time.monotonic() - since if since else 0.0
        with self._lock:
            over = self._views[self.node].over
            return self.plan.may_stop(self.role, self._views, waited, over)

    def grace(self) -> float | None:
        """The seconds that the program has from now on, where the run is over and it is its turn to stop; else None."""
        over = self.over
        return self.plan.grace(self.role, over) if over and self.may_stop() else None

    def _is_excused(self) -> bool:
        """Whether this role's failure comes from the planned end of the run, which it may not have heard of yet."""
        end = time.monotonic() + (0.0 if self.role.ends else _EXCUSE_S)
        while not self.over and time.monotonic() < end:
            time.sleep(_LOOK_S)
        over = self.over
        return bool(over and over.by_end and not self.role.ends)

    def settle(self, verdict: Verdict | None, code: int, released: bool) -> Verdict | None:
        """This node's program has ended for good: stay until the run is over. Returns the verdict that counts.

        `released`: it was stopped because the run is over. A failure is published at once, all else once it is over:
        to those who follow, a verdict is the end of the run.
        """
        if released or (code == FAILED and self._is_excused()):
            verdict, code = done(self._first, self.node, 0), DONE
        if verdict and verdict.code not in (DONE, STOPPED):
            verdict = replace(verdict, message=f"{self.who}: {verdict.message}")
            publish(verdict, self._folder, f"{self.node}-agent")
        why = verdict.message.splitlines()[0] if verdict and verdict.message else self._late
        self._end(verdict.code if verdict else code, why)
        return verdict

    def name(self, fault: TrainError) -> TrainError:
        """The fault with the role's name."""
        return TrainError(f"{self.who}: {fault.message}", fault.hint, fault.code)

    def refuse(self, fault: TrainError) -> None:
        """This node cannot start: tell everybody, also those that have not begun yet."""
        self._end(FAILED, fault.message, _TELL_LATER_S)

    def _end(self, code: int, why: str, tell_s: float = _TELL_S) -> None:
        """Wait until the run is over, and everybody else has heard of it."""
        code = code if code in (DONE, FAILED, STOPPED) else FAILED
        self._tell(ENDED, why, code)
        with suppress(KeyboardInterrupt):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, _interrupt)
            while not self.over and not self._asked_at:
                time.sleep(_LOOK_S)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._tell_everybody(tell_s)
        self._closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _phase(self) -> str:
        with self._lock:
            return self._views[self.node].phase

    def _tell(self, phase: str, why: str = "", code: int = DONE, restarts: int = 0) -> None:
        with self._lock:
            own = self._views[self.node]
            self._views[self.node] = replace(own, phase=phase, code=code, why=why, seen=time.monotonic())
        with suppress(OSError):
            again = {"again": True, "restarts": restarts} if restarts else {}
            self._events.event("role", role=self.role.name, phase=phase, why=why, **again)
        self._decide()

    def _decide(self) -> None:
        now = time.monotonic()
        with self._lock:
            own = self._views[self.node] = replace(self._views[self.node], seen=now)
            if own.over is None and (over := self.plan.over(self._views, now)):
                self._views[self.node] = replace(own, over=over)
                self._over_at = now

    def _words(self) -> dict[str, Any]:
        with self._lock:
            return {"node": self.node, **row_of(self._views[self.node])}

    def _hear(self, row: Mapping[str, Any], node: object) -> None:
        with self._lock:
            if not isinstance(node, str) or node == self.node or node not in self._views:
                return
            view = view_of(row, time.monotonic(), self._views)
            # Its end is final: an answer that was on its way meanwhile is older.
            if view and self._views[node].phase != ENDED:
                self._views[node] = view
        self._decide()

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self._hear(question, question.get("node"))
        return self._words()

    def _ask(self, node: str) -> bool | None:
        """Ask another node; whether it has heard what this one says, or None: its host answers, and it is not there."""
        address, port, _ = next(role.nodes[node] for role in self.plan.roles if node in role.nodes)
        answer = peers.ask(address, port, self.plan.key, self._words())
        if answer:
            self._hear(answer, node)
        return None if answer == {} else answer is not None

    def _others(self) -> list[str]:
        with self._lock:
            return [node for node, view in self._views.items() if node != self.node and view.phase != ENDED]

    def _ask_all(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while not self._closed.wait(_ROUND_S):
                list(pool.map(self._ask, self._others()))
                self._decide()

    def _look_all(self) -> None:
        while not self._closed.wait(_ROUND_S):
            if self._phase() == RUNS and self._alive:
                began, self._why_not = self._began, self._ready(self._began)
                if not self._why_not and began == self._began and self._alive:
                    self._tell(READY)

    def _tell_everybody(self, tell_s: float) -> None:
        """Tell every other node of this one's end and the run's, for as long as that may take."""
        end, left = time.monotonic() + tell_s, [node for node in self._views if node != self.node]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while left and time.monotonic() < end:
                heard = list(pool.map(self._ask, left))
                # A node that is not there has ended, or, where this one could not start, has not begun.
                waits = (False, None) if tell_s == _TELL_LATER_S else (False,)
                left = [node for node, has in zip(left, heard, strict=True) if has in waits]
                time.sleep(_LOOK_S if left else 0.0)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def join(environment: MutableMapping[str, str], node: str, run_folder: Path | None, first_rank: int) -> Part | None:
    """This node's part, where the run has roles. The plan leaves the environment.

    Raises TrainError where it cannot listen.
    """
    text = environment.pop(PLAN, "")
    if not text or run_folder is None:
        return None
    plan = read(text)
    # What the programs of a run alone know: the key itself would let them speak for its agents.
    environment[SECRET] = hmac.digest(plan.key.encode(), b"programs of the roles", "sha256").hex()
    return Part(plan, node, first_rank, run_folder)


def begin(part: Part, first_rank: int) -> None:
    """Wait until a node's program is to start. Raises Ends where the run is over before that."""
    try:
        over = part.wait_to_start()
    except KeyboardInterrupt:
        verdict = Verdict(
            "stopped", STOPPED, first_rank, part.node, 0, f"{part.role.name} was stopped before it started"
        )
        part.settle(verdict, STOPPED, False)
        raise Ends(verdict) from None
    if over:
        part.settle(None, DONE, True)
        raise Ends(done(first_rank, part.node, 0))
