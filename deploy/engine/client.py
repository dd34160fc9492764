"""The only door to Docker: the SDK to look, signal and remove; the `docker compose` command to start.

What belongs to a run is known by its label `muster.run=<id>`; nothing without that label is ever touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..causes import docker_faults
from ..core.errors import DeployError, EngineLost
from ..core.facts import EngineFacts, NodeState
from ..core.program import MAKE, option
from ..core.text import in_seconds

LABEL = "muster.run"
_LOOK_S = 1.0  # an engine that takes longer to report its version is useless
_CALL_S = 20.0
_UP_S = 120.0
_TAKEN_WITHIN_S = 90
_NOT_NODES = {"folder"}
_GO_ON = f"{{}}; then `{MAKE} up {option('RESUME', 'latest')}`"


@dataclass(frozen=True)
class ContainerState:
    """One node's container. `status` is Docker's word; `exit_code` is that of its last end, None while it runs."""

    node: str
    container: str
    hostname: str
    status: str
    exit_code: int | None
    started_at: str
    oom_killed: bool
    health: str
    restarts: int

    def as_node(self) -> NodeState:
        """The state in the form that all backends share."""
        if self.status in ("running", "paused", "removing"):
            return NodeState(self.node, "running", None, self.restarts)
        if self.status in ("exited", "dead"):
            return NodeState(self.node, "exited", self.exit_code, self.restarts)
        return NodeState(self.node, "waiting", self.exit_code, self.restarts)


def find_engine() -> EngineFacts:
    """Ask the engine for its version. Returns within about two seconds, even if the engine never answers."""
    if not shutil.which("docker"):
        return EngineFacts(False, reason=docker_faults.named("docker-missing").what)
    try:
        client = _client(_LOOK_S)
        version = str(client.version()["Version"])
    except Exception as fault:
        return EngineFacts(False, reason=_why_silent(fault))
    compose = _compose_version()
    if not compose.startswith(("2", "3", "4", "5")):
        return EngineFacts(False, version, compose, "docker compose v2 is missing")
    return EngineFacts(True, version, compose)


def memory() -> int:
    """The bytes of memory of the engine's machine. Raises DeployError, EngineLost."""
    with _asking("ask for its memory"):
        return int(_client().info()["MemTotal"])


def image_id(tag: str) -> str:
    """The id of a local image (`sha256:...`); empty if there is no image of that name."""
    from docker.errors import ImageNotFound

    with _asking("look for an image"):
        try:
            return str(_client().images.get(tag).id)
        except ImageNotFound:
            return ""


def image_exists(tag: str) -> bool:
    """Whether this engine has an image of that name."""
    return bool(image_id(tag))


def project_name(run_id: str) -> str:
    """The compose project of a run: only lower case letters, digits, `-` and `_`."""
    return "muster-" + re.sub(r"[^a-z0-9_-]", "-", run_id.lower())


def up(run_id: str, environment: Mapping[str, str], workers: int, files: Sequence[Path]) -> None:
    """Create and start the nodes of a run in the background, from existing images.

    `environment`: the variables of the compose files (MUSTER_ARGS, MUSTER_UID, ...). Raises DeployError, EngineLost.
    """
    command = ["docker", "compose", "--project-name", project_name(run_id), "--progress", "quiet"]
    for file in files:
        command += ["--file", str(file)]
    # Only a plain `docker compose up` needs the service that prepares runs/: our run folder exists.
    command += ["up", "--detach", "--no-build", "--no-deps", "--pull", "never", "master"]
    command += ["worker"] if workers else []
    # It would take variables from a .env of the current folder, which may be somebody else's.
    own = {"COMPOSE_DISABLE_ENV_FILE": "1", "WORKERS": str(workers), "MUSTER_RUN_ID": run_id}
    given = {**os.environ, **environment, **own}
    try:
        done = subprocess.run(command, cwd="/", env=given, capture_output=True, text=True, timeout=_UP_S, check=False)
    except subprocess.TimeoutExpired as fault:
        raise EngineLost(f"docker compose did not start the nodes within {in_seconds(_UP_S)}") from fault
    except OSError as fault:
        raise DeployError(f"cannot run docker compose: {fault.strerror}") from fault
    if done.returncode:
        raise _compose_fault(done.stderr)


def states(run_id: str) -> list[ContainerState]:
    """Every node's container of a run, by node name (`master` first, `worker-2` before `worker-10`)."""
    with _asking("look at the nodes"):
        states = [_state(container) for container in _nodes(run_id)]
    return sorted(states, key=lambda state: (len(state.node), state.node))


def containers(run_id: str) -> dict[str, str]:
    """The running containers of a run, by node name."""
    with _asking("look at the nodes"):
        return {
            _node_name(container): str(container.name) for container in _nodes(run_id) if container.status == "running"
        }


def logs(run_id: str, node: str) -> Iterator[bytes]:
    """A node's console so far, in pieces. Raises DeployError if the run has no such node."""
    with _asking("read a node's console"):
        for container in _nodes(run_id):
            if _node_name(container) == node:
                yield from container.logs(stream=True, follow=False)
                return
    raise DeployError(f"run {run_id} has no container for {node}")


def hand_in(container: str, secrets: bytes) -> None:
    """Give secrets to a node that waits for them, beside this process: the node may need a while to begin.

    A node that does not get them waits, says so on its console, and ends with the run.
    """
    command = ["docker", "exec", "--interactive", container]
    command += ["python", "-P", "-m", "trainer.node.handover", str(_TAKEN_WITHIN_S)]

    def give() -> None:
        with suppress(OSError):
            subprocess.run(command, input=secrets, capture_output=True, check=False)

    threading.Thread(target=give, daemon=True, name="muster-secrets").start()


