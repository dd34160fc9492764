"""The place of a waiting node: what it takes on its host, gives back, and proves before the start.

The first node of the run sends questions, and all nodes answer them (coordinator.py). docs/decisions/0057 has the
protocol. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ... import NODE
from ...verdict import Verdict
from ..membership import meeting
from .claims import HOLDS, RESTS, RUNS, WAITS, Claims, NoClaim, choose, rival, who_is_next

# If the first node asks nothing for this long, a node gives back what it has, because others may need it.
LEASE_S = 20.0
_COMMIT_S, _NVML_S, _REACH_S, _PROVE_S = 45.0, 10.0, 2.0, 130.0
_CLOSE_S = 5.0
# The memory that a driver uses on an idle GPU is well below this.
_IDLE_BYTES = 1 << 30


class Reservation:
    """What this node has taken on its host. `plan`: MUSTER_WAIT (contract.md). Threads of peers.py call `answer`."""

    def __init__(self, plan: Mapping[str, Any], claims: Claims) -> None:
        self.plan, self.claims = plan, claims
        self.started: Mapping[str, Any] | None = None
        self.ended: Verdict | None = None
        self.changed = threading.Event()
        self._lock, self._heard = threading.RLock(), time.monotonic()
        self._gpus: dict[str, int] = dict(plan["gpus"])
        self._listening: socket.socket | None = None
        self._proof: subprocess.Popen[bytes] | None = None
        claims.write(state=RESTS, gpus=[], why="")

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question of the first node. Every answer contains the `state` of this node."""
        act = getattr(self, f"_on_{question.get('do')}", None)
        with self._lock:
            try:
                more = act(question) if act else {}
            except (NoClaim, OSError, KeyError, TypeError, ValueError) as fault:
                more = {"why": str(fault)}
            if question.get("do") != "end":
                self._heard = time.monotonic()
                self.claims.beat()
            return {"state": "ended" if self.ended else self.claims.own.state, **(more or {})}

    def look(self) -> None:
        """Give back what this node has if the first node has not asked for too long: it may be gone."""
        with self._lock, suppress(NoClaim):
            patience = _COMMIT_S if self.claims.own.state == RUNS else LEASE_S
            if not self.started and self.claims.own.state != RESTS and time.monotonic() - self._heard > patience:
                self._on_rest({"why": f"{self.plan['names'][0]} does not answer"})

    def _on_take(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Take what the run needs here, or wait for it. A run that has waited longer gets what this node has."""
        own, others = self.claims.own, self.claims.others()
        if own.state == RUNS:
            return {}
        if own.state == HOLDS:
            gpus, why = own.gpus, who_is_next(own, others)
        else:
            gpus, why = self._choose(own, others)
            if not why:
                self.claims.write(state=HOLDS, gpus=list(gpus), why="")
                # If two nodes take the same, both see it now, and both step back: the one that has waited longer is
                # next.
                why = rival(self.claims.own, self.claims.others())
        self.claims.write(state=WAITS if why else HOLDS, gpus=[] if why else list(gpus), why=why)
        return {"why": why}

    def _choose(self, own: Any, others: Any) -> tuple[tuple[str, ...], str]:
        gpus, why = choose(self.plan["asked"], self._gpus, own, others)
        if why or own.whole:
            return gpus, why
        busy = {uuid: "somebody" for uuid, (_, used) in in_use().items() if used > _IDLE_BYTES}
        return choose(self.plan["asked"], self._gpus, own, others, busy)

    def _on_rest(self, question: Mapping[str, Any]) -> None:
        """Give back what this node has: it is not this run's turn here."""
        self.claims.write(state=RESTS, gpus=[], why=question.get("why", ""))

    def _on_open(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Listen on a port that the kernel chooses, as the ranks will do, until the rehearsal is over."""
        self._close()
        self._listening = meeting.listen(self._address(self.plan["place"]), 0)
        _after_time_limit(self._close, self._listening)
        return {"port": self._listening.getsockname()[1]}

    def _on_reach(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Try to reach the ports of the other nodes; answers with the unreached ones and the reasons."""
        ports = dict(enumerate(question["ports"]))
        del ports[self.plan["place"]]
        with ThreadPoolExecutor(32) as pool:
            faults = pool.map(lambda entry: self._reach(*entry), ports.items())
        return {"unreached": [fault for fault in faults if fault]}

    def _reach(self, place: int, port: int) -> list[Any] | None:
        try:
            socket.create_connection((self._address(place), port), _REACH_S).close()
        except OSError as fault:
            return [place, "no answer" if isinstance(fault, TimeoutError) else str(fault.strerror or fault)]
        return None

    def _on_prove(self, question: Mapping[str, Any]) -> None:
        """Start the rehearsal with the other nodes, with the variables of the ranks."""
        self._end_proof()
        point = meeting.endpoint(self._address(0), question["port"])
        own = {**variables(self.plan, self.claims.own.gpus), "PET_RDZV_ENDPOINT": point}
        # A file, not a pipe: a pipe would fill up with the output of eight GPUs, which is read only at the end.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 # as long as the rehearsal
        self._proof = subprocess.Popen(
            [sys.executable, "-P", "-m", NODE, "rehearsal"],
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=self._words,
        )
        _after_time_limit(self._proof.kill)

    def _on_proved(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Whether the rehearsal is over, and what went wrong."""
        if self._proof is None:
            return {"over": True, "error": "it was not asked to start"}
        if self._proof.poll() is None:
            return {"over": False}
        if not self._proof.returncode:
            return {"over": True, "error": ""}
        self._words.seek(0)
        return {"over": True, "error": _error_of(self._words.read())}

    def _on_commit(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Keep for the run what this node has, from now on.

        A run that has waited longer may have taken it meanwhile.
        """
        self._close()
        self._end_proof()
        if self.claims.own.state not in (HOLDS, RUNS):
            return {"ready": False}
        self.claims.write(state=RUNS, why="")
        # While this process was stopped or hung, another run may have taken the same.
        if why := rival(self.claims.own, self.claims.others()):
            self.claims.write(state=RESTS, gpus=[], why=why)
        return {"ready": not why}

    def _on_go(self, question: Mapping[str, Any]) -> None:
        """Start the ranks."""
        if self.claims.own.state == RUNS:
            self.started = {"port": int(question["port"]), "gpus": list(self.claims.own.gpus)}
            self.changed.set()

    def _on_end(self, question: Mapping[str, Any]) -> None:
        """End the run before its start, because another node asks for it."""
        if not self.started and not self.ended:
            self.ended = Verdict(**question["verdict"])
            self.changed.set()

    def end(self, verdict: Verdict) -> None:
        """End the run before its start, because of this node."""
        self.answer({"do": "end", "verdict": asdict(verdict)})
        self._end_proof()

    def _address(self, place: int) -> str:
        return str(self.plan["addresses"][place])

    def _close(self, only: socket.socket | None = None) -> None:
        if self._listening and only in (None, self._listening):
            self._listening.close()
            self._listening = None

    def _end_proof(self) -> None:
        if self._proof and self._proof.poll() is None:
            self._proof.kill()
            with suppress(subprocess.TimeoutExpired):
                self._proof.wait(_CLOSE_S)


def variables(plan: Mapping[str, Any], gpus: Sequence[str]) -> dict[str, str]:
    """The variables that limit the ranks to these GPUs; empty if the container has no other GPUs."""
    if not isinstance(plan["asked"], int) or not gpus:
        return {}
    now = in_use()
    indices = sorted(now[uuid][0] if uuid in now else plan["gpus"][uuid] for uuid in gpus)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, indices))}


