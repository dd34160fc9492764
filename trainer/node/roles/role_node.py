"""This node's part in a run of several roles: exchanges states, stops late roles, names a role that failed.

A thread asks every other node several times a second, authenticated by the run's key (peers.py), and includes this
node's state in each question: so a node that ends has told every other node before. plan.py decides what to do.
Standard library only.
"""

from __future__ import annotations

import hmac
import signal
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.errors import DONE, FAILED, STOPPED, Refused

from ...run_dir import RankFolder
from ...verdict import Verdict, done, publish
from ..ending.rank_lives import Life
from ..hang import links
from ..membership import meeting, peers
from ..queue.waiting_node import Ends
from . import ready
from .plan import AS_PLANNED, BROKE, ENDED, READY, RUNS, WAITS, Plan, View, read, view_of

PLAN, SECRET = "MUSTER_ROLES", "MUSTER_ROLE_SECRET"
_ROUND_S, _LOOK_S = 0.2, 0.05
# If a role fails because the role that ends the run has just gone, it learns that within this time.
_EXCUSE_S = 2.0
# How long an ending node tries to tell all others; a node that does not answer within it learns it from others, or is
# gone. If a node breaks before its start, the others' containers may start some seconds later.
_TELL_S = {ENDED: 3.0, BROKE: 20.0}
_AT_ONCE = 32