def ask_to_stop(run_id: str) -> None:
    """Send SIGTERM to every running node; does not wait. Docker's restart policy leaves a stopped node alone."""
    _signal(run_id, "SIGTERM")


def kill(run_id: str) -> None:
    """End every node now. Their containers stay until `down`, so that their consoles can be read."""
    _signal(run_id, "SIGKILL")


def stop(run_id: str, grace_s: float) -> None:
    """Ask every node to stop, wait until all have, and kill those that still run after `grace_s` seconds."""
    ask_to_stop(run_id)
    deadline = time.monotonic() + grace_s
    while any(state.as_node().state == "running" for state in states(run_id)):
        if time.monotonic() > deadline:
            kill(run_id)
            return
        time.sleep(0.1)


def down(run_id: str) -> int:
    """Remove a run's containers and networks; returns how many things were removed."""
    return _remove(f"{LABEL}={run_id}")


def run_ids() -> frozenset[str]:
    """Ids of the runs that have a container on this engine, running or not."""
    with _asking("look for runs"):
        containers = _client().containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
        return frozenset(str(container.labels[LABEL]) for container in containers)


def _client(timeout: float = _CALL_S) -> Any:
    return _connected(os.environ.get("DOCKER_HOST", ""), timeout)


@cache
def _connected(host: str, timeout: float) -> Any:
    """A client for `host`, or for the `docker` command's current context (Docker Desktop, rootless).

    Cached, because a run asks ten times a second. An exception is not cached, so a later call finds a later engine.
    """
    # Imported here, because it takes 0.2 s that a machine without Docker need not pay.
    import docker

    if host:
        return docker.from_env(timeout=timeout)
    return docker.DockerClient(base_url=_context_host(), timeout=timeout)


def _context_host() -> str | None:
    command = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=_LOOK_S, check=True).stdout.strip()
    return None


def _compose_version() -> str:
    command = ["docker", "compose", "version", "--short"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _LOOK_S, check=True)
        return done.stdout.strip().lstrip("v")
    return ""


def _why_silent(fault: BaseException) -> str:
    # The SDK wraps requests, which wraps urllib3, which wraps the socket's error: only its name survives.
    if "PermissionError" in repr(fault):
        cause = docker_faults.named("docker-permission")
        return f"{cause.what}: {cause.row.hint_here()}"
    if "timed out" in str(fault).lower():
        return f"the Docker engine did not answer within {in_seconds(_LOOK_S)}"
    return "no Docker engine answers"


def _compose_fault(stderr: str) -> DeployError:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    cause = docker_faults.read(stderr)
    if cause and cause.name == "docker-down":
        return EngineLost("the Docker engine stopped answering", _GO_ON.format(cause.row.hint_here()))
    if cause and cause.name != "docker-refused":
        return DeployError(f"{cause.what}: {last}", cause.row.hint_here())
    return DeployError(f"docker compose could not start the nodes: {last}", f"clean up and try again: {MAKE} down")


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turn the SDK's faults into ours: EngineLost if the engine does not answer, DeployError if it refused."""
    import requests
    from docker.errors import APIError, DockerException

    try:
        yield
    except APIError as fault:
        raise DeployError(f"Docker refused to {what}: {fault.explanation or fault}") from fault
    except (DockerException, requests.RequestException) as fault:
        hint = _GO_ON.format(docker_faults.named("docker-down").row.hint_here())
        raise EngineLost(f"cannot {what}: {_why_silent(fault)}", hint) from fault


def _nodes(run_id: str) -> list[Any]:
    containers = _client().containers.list(all=True, filters={"label": f"{LABEL}={run_id}"}, ignore_removed=True)
    return [
        container for container in containers if container.labels.get("com.docker.compose.service") not in _NOT_NODES
    ]


def _node_name(container: Any) -> str:
    service = container.labels.get("com.docker.compose.service", container.name)
    number = container.labels.get("com.docker.compose.container-number", "")
    return str(service) if service == "master" else f"{service}-{number}"


def _state(container: Any) -> ContainerState:
    state = container.attrs["State"]
    return ContainerState(
        node=_node_name(container),
        container=container.short_id,
        hostname=container.attrs["Config"]["Hostname"],
        status=state["Status"],
        exit_code=None if state["Status"] in ("created", "running", "paused") else state["ExitCode"],
        started_at=state["StartedAt"],
        oom_killed=state["OOMKilled"],
        health=state.get("Health", {}).get("Status", ""),
        restarts=container.attrs["RestartCount"],
    )


def _signal(run_id: str, name: str) -> None:
    with _asking("signal the nodes"):
        running = [container for container in _nodes(run_id) if container.status in ("running", "restarting", "paused")]
        _each(running, lambda container: container.kill(name))


def _remove(label: str) -> int:
    with _asking("remove what runs left"):
        client = _client()
        containers = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        _each(containers, lambda container: container.remove(force=True, v=True))
        networks = client.networks.list(filters={"label": label})
        _each(networks, lambda network: network.remove())
    return len(containers) + len(networks)


def _each(things: Sequence[Any], act: Callable[[Any], object]) -> None:
    """Act on all at once. A thing that was removed meanwhile (404) or has ended already (409) is not a fault."""
    from docker.errors import APIError

    def attempt(thing: Any) -> None:
        try:
            act(thing)
        except APIError as fault:
            if fault.status_code not in (404, 409):
                raise

    if things:
        with ThreadPoolExecutor(len(things)) as pool:
            list(pool.map(attempt, things))
