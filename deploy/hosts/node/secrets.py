"""Give a run's secrets to nodes that their engine has restarted: a restarted node has lost them with its memory.

A node prints on its console that it waits for secrets, and later that it has them (contract.md). The user chooses the
secrets on this machine; a host that asks for others gets none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from ...causes.docker_faults import DockerFault
from ...core.errors import NO_RECEIVER, TAKEN, DeployError, UsageError
from ...core.text import last_line
from ...door.session import Session
from ...engine import reach
from ...host import commands
from ...host.commands import HAS_SECRETS, WAITS
from .container import container_name, secrets_document

_AGAIN_S, _TAKES_S = 5.0, 60.0


class Handover:
    """Gives the secrets of `run` to its waiting nodes. `session_of` returns a host's session; `say` prints a note.

    `secrets` returns them by name, or raises UsageError if one has no value here; None: the run has no secrets.
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
        """Whether a node waits. Raises DeployError if a node waits for a secret that has no value here."""
        if self._lacking:
            raise self._lacking[0]
        return bool(self._waiting)

    def on_console_line(self, host: str, words: str) -> None:
        """Read a line of a node's console. One thread for each host calls this."""
        if words == HAS_SECRETS:
            self._waiting.discard(host)
        elif self._secrets and words.startswith(WAITS) and host not in self._waiting:
            self._waiting.add(host)
            work = (host, self._secrets)
            threading.Thread(target=self._hand_in, args=work, daemon=True, name=f"muster-secrets-{host}").start()

    def close(self) -> None:
        """Stop giving secrets."""
        self._closed.set()

    def _hand_in(self, host: str, secrets: Callable[[], Mapping[str, str]]) -> None:
        """Try until the node has its secrets or no longer waits: the line may be older than the node's last restart."""
        reported = ""
        while host in self._waiting and not self._closed.is_set():
            try:
                if hand_in(self._session_of(host), self._run, secrets()):
                    self._say(f"{host}: gave the node its secrets")
                break
            except UsageError as fault:
                self._refuse(host, fault)
                break
            except DeployError as fault:
                if fault.message != reported:
                    self._say(reported := fault.message)
            self._closed.wait(_AGAIN_S)
        self._waiting.discard(host)

    def _refuse(self, host: str, lacking: UsageError) -> None:
        with suppress(DeployError):
            if hand_in(self._session_of(host), self._run, {}):
                self._lacking.append(
                    DeployError(f"{host} {WAITS}; {lacking.message}", f"{lacking.hint}; the node still waits")
                )


def hand_in(session: Session, run: str, secrets: Mapping[str, str]) -> bool:
    """Give secrets to a run's node; with no secrets, only ask whether it waits for them. Returns whether it waited.

    Raises DeployError if the node waits but did not take them.
    """
    engine, name, document = reach.on_host(session), container_name(run), secrets_document(secrets)
    try:
        done = engine.ask_inside(name, commands.node_program("handover", "0"), _TAKES_S, document)
    except DockerFault:
        if (seen := engine.inspect(name)) and seen.status == "running":
            raise
        return False
    if done.code not in (TAKEN, NO_RECEIVER):
        seen = engine.inspect(name)
        if seen is None or seen.status != "running":
            return False
        if document:
            words = last_line(done.err, "it needs others")
            raise DeployError(f"{session.name}: its node waits for its secrets, but did not accept these: {words}")
    return done.code != NO_RECEIVER
