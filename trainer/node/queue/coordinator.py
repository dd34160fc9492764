"""The first node of a waiting run: it asks all nodes to take their places, and starts them once each has its own.

It takes the hosts in an order that all users share, and keeps what it has, so that two runs seldom block each other; if
they do, the run that has waited longer gets the host (claims.py), so they never block each other forever. If a node
does not answer, the others give back what they have until it answers again. Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ..membership import meeting, peers
from .claims import HOLDS, RUNS
from .reservation import LEASE_S, Reservation

# A host may answer slowly: another run may hold its lock, or its driver may hang.
_ANSWER_S, _AT_ONCE, _PROOF_S, _PROVED_EVERY_S, _PORTS = 45.0, 16, 140.0, 0.2, 100
# Nodes start one after the other, and a packet may be lost: a silence this short is not reported.
_BRIEF_SILENCE_S = 6.0
Answers = dict[int, dict[str, Any]]


class Unfit(Exception):
    """The rehearsal failed; the message says what failed, `node` on which node."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(message)
        self.node = node


class Away(Exception):
    """A node stopped answering, or lost its place: the run keeps waiting."""


class Coordinator:
    """Coordinates the waiting nodes. `place` is this node's reservation; `say` receives each new reason to wait."""

    def __init__(self, place: Reservation, port: int, say: Callable[[str], None]) -> None:
        self._place, self._plan, self._port, self._say = place, place.plan, port, say
        self._names: list[str] = place.plan["names"]
        self._silent: dict[int, float] = {}
        self._last_reason, self._brief = "", False

    def step(self) -> bool:
        """Ask each host once. Returns whether all nodes have started. Raises Unfit."""
        self._brief = False
        if why := self._take():
            if not self._brief:
                self._tell(why)
            return False
        self._tell("its hosts are free: rehearsing before the start")
        try:
            port = self._rehearse()
            self._commit()
        except Away:
            return False
        for number, answer in self._ask_all({"do": "go", "port": port}).items():
            for _ in range(10):
                if answer:
                    break
                time.sleep(1.0)
                answer = self._ask(number, {"do": "go", "port": port}) or {}
        return True

    def _take(self) -> str:
        """Take the places in their order; returns why not all could be taken, or an empty text. Raises Away."""
        now = time.monotonic()
        silent = [place for place, since in self._silent.items() if now - since > LEASE_S]
        gone = [self._names[place] for place in silent if not self._ask(place, {"do": "rest"})]
        why = f"{gone[-1]} does not answer" if gone else ""
        for place in self._plan["order"]:
            if why:
                if place not in self._silent:
                    self._ask(place, {"do": "rest", "why": why if gone else f"first {why}"})
                continue
            answer = self._ask(place, {"do": "take"})
            if not answer:
                why = f"{self._names[place]} does not answer"
                self._brief = time.monotonic() - self._silent[place] < _BRIEF_SILENCE_S
            elif answer["state"] not in (HOLDS, RUNS):
                why = f"{self._names[place]}: {answer.get('why', '')}"
        return why

    def _rehearse(self) -> int:
        """Prove that training would start (trainer/node/probe/rehearsal.py).

        Every node must reach every other node, and the first steps must succeed. Returns the rendezvous port. Raises
        Unfit, Away.
        """
        ports = [answer.get("port") for _, answer in sorted(self._all({"do": "open"}).items())]
        for place, answer in self._all({"do": "reach", "ports": ports}).items():
            for other, fault in answer.get("unreached", ()):
                where = f"{self._names[other]} ({self._plan['addresses'][other]}:{ports[other]})"
                raise Unfit(self._names[place], f"{self._names[place]} cannot reach {where}: {fault}")
        port = self._free_port()
        self._all({"do": "prove", "port": port})
        end, waits = time.monotonic() + _PROOF_S, set(range(len(self._names)))
        errors: dict[int, str] = {}
        while waits and time.monotonic() < end:
            time.sleep(_PROVED_EVERY_S)
            answers = self._all({"do": "proved"}, waits)
            waits -= {place for place, answer in answers.items() if answer.get("over")}
            errors |= {place: error for place, answer in answers.items() if (error := answer.get("error"))}
            if errors:  # the others only wait for this node
                break
        errors |= {} if errors else dict.fromkeys(waits, "it does not end")
        for place, error in sorted(errors.items()):
            raise Unfit(self._names[place], f"its first steps: {error}")
        return port

    def _commit(self) -> None:
        """Commit the places to this run, on all hosts or on none. Raises Away."""
        answers = self._ask_all({"do": "commit"})
        if not all(answer.get("ready") for answer in answers.values()):
            self._ask_all({"do": "rest", "why": "a place was lost"})
            raise Away

    def _free_port(self) -> int:
        for port in range(self._port, self._port + _PORTS):
            with suppress(OSError):
                meeting.listen(self._plan["addresses"][0], port).close()
                return port
        raise Unfit(self._names[0], f"ports {self._port} to {self._port + _PORTS - 1} are all in use")

    def _all(self, question: Mapping[str, Any], places: Iterable[int] | None = None) -> Answers:
        """Ask nodes that hold their place, and return their answers. Raises Away if one has lost its place."""
        answers = self._ask_all(question, places)
        if any(answer.get("state") not in (HOLDS, RUNS) for answer in answers.values()):
            raise Away
        return answers

    def _ask_all(self, question: Mapping[str, Any], places: Iterable[int] | None = None) -> Answers:
        numbers = list(range(len(self._names)) if places is None else places)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(numbers, pool.map(lambda place: self._ask(place, question) or {}, numbers), strict=True))

    def _ask(self, place: int, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """A node's answer.

        None if there is none, and then the node counts as silent from its first missing answer on.
        """
        plan = self._plan
        if place == plan["place"]:
            return self._place.answer(question)
        answer = peers.ask(plan["addresses"][place], plan["port"], plan["key"], question, _ANSWER_S)
        if answer:
            self._silent.pop(place, None)
        else:
            self._silent.setdefault(place, time.monotonic())
        return answer

    def _tell(self, why: str) -> None:
        if why != self._last_reason:
            self._last_reason = why
            self._say(why)
