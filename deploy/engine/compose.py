"""Imitate docker-compose.yml for a preflight: the nodes' options for `docker run`, and a temporary network."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import DeployError
from ..core.text import last_line

LABEL = "muster.preflight=1"
# A preflight's container: it ends when its input ends, and is then removed.
ONCE = (
    *("docker", "run", "--rm", "--interactive", "--pull", "never"),
    *("--label", LABEL, "--log-driver", "none"),
)
_WAIT_S = 30.0
# This process outlives Muster's. When its input ends, however Muster ended, it removes the network once that is empty.
_REMOVE_NETWORK = 'read -r _; n=0; until docker network rm "$0" || [ $n -gt 50 ]; do n=$((n + 1)); sleep 0.2; done'


def service(file: Path, name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """A service of the file, with compose's variables filled in. Raises DeployError."""
    document = _run(["docker", "compose", "--file", str(file), "config", "--format", "json"], environment)
    return dict(json.loads(document)["services"][name])


def options(service: Mapping[str, Any]) -> list[str]:
    """The `docker run` options for a service's user, limits, rights and variables."""
    limits = (f"--ulimit={name}={value}" for name, value in service.get("ulimits", {}).items())
    rights = (f"--security-opt={value}" for value in service.get("security_opt", ()))
    dropped = (f"--cap-drop={name}" for name in service.get("cap_drop", ()))
    given = (f"--env={name}={value}" for name, value in sorted(service.get("environment", {}).items()))
    memory, user = service.get("shm_size"), service.get("user")
    first = [*([f"--shm-size={memory}"] if memory else []), *([f"--user={user}"] if user else [])]
    return [*first, *limits, *rights, *dropped, *given]


def in_container(network: str, node: str, image: str, more: list[str]) -> list[str]:
    """A command that runs the image's Python as a node in the network, in a container that is removed when it ends."""
    return [
        *ONCE,
        "--no-healthcheck",
        f"--network={network}",
        f"--network-alias={node}",
        *more,
        "--entrypoint=python",
        image,
    ]


@contextmanager
def network(name: str) -> Iterator[str]:
    """Create a temporary network. Raises DeployError if the engine cannot create it."""
    null = subprocess.DEVNULL
    command = ["sh", "-c", _REMOVE_NETWORK, name]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True)
    try:
        _run(["docker", "network", "create", f"--label={LABEL}", name], {})
        yield name
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(_WAIT_S)


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    given = {**os.environ, **environment}
    try:
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise DeployError(f"cannot run {' '.join(command[:3])}: {failed}", "docker version") from None
    if done.returncode:
        words = last_line(done.stderr, "no output")
        raise DeployError(f"{' '.join(command[:3])}: {words}", "docker version")
    return done.stdout
