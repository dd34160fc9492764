"""What a host lacks before it can run containers, and the commands that install it. Pure.

Bootstrap installs only packages of the host's own distribution, with its package manager, and adds no package source.
It leaves everything else to the user. hosts/bootstrap_run.py runs the plan.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from ..core.fields import default, digits, optional, text
from ..core.scripts import Scripts

_ENGINE = "docker.io"
_TOOLKIT = "nvidia-container-toolkit"
_KNOWN = ("debian", "ubuntu")
_WORD, _USER, _NUMBER = text(100, r"[\w .+~-]*"), text(100, r"[A-Za-z0-9_][\w.@\\-]*\$?|"), optional(digits(10**6))
# Since Debian 13 the Docker client is a separate package (docker-cli), which docker.io only recommends.
_DEBIAN_WITH_CLIENT_APART = 13
_SCRIPT = Scripts(__file__)
# Words that the answer either has on a line of its own or lacks.
_SEEN = (
    *("sudo", "member", "systemd", "dockerd", "client", "answers", "driver", "toolkit"),
    *("toolkit-package", "rootless"),
)


@dataclass(frozen=True)
class Machine:
    """What bootstrap must know about a host.

    `answers`: the host's Docker engine answers. `running`: how many containers run there. `rootless`: the login's own
    `docker` command talks to a rootless engine.
    """

    os: str
    release: str
    user: str
    root: bool
    sudo: bool
    member: bool
    systemd: bool
    dockerd: bool
    client: bool
    answers: bool
    running: int
    gpu: bool
    driver: bool
    toolkit: bool
    toolkit_package: bool
    rootless: bool = False


@dataclass(frozen=True)
class Step:
    """One command to run as root, and the reason for it."""

    argv: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Plan:
    """The steps for a host, in order; `by_hand`: what its owner must do. If both are empty, the host lacks nothing."""

    steps: tuple[Step, ...] = ()
    by_hand: tuple[str, ...] = ()


def look() -> tuple[str, ...]:
    """The command that looks at a host; `parse` reads its answer."""
    return _SCRIPT("bootstrap-look")


def wait() -> tuple[str, ...]:
    """The command that waits up to 30 s for an engine to answer root: not every way to start an engine waits."""
    return _SCRIPT("bootstrap-wait")


def parse(answer: str) -> Machine:
    """Read the answer: one word on each line, some followed by a value. Raises BadAnswer."""
    rows = {word: value for word, _, value in (line.partition(" ") for line in answer.split("\n"))}
    seen: dict[str, Any] = {word.replace("-", "_"): word in rows for word in _SEEN}
    return Machine(
        os=_WORD(rows.get("os", ""), "os"),
        release=_WORD(rows.get("release", ""), "release"),
        user=_USER(rows.get("user", ""), "user"),
        root=rows.get("uid") == "0",
        running=default(digits(1 << 20), 0)(rows.get("running"), "running"),
        gpu="gpu" in rows or "driver" in rows,
        **seen,
    )


def decide(machine: Machine) -> Plan:
    """Decide the plan for a host. If bootstrap may not change the host, the plan leaves everything to its owner."""
    packages, by_hand = _packages(machine)
    steps, words = _install(packages) if packages else [], tuple[str, ...]()
    if _TOOLKIT in packages:
        words = ("systemctl", "restart", "docker") if machine.systemd else ("service", "docker", "restart")
        steps.append(Step(words, "the engine only looks for NVIDIA's toolkit when it starts"))
    elif not machine.answers:
        words = ("systemctl", "enable", "--now", "docker") if machine.systemd else ("service", "docker", "start")
        steps.append(Step(words, "start the engine now and after every reboot"))
    if not machine.root and not machine.member:
        words = ("usermod", "--append", "--groups", "docker", machine.user)
        steps.append(Step(words, f"let {machine.user} use the engine; this is as powerful as root there"))
    if not steps:
        return Plan((), by_hand)
    if machine.os not in _KNOWN:
        what = machine.os or "an unknown system"
        return Plan(
            (), (f"it runs {what}, but bootstrap only knows Debian and Ubuntu: install Docker as Docker's manual says",)
        )
    if machine.root:
        return Plan(tuple(steps), by_hand)
    if not machine.sudo:
        commands = "; ".join(shlex.join(step.argv) for step in steps)
        owner = f"{machine.user} is not root there, and cannot use sudo without a password: as root, run {commands}"
        return Plan((), (owner, *by_hand))
    return Plan(tuple(Step(("sudo", "-n", *step.argv), step.why) for step in steps), by_hand)


def _packages(machine: Machine) -> tuple[tuple[str, ...], tuple[str, ...]]:
    packages = []
    by_hand = []
    if machine.rootless:
        by_hand.append(
            f"{machine.user}'s docker talks to a rootless engine, whose containers cannot write a run's folder: "
            "docker context use default; unset DOCKER_HOST"
        )
    if not machine.answers and not machine.dockerd:
        packages.append(_ENGINE)
    if not machine.client and _client_apart(machine):
        packages.append("docker-cli")
    if packages:
        # docker.io only recommends iptables, but containers have no network without it.
        packages.append("iptables")
    if machine.gpu and not machine.driver:
        by_hand.append("it has an NVIDIA GPU but no driver: install the driver as your distribution's manual says")
    if machine.gpu and not machine.toolkit:
        if not machine.toolkit_package:
            by_hand.append(
                f"containers cannot use its NVIDIA GPU: its package sources do not have the package {_TOOLKIT}; "
                "add NVIDIA's own source as the container toolkit's installation guide says, then run bootstrap again"
            )
        elif machine.running:
            by_hand.append(
                f"{_TOOLKIT} is missing, and the engine must restart after it is installed: that would stop "
                f"{machine.running} running containers; run bootstrap again when they have ended"
            )
        else:
            packages.append(_TOOLKIT)
    return tuple(packages), tuple(by_hand)


def _client_apart(machine: Machine) -> bool:
    if machine.os != "debian":
        return False
    # Debian testing and unstable have no release number.
    release = _NUMBER(machine.release, "release")
    return release is None or release >= _DEBIAN_WITH_CLIENT_APART


def _install(packages: tuple[str, ...]) -> list[Step]:
    words = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qy", "--no-install-recommends", *packages)
    return [
        Step(("apt-get", "update", "-q"), "update the package lists"),
        Step(words, f"install {', '.join(packages)} from the host's distribution"),
    ]
