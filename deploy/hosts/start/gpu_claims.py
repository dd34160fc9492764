"""What a run claims: the GPUs that it gets on each host, and with --wait only hosts where no other run is.

A deploy claims them on all hosts together, and holds them until its containers have them. With --wait, its nodes claim
them later if they are not free now (waits.py).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.errors import DeployError
from ...core.results import HostsFailed
from ...door.session import Session, on_all
from ...host import gpu_choice
from ...host.claims import Claim
from ...host.facts import HostFacts
from ...host.gpu_choice import Choice
from ...host.gpus import Gpus
from ...host.lock import BEAT_S
from ...host.reached import ReachedHosts
from ...job.options import FLAG
from ...job.values import Gpus as Asked

# Two deploys that begin at the same moment may each keep the other from some hosts: then both try again.
_TRIES, _PAUSE_S = 5, 0.4


class GpusTaken(DeployError):
    """GPUs that the deploy asked for are not free. `is_temporary`: a running deploy has them and may give them back."""

    def __init__(self, host: str, choice: Choice) -> None:
        super().__init__(
            f"{host}: {choice.taken}",
            f"`muster gpus` shows who uses them; {FLAG.wait} waits for them; {FLAG.gpus} N takes any N free ones",
        )
        self.is_temporary = choice.is_temporary


class GpuClaims:
    """What a deploy claims on its hosts. Leaving the `with`, or calling `release`, gives everything back.

    `run`: what other deploys see as the holder. `alone`: claim only hosts or GPUs that no other run uses.
    """

    def __init__(self, hosts: ReachedHosts, run: str, token: str, alone: bool = False) -> None:
        self._token, self._run, self._alone = token, run, alone
        self._sessions = hosts.sessions if alone else sessions_with_gpus(hosts)
        self._claims: dict[str, Claim] = {}
        self._over, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> GpuClaims:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> None:
        """Claim the GPUs on all hosts, or on none. Raises HostsFailed, which tells who holds what."""
        for tries in range(_TRIES):
            try:
                on_all(self._sessions, self._take_one).all()
                self._keep_alive()
                return
            except HostsFailed as failed:
                self._drop()
                passing = all(isinstance(fault, GpusTaken) and fault.is_temporary for fault in failed.faults.values())
                if not passing or tries == _TRIES - 1:
                    raise
            time.sleep(random.uniform(_PAUSE_S, 3 * _PAUSE_S))

    def refuse_lost(self) -> None:
        """Raise DeployError if a claim has ended: another deploy may have those GPUs by now."""
        if lost := ",".join(claim.host for claim in self._claims.values() if claim.lost):
            raise DeployError(
                f"{lost}: the claim on its GPUs was lost: the connection was cut for too long", "try again"
            )

    def narrow_facts(self, facts: Mapping[str, HostFacts]) -> dict[str, HostFacts]:
        """`facts`, limited to the GPUs of each host that this deploy gets."""
        return {
            host: with_choice(host_facts, claim.choice) if (claim := self._claims.get(host)) else host_facts
            for host, host_facts in facts.items()
        }

    def claim_names(self) -> dict[str, str]:
        """The name of the claim on each host where the run gets GPUs; the start on that host needs it."""
        return {host: claim.name for host, claim in self._claims.items() if claim.choice.gpus}

    def release(self) -> None:
        """Give everything back. A second call does nothing."""
        self._over.set()
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            claims, self._claims = list(self._claims.values()), {}
        for claim in claims:
            claim.close()

    def _take_one(self, session: Session) -> None:
        choice = self._attempt(session)
        if choice.taken:
            raise GpusTaken(session.name, choice)

    def _attempt(self, session: Session) -> Choice:
        host = session.host

        def decide(here: Gpus) -> Choice:
            return gpu_choice.choose(
                host.gpus, gpu_choice.visible_to_cuda(host.visible, here), self._token, self._alone
            )

        with self._lock:
            claim = self._claims.get(host.name)
        if claim is None:
            claim = Claim(session, self._token, self._run)
            with self._lock:
                self._claims[host.name] = claim
        return claim.attempt(decide, self._alone)

    def _keep_alive(self) -> None:
        threading.Thread(target=self._beat, daemon=True, name="muster-places").start()

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            with self._lock:
                claims = [claim for claim in self._claims.values() if not claim.choice.taken]
            for claim in claims:
                claim.beat()


def with_choice(facts: HostFacts, choice: Choice) -> HostFacts:
    """A host's facts, limited to the GPUs that a deploy gets there."""
    every, chosen = ({gpu.uuid for gpu in gpus} for gpus in (facts.gpus, choice.gpus))
    return replace(facts, gpus=choice.gpus, picked=facts.picked or chosen != every)


def waiting_facts(facts: HostFacts, asked: Asked) -> HostFacts:
    """A host's facts for a run that waits: as many GPUs as it will get there, and the candidates for them."""
    if asked == 0 or not facts.gpus:
        return replace(facts, gpus=())
    named = tuple(gpu for gpu in facts.gpus if not isinstance(asked, tuple) or gpu.index in asked)
    gpus = named[:asked] if isinstance(asked, int) else named
    return replace(facts, gpus=gpus, candidates=named, picked=facts.picked or named != facts.gpus)


def planned_choices(sessions: Sequence[Session], here: Mapping[str, Gpus]) -> dict[str, Choice]:
    """What the hosts would grant now, for a plan that claims nothing. `here`: the GPUs by host."""
    hosts = [session.host for session in sessions]
    left = {host.name: gpu_choice.visible_to_cuda(host.visible, here[host.name]) for host in hosts}
    return {host.name: gpu_choice.choose(host.gpus, left[host.name], "") for host in hosts}


def sessions_with_gpus(hosts: ReachedHosts) -> Sequence[Session]:
    """The hosts on which the run uses GPUs, or wants to."""
    return [
        session
        for session in hosts.sessions
        if session.host.gpus != 0 and (hosts.facts[session.name].gpus or session.host.gpus != "auto")
    ]
