"""Look at this machine without changing it: its system, cores, torch, ports. plan.py decides from these facts."""

from __future__ import annotations

import importlib.util
import os
import platform
import socket
import sys
from collections.abc import Iterable
from contextlib import ExitStack

from ..core.facts import MachineFacts
from ..run.environment import IMAGE_USER


def machine() -> MachineFacts:
    """The facts about this machine for local processes. Finds torch without importing it, which would take 2 s."""
    return MachineFacts(
        # A container or taskset may give this process fewer cores than the machine has. macOS does not report that.
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        system=platform.system(),
        torch=importlib.util.find_spec("torch") is not None,
        python=sys.executable,
    )


def container_user() -> tuple[int, int]:
    """The user in containers: this user, who then owns what they write; for root, the image's own user."""
    return (os.getuid(), os.getgid()) if os.getuid() else (IMAGE_USER, IMAGE_USER)


def busy_ports(candidates: Iterable[int]) -> frozenset[int]:
    """The candidate ports on which a process listens, at any address of this machine."""
    return frozenset(port for port in candidates if not _free(port))


def free_ports(nodes: int) -> list[tuple[str, int, int]]:
    """For each node, the loopback address and two ports on it that are free now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(2 * nodes)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [int(probe.getsockname()[1]) for probe in probes]
    return [("127.0.0.1", *pair) for pair in zip(ports[::2], ports[1::2], strict=True)]


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        # As in torch's store: an address in TIME_WAIT from an earlier run counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if probe.family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