_hanging = list[subprocess.Popen[str]]()


def in_use() -> dict[str, tuple[int, int]]:
    """The index and the used bytes of each GPU, by its UUID, from its driver; empty if the driver cannot be asked.

    A separate process asks: if a GPU is broken, the driver's library may hang or die. While one such process hangs, no
    other is started.
    """
    command = [sys.executable, "-P", "-m", NODE, "nvml"]
    try:
        if any(each.poll() is None for each in _hanging):
            return {}
        asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        with suppress(subprocess.TimeoutExpired):
            answer, _ = asked.communicate(timeout=_NVML_S)
            return {uuid: (int(index), int(used)) for uuid, (index, used) in json.loads(answer).items()}
        asked.kill()  # this does not wait for its end: a hanging driver keeps it alive
        _hanging[:] = [asked]
    except (OSError, ValueError):
        pass
    return {}


def _error_of(text: bytes) -> str:
    """What went wrong, from the output of trainer/node/probe/rehearsal.py."""
    with suppress(ValueError, AttributeError, TypeError):
        last = json.loads(text.strip().splitlines()[-1])
        wrong = [rank for rank in last.get("ranks", ()) if not rank.get("right")]
        for rank in wrong:
            ended = f"ended with signal {rank['signal']}" if "signal" in rank else f"ended with code {rank.get('code')}"
            return f"local rank {rank['local']}: {rank['step']}: {rank.get('error') or ended}"[:300]
        if last.get("error"):
            return str(last["error"])[:300]
    return f"it was killed, or did not end within {_PROVE_S:.0f} s"


def _after_time_limit(act: Callable[..., object], *arguments: object) -> None:
    timer = threading.Timer(_PROVE_S, act, arguments)
    timer.daemon = True
    timer.start()