class RoleNode:
    """A node's part, from `begin` to `settle`. Threads of peers.py call `_answer`."""

    def __init__(self, plan: Plan, node: str, first_rank: int, run_folder: Path) -> None:
        self.plan, self.node, self.role, self._first = plan, node, plan.role_of(node), first_rank
        self._own = self.role.nodes[node]
        # On one machine a node is named after its role, with a number if the role has several nodes.
        self.who = node if f"{node}-".startswith(f"{self.role.name}-") else f"{self.role.name} on {node}"
        self._folder, self._events = run_folder, RankFolder(run_folder, first_rank, node)
        log = run_folder / "logs" / f"rank-{self._events.file}.log"
        kind, port, about = self.role.ready
        # The port that has to answer: one that `ready` specifies, or else the role's own port.
        self._port = port or self._own.service
        self._ready = ready.readiness_check(kind, self._own.address, self._port, about, log)
        # How the run ended; empty while it has not ended.
        self.over = ""
        unheard = View(seen=time.monotonic() + plan.within)
        self._others = {name: unheard for role in plan.roles for name in role.nodes if name != node}
        self._lock, self._is_over, self._closed = threading.Lock(), threading.Event(), threading.Event()
        self._life: Life | None = None
        # `_heard`: the phase that the last round of questions has told to all nodes.
        self._phase, self._heard, self._why_not = WAITS, "", ""
        # When this node had to begin to stop (the run is over, or it was asked to), and since when its program has run.
        self._stops_at = self._since = 0.0
        self._listening = peers.serve(self._own.address, self._own.port, plan.key, self._answer)
        for work in (self._ask_all, self._look_all):
            threading.Thread(target=work, daemon=True, name="muster-roles").start()

    def begin(self) -> None:
        """Wait until the roles that this role uses are ready.

        Raises Ends if the run is over before that, Refused for a port that is already in use.
        """
        previous, before = signal.signal(signal.SIGTERM, signal.default_int_handler), list[str]()
        try:
            while not self.over and (missing := self.plan.waits_for(self.role, self._views())):
                if missing != before:
                    self._tell(WAITS, f"waits for {', '.join(missing[:3])}")
                before = missing
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            words = f"{self.role.name} was stopped before it started"
            self._end(BROKE)
            raise Ends(Verdict("stopped", STOPPED, self._first, self.node, 0, words)) from None
        finally:
            signal.signal(signal.SIGTERM, previous)
        if self.over:
            self._end(ENDED)
            raise Ends(done(self._first, self.node, 0))
        for port in {self._own.service, self._port} - {0}:
            if not ready.why_no_answer(self._own.address, port):
                what = f"port {port} is taken: something answers there already"
                raise Refused(what, "give the role another port, or end the program that uses it")
        self._tell(RUNS)

    def look(self, lives: Sequence[Life], died: str = "") -> str:
        """Check the program's current life. `died`: how its last failed life ended.

        Returns why the program is not ready although its time is up; an empty text otherwise.
        """
        last, life = self._life, min(lives, key=lambda life: life.local_rank, default=None)
        self._life = life
        if life is None or self.over:
            return ""
        if last and last.pid != life.pid:
            self._tell(RUNS, died, again=True, restarts=life.attempt)
        elif self._phase == READY and life.code is not None:
            self._tell(RUNS, "its program has ended")
        # A program that dies before it is ready gets no more time once its time is up: otherwise it would restart
        # forever.
        if self._phase != RUNS or time.monotonic() < self._since + self.role.within or not (self._why_not or died):
            return ""
        where = ready.listening_words(links.listening(life.pid)) if self._port else ""
        why = f"it was started {life.attempt + 1} times, and {died}" if died else f"{self._why_not}{where}"
        return f"{self.who} is not ready after {self.role.within:g} s: {why}"

    def ask(self) -> None:
        """Ask this node to stop."""
        self._stops_at = self._stops_at or time.monotonic()

    def may_stop(self) -> bool:
        """Whether it is this role's turn to stop, after the run ended or the node was asked to stop."""
        return self.plan.may_stop(self.role, self._views(), time.monotonic() - self._stops_at, self.over)

    def settle(self, verdict: Verdict | None, code: int, released: bool) -> Verdict | None:
        """Stay until the run is over, after this node has ended for good or cannot start; returns the final verdict.

        `released`: it was stopped because the run is over. A failure is published immediately, any other verdict once
        the run is over: for whoever follows the run, a verdict is its end.
        """
        # A role that fails because the run has reached its planned end may not have heard of that end yet.
        others_end_it = code == FAILED and not self.role.ends
        if released or (others_end_it and self._is_over.wait(_EXCUSE_S) and self.over == AS_PLANNED):
            verdict, code = done(self._first, self.node, 0), DONE
        if verdict and verdict.code not in (DONE, STOPPED):
            verdict = replace(verdict, message=f"{self.who}: {verdict.message}")
            publish(verdict, self._folder, f"{self.node}-agent")
        self._end(BROKE if code != DONE else ENDED)
        return verdict

    def _end(self, phase: str) -> None:
        """Wait until the run is over, and all other nodes have heard of it."""
        self._tell(phase)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.ask())
        while not self._stops_at:
            time.sleep(_LOOK_S)
        end = time.monotonic() + _TELL_S[phase]
        while (
            not (self._heard == phase and all(view.over for view in self._others.values())) and time.monotonic() < end
        ):
            time.sleep(_LOOK_S)
        self._closed.set()
        meeting.close(self._listening)

    def _views(self) -> dict[str, View]:
        return {**self._others, self.node: View(self._phase, self.over, time.monotonic())}

    def _tell(self, phase: str, why: str = "", **more: Any) -> None:
        """Enter this phase, and record it."""
        if phase == RUNS != self._phase:
            self._since = time.monotonic()
        self._phase = phase
        with suppress(OSError):
            self._events.event("role", role=self.role.name, phase=phase, why=why, **more)
        self._decide()

    def _decide(self) -> None:
        with self._lock:
            self.over = self.over or self.plan.over(self._views(), time.monotonic())
        if self.over:
            self._is_over.set()
            self.ask()

    def _words(self) -> dict[str, Any]:
        return {"node": self.node, "phase": self._phase, "over": self.over}

    def _hear(self, row: Mapping[str, Any], node: Any) -> None:
        with self._lock:
            if node in self._others:
                self._others[node] = view_of(row, self._others[node], time.monotonic())
        self._decide()

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self._hear(question, question.get("node"))
        return self._words()

    def _ask(self, node: str) -> None:
        address, port, *_ = self.plan.role_of(node).nodes[node]
        if answer := peers.ask(address, port, self.plan.key, self._words()):
            self._hear(answer, node)

    def _ask_all(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while not self._closed.wait(_ROUND_S):
                phase = self._phase
                list(pool.map(self._ask, self._others))
                self._heard = phase
                self._decide()

    def _look_all(self) -> None:
        while not self._closed.wait(_ROUND_S):
            life = self._life
            if life and life.code is None and self._phase == RUNS:
                self._why_not = self._ready(life.began)
                if not self._why_not and life == self._life:
                    self._tell(READY)


def variables(environment: Mapping[str, str], node: str) -> dict[str, str]:
    """The variables about the roles for this node and its programs; empty if the run has no roles."""
    return read(environment[PLAN]).variables(node) if PLAN in environment else {}


def join(environment: MutableMapping[str, str], node: str, run_folder: Path | None, first_rank: int) -> RoleNode | None:
    """Create this node's part if the run has roles. This removes the plan from the environment.

    Raises Refused if the node cannot listen.
    """
    text = environment.pop(PLAN, "")
    if not text or run_folder is None:
        return None
    plan = read(text)
    # A secret that only the run's programs know: with the key itself they could impersonate its agents.
    environment[SECRET] = hmac.digest(plan.key.encode(), b"programs of the roles", "sha256").hex()
    return RoleNode(plan, node, first_rank, run_folder)
