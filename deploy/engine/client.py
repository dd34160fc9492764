"""Runs on this machine's engine: look, signal and remove through its API; start with `docker compose`.

What belongs to a run has the label `muster.run=<id>`; nothing without that label is ever touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..causes import docker_faults
from ..core.errors import DeployError, EngineLost
from ..core.facts import EngineFacts, NodeState
from ..core.names import NODE_PROGRAMS
from ..core.text import in_seconds, last_line
from .engine import Container, Engine, label_of
from .reach import GO_ON, LOOK_S, Here, on_this_machine

_UP_S, _COMPOSE_S = 120.0, 2 * LOOK_S
# A node may take this long until it waits for its secrets.
TAKEN_WITHIN_S = 90
_NOT_NODES, _SERVICE = {"folder"}, "com.docker.compose.service"


class ContainerState(NamedTuple):
    """One node's container, as the engine describes it."""

    node: str
    seen: Container

    def as_node(self) -> NodeState:
        """The node's state in the form that all backends use."""
        status, code, restarts = self.seen.status, self.seen.code, self.seen.restarts
        if status in ("running", "paused", "removing"):
            return NodeState(self.node, "running", None, restarts)
        if status in ("exited", "dead"):
            return NodeState(self.node, "exited", code, restarts)
        return NodeState(self.node, "waiting", code, restarts)


def find_engine() -> EngineFacts:
    """Ask the engine for its version. Returns within about two seconds, even if the engine never answers."""
    if not shutil.which("docker"):
        return EngineFacts(False, reason=docker_faults.NO_DOCKER.what)
    try:
        version = Engine(Here(LOOK_S)).version(LOOK_S)
    except DeployError as fault:
        return EngineFacts(False, reason=fault.message, silent=isinstance(fault.__cause__, TimeoutError))
    try:
        compose = _compose_version()
    except subprocess.TimeoutExpired:
        return EngineFacts(False, version, f"docker compose did not answer within {in_seconds(_COMPOSE_S)}")
    if not compose or compose.startswith("1."):
        return EngineFacts(False, version, "docker compose v2 is missing")
    return EngineFacts(True, version)


def memory() -> int:
    """The memory of the engine's machine, in bytes. Raises DeployError, EngineLost, as do the functions below."""
    return on_this_machine().memory()


def image_exists(tag: str) -> bool:
    """Whether this engine has an image with this name."""
    return on_this_machine().image(tag) is not None


def project_name(run_id: str) -> str:
    """The name of a run's compose project: only lowercase letters, digits, `-` and `_`."""
    return "muster-" + re.sub(r"[^a-z0-9_-]", "-", run_id.lower())


def up(run_id: str, environment: Mapping[str, str], workers: int, files: Sequence[Path]) -> None:
    """Create and start the nodes of a run in the background, from existing images.

    `environment`: the variables of the compose files (MUSTER_ARGS, MUSTER_UID, ...). Raises DeployError, EngineLost.
    """
    command = ["docker", "compose", "--project-name", project_name(run_id), "--progress", "quiet"]
    for file in files:
        command += ["--file", str(file)]
    # Without the service that prepares runs/, which only a plain `docker compose up` needs: the run folder exists.
    command += ["up", "--detach", "--no-build", "--no-deps", "--pull", "never", "master"]
    command += ["worker"] if workers else []
    # docker compose would read variables from a .env in the current folder, which may be somebody else's.
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
    """The container of every node of a run, sorted by node name (`master` first, `worker-2` before `worker-10`)."""
    seen = on_this_machine().inspected(label_of(run_id))
    states = [ContainerState(_node_name(each), each) for each in _nodes(seen)]
    return sorted(states, key=lambda state: (len(state.node), state.node))


def containers(run_id: str) -> dict[str, str]:
    """The names of a run's running containers, by node name."""
    return {_node_name(each): each.name for each in _listed(run_id) if each.status == "running"}


def logs(run_id: str, node: str) -> Iterator[bytes]:
    """A node's console so far, in pieces. Raises DeployError if the run has no such node."""
    for each in _listed(run_id):
        if _node_name(each) == node:
            yield from on_this_machine().logs(each.id)
            return
    raise DeployError(f"run {run_id} has no container for {node}")


def hand_in(container: str, secrets: bytes) -> None:
    """Give secrets to a node that waits for them. A thread does this, because the node may take a while to start.

    A node that does not get them waits, reports this on its console, and ends with the run.
    """
    words = ["python", "-P", "-m", NODE_PROGRAMS, "handover", str(TAKEN_WITHIN_S)]

    def give() -> None:
        with suppress(DeployError, OSError), on_this_machine().run_inside(container, words) as inside:
            inside.write(secrets)
            inside.end_input()
            for _ in inside.frames:
                pass

    threading.Thread(target=give, daemon=True, name="muster-secrets").start()


def signal(run_id: str, name: str) -> None:
    """Send a signal to every running node, without waiting.

    Docker does not restart a container that ended because of such a signal. The containers of ended nodes stay until
    `down`, so that their consoles can be read.
    """
    engine = on_this_machine()
    _act_on_all([each for each in _listed(run_id) if each.runs], lambda each: engine.signal(each.id, name))


def stop(run_id: str, grace_s: float) -> None:
    """Ask every node to stop, wait until all have, and kill those that still run after `grace_s` seconds."""
    signal(run_id, "SIGTERM")
    deadline = time.monotonic() + grace_s
    while any(state.as_node().state == "running" for state in states(run_id)):
        if time.monotonic() > deadline:
            signal(run_id, "SIGKILL")
            return
        time.sleep(0.1)


def down(run_id: str) -> int:
    """Remove a run's containers and networks, and return how many were removed."""
    engine, label = on_this_machine(), label_of(run_id)
    containers = engine.containers(label)
    _act_on_all(containers, lambda each: engine.remove(each.id))
    return len(containers) + engine.remove_networks(label)


def run_ids() -> frozenset[str]:
    """The ids of all runs that have a container on this engine, running or not."""
    label = label_of()
    return frozenset(each.labels[label] for each in on_this_machine().containers(label))


def _compose_version() -> str:
    command = ["docker", "compose", "version", "--short"]
    with suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPOSE_S, check=True)
        return done.stdout.strip().lstrip("v")
    return ""


def _compose_fault(stderr: str) -> DeployError:
    last = last_line(stderr, "no output").strip()
    cause = docker_faults.read_cause(stderr)
    if cause and cause.name == "docker-down":
        return EngineLost("the Docker engine stopped answering", GO_ON.format(cause.row.hint_here()))
    if cause and cause.name != "docker-refused":
        return DeployError(f"{cause.what}: {last}", cause.row.hint_here())
    return DeployError(f"docker compose could not start the nodes: {last}", "clean up and try again: muster down")


def _listed(run_id: str) -> list[Container]:
    return _nodes(on_this_machine().containers(label_of(run_id)))


def _nodes(containers: Iterable[Container]) -> list[Container]:
    return [each for each in containers if each.labels.get(_SERVICE) not in _NOT_NODES]


def _node_name(seen: Container) -> str:
    service, number = seen.labels.get(_SERVICE, seen.name), seen.labels.get("com.docker.compose.container-number", "")
    return service if service == "master" else f"{service}-{number}"


def _act_on_all(containers: Sequence[Container], act: Callable[[Container], None]) -> None:
    """Call `act` for all containers in parallel."""
    if containers:
        with ThreadPoolExecutor(len(containers)) as pool:
            list(pool.map(act, containers))
