"""The keys we log in with: the ones SSH's settings name, the agent's, the usual files. Never a password.

A room of the door to SSH (session.py). Fabric makes a `Keys` for each connection; what it offered and why it left a key
out is told when a server takes none.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fabric import Config
from paramiko import Agent, PKey
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey, NoneAuth
from paramiko.config import SSHConfigDict
from paramiko.ssh_exception import SSHException

_USUAL = ("id_ed25519", "id_ecdsa", "id_rsa")


class Keys(AuthStrategy):  # type: ignore[misc]
    """First nothing, to hear what the server takes; then each key once."""

    def __init__(self, ssh_config: SSHConfigDict, fabric_config: Config, username: str) -> None:
        super().__init__(ssh_config=ssh_config)
        self._user = username
        self.offered: list[str] = []
        self.left_out: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        """What to try, in order."""
        yield NoneAuth(self._user)
        agent = _agent()
        held = list(agent.get_keys()) if agent else []
        named = self.ssh_config.get("identityfile", [])
        only = str(self.ssh_config.get("identitiesonly", "no")).lower() == "yes"
        try:
            seen: set[bytes] = set()
            for key, label in self._in_order(named, held, only):
                if key.asbytes() not in seen:
                    seen.add(key.asbytes())
                    self.offered.append(f"{label} ({key.fingerprint})")
                    yield InMemoryPrivateKey(username=self._user, pkey=key)
        finally:
            if agent:
                agent.close()

    def _in_order(self, named: list[str], held: list[Any], only: bool) -> Iterator[tuple[PKey, str]]:
        """Named files first: a server that allows few tries must get to see them. Then the agent's, then the usual."""
        for name in named:
            yield from self._file(Path(name).expanduser(), held, missing=True)
        if not only:
            yield from ((key, f"agent's {key.comment or key.get_name()}") for key in held)
        if not named:
            for name in _USUAL:
                yield from self._file(Path.home() / ".ssh" / name, held, missing=False)

    def _file(self, path: Path, held: list[Any], missing: bool) -> Iterator[tuple[PKey, str]]:
        """The key in a file, or the agent's key of the same public half where the file is locked."""
        public = _public(path)
        twin = next((key for key in held if key.asbytes() == public), None)
        if twin:
            yield twin, f"{path} from the agent"
            return
        try:
            yield PKey.from_path(path), str(path)
        except FileNotFoundError:
            if missing:
                self.left_out.append(f"{path} does not exist")
        except TypeError:  # what cryptography says of a key with a passphrase when it is given none
            self.left_out.append(f"{path} needs its passphrase: `ssh-add {path}`")
        except (SSHException, ValueError, OSError) as fault:
            self.left_out.append(f"{path} cannot be used: {fault}")


def _agent() -> Agent | None:
    try:
        return Agent()
    except (SSHException, OSError):
        return None


def _public(path: Path) -> bytes | None:
    """The key in `path`.pub as bytes."""
    try:
        return b64decode(path.with_name(f"{path.name}.pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
