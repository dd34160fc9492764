"""A run's secrets for nodes that wait for them again: what its engine starts again has lost them, with its memory.

A node says on its console that it waits, and that it has them (docs/contract.md). The names are the user's own: a host
that asks for others gets none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..core.errors import NOBODY_WAITS, TAKEN, DeployError, UsageError
from ..host import commands
from ..host.commands import HAS_SECRETS, WAITS
from ..ssh.session import Session
from .container import container_name, handed_in

_AGAIN_S = 5.0


class Handover:
    """Hands the secrets of `run` to its nodes that wait, `session_of` a host's name, `say` narrates.

    `secrets` gives them by name, or raises UsageError where one is not to be had here; None: the run has none.
    """

    def __init__(
        self,
        run: str,
        secrets: Callable[[], Mapping[str, str]] | None,
        session_of: Callable[[str], Session],
        say: Callable[[str], None],
    ) -> None:
        self._run, self._secrets, self._session_of, self._say = run, secrets, session_of, say
        self._waiting, self._lacking, self._closed = set[str](), list[DeployError](), threading.Event()

    def waits(self) -> bool:
        """Whether a node waits. Raises DeployError where one waits for what is not to be had here."""
        if self._lacking:
            raise self._lacking[0]
        return bool(self._waiting)

    def heard(self, host: str, words: str) -> None:
        """A line of a node's console; told by one thread a host."""
        if words == HAS_SECRETS:
            self._waiting.discard(host)
        elif self._secrets and words.startswith(WAITS) and host not in self._waiting:
            self._waiting.add(host)
            work = (host, self._secrets)
            threading.Thread(target=self._hand_in, args=work, daemon=True, name=f"muster-secrets-{host}").start()

    def close(self) -> None:
        """Hand in no more."""
        self._closed.set()

    def _hand_in(self, host: str, secrets: Callable[[], Mapping[str, str]]) -> None:
        """Until the node has them, or waits no longer: the line may be of a life that is over."""
        told = ""
        while host in self._waiting and not self._closed.is_set():
            try:
                if hand_in(self._session_of(host), self._run, secrets()):
                    self._say(f"{host}: handed its secrets in")
                break
            except UsageError as fault:
                self._refuse(host, fault)
                break
            except DeployError as fault:
                if fault.message != told:
                    self._say(told := fault.message)
            self._closed.wait(_AGAIN_S)
        self._waiting.discard(host)

    def _refuse(self, host: str, lacking: UsageError) -> None:
        with suppress(DeployError):
            if hand_in(self._session_of(host), self._run, {}):
                self._lacking.append(DeployError(f"{host} {WAITS}; {lacking.message}", f"{lacking.hint}; it waits"))


def hand_in(session: Session, run: str, secrets: Mapping[str, str]) -> bool:
    """Hand secrets to a run's node that waits for them, without any: ask whether it does. Whether it waited.

    Raises DeployError where it waits and did not take them.
    """
    command, document = commands.hand_in(container_name(run)), handed_in(secrets)
    done = session.run(command, input=commands.line(document), check=False)
    if document and done.code not in (TAKEN, NOBODY_WAITS):
        words = (done.err.strip() or "others than these").splitlines()[-1]
        raise DeployError(f"{session.host.name}: its node waits for its secrets, and did not take these: {words}")
    return done.code != NOBODY_WAITS
