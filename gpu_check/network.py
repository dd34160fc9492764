"""Several 'hosts' on this machine: each has its own network, plugged into one bridge, and can be unplugged.

A network exists as long as the process that holds it, so nothing is left of it, however this process ends.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from . import netlink

INTERFACE, DECOY = "net0", "decoy0"
_BRIDGE = "bridge0"
_NEWNET = 0x40000000
_HOLD = "import os, sys; os.write(1, b'.'); sys.stdin.read()"


@dataclass(frozen=True)
class Place:
    """Where a node runs: its host's address and interface, and the process that holds its network (0: none)."""

    address: str = "127.0.0.1"
    interface: str = "lo"
    holder: int = 0

    def enter(self) -> None:
        """Move this process into the host's network."""
        if self.holder:
            _enter(self.holder)


class Network:
    """Hosts with their own networks, inside `separate_hosts`."""

    def __init__(self, switch: int, places: Sequence[Place]) -> None:
        self._switch, self.places = switch, places

    def cut(self, host: int) -> None:
        """Silently drop everything that a host sends and receives."""
        _within(self._switch, lambda: netlink.plug(f"port{host}", ""))

    def reconnect(self, host: int) -> None:
        """Reconnect a host after `cut`."""
        _within(self._switch, lambda: netlink.plug(f"port{host}", _BRIDGE))


@contextmanager
def separate_hosts(count: int) -> Iterator[Network]:
    """A network of `count` hosts. Each has a second interface that leads nowhere. Raises OSError if not allowed."""
    with ExitStack() as stack:
        switch = stack.enter_context(_held_network())
        holders = [stack.enter_context(_held_network()) for _ in range(count)]
        _within(switch, lambda: _connect_hosts(holders))
        places = []
        for number, holder in enumerate(holders):
            address = f"10.77.0.{number + 1}"
            _within(holder, lambda address=address: _settle(address))  # type: ignore[misc]
            places.append(Place(address, INTERFACE, holder))
        yield Network(switch, places)


def _connect_hosts(holders: Sequence[int]) -> None:
    netlink.add_bridge(_BRIDGE)
    netlink.switch_on(_BRIDGE)
    for number, holder in enumerate(holders):
        netlink.add_pair(f"port{number}", INTERFACE, holder)
        netlink.plug(f"port{number}", _BRIDGE)
        netlink.switch_on(f"port{number}")


def _settle(address: str) -> None:
    netlink.switch_on("lo")
    netlink.switch_on(INTERFACE)
    netlink.add_address(INTERFACE, address, 24)
    # Every host has the same address on this interface: a rank that uses it reaches no other, as with Docker's bridge.
    netlink.add_pair(DECOY, f"{DECOY}-end", os.getpid())
    netlink.switch_on(DECOY)
    netlink.add_address(DECOY, "10.78.0.1", 24)


@contextmanager
def _held_network() -> Iterator[int]:
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_new_network
    )
    assert holder.stdin
    assert holder.stdout
    try:
        holder.stdout.read(1)  # the holder has moved into its new network
        yield holder.pid
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.kill()
        holder.wait()


def _libc(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _new_network() -> None:
    _libc("unshare", _NEWNET)


def _enter(holder: int) -> None:
    network = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY)
    try:
        _libc("setns", network, _NEWNET)
    finally:
        os.close(network)


def _within(holder: int, act: Callable[[], None]) -> None:
    """Call `act` in the holder's network, and return to this process's network."""
    back = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        _enter(holder)
        try:
            act()
        finally:
            _libc("setns", back, _NEWNET)
    finally:
        os.close(back)


def why_not_allowed() -> str:
    """Why this machine does not allow separate networks; empty if it does."""
    if os.getuid() != 0:
        return "only root may make network namespaces"
    try:
        with separate_hosts(1):
            return ""
    except subprocess.SubprocessError:
        return "the kernel refuses network namespaces"
    except OSError as fault:
        return f"network namespaces cannot be laid: {fault}"
