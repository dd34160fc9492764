"""`python -m muster.trainer.node overlay serve NAME INTERFACE UID`: a host's end of a run's overlay network.

This is the option --overlay. The program runs in a container next to the run's. It creates this host's key and
interface with wireguard-go, wg and ip, at the request of the control side through `... overlay talk NAME`
(contract.md), and relays the packets of other pairs of hosts. It runs as long as a connection to its abstract socket
NAME is open: first the control side's connection, then that of the run's node (overlay_connection.py). When its
container ends, wireguard-go ends too, and the kernel removes the interface.

The private key goes from `wg genkey` to wireguard-go through pipes, and is stored nowhere else. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.errors import FAILED

from ... import NODE
from ..parent_death import die_with_parent
from .overlay_connection import DONE

TOOLS = ("wireguard-go", "wg", "ip")
# A node that its engine restarts is away for a moment.
_BEGIN_S, _LINGER_S, _SILENT_S = 60.0, 6.0, 60.0
_DEVICE_S, _TOOL_S, _POLL_S = 10.0, 20.0, 0.05
# How long a pair must be silent to count as at rest; the packets that only keep a path open come every 20 s.
_REST_S, _KEEP_OPEN_S = 3, 20
_LOG = Path("/var/run/wireguard/log")
_MOST_LINE, _PIECE, _BUFFER = 1 << 20, 1 << 16, 8 << 20
_CREDENTIALS = struct.Struct("3i")
_SO_BINDTODEVICE, _SO_RCVBUFFORCE, _CAPABILITIES = 25, 33, 0x20080522


class Failed(Exception):
    """A tool failed; the message says how."""


def main() -> int:
    """Run the subcommand that the first argument names; returns the exit code."""
    what, *words = sys.argv[1:]
    if what == "talk":
        return talk(words[0])
    if what == "relay":
        return relay(int(words[0]), words[1:3], int(words[3]))
    return Overlay(words[0], words[1], int(words[2])).serve()


class Overlay:
    """This host's end of the overlay. It answers only root's connections; `uid` is the node's, which keeps it alive."""

    def __init__(self, name: str, interface: str, uid: int) -> None:
        self._name, self._interface, self._uid = name, interface, uid
        # For each connection: its user id, and the part of its next line that has arrived.
        self._open: dict[socket.socket, tuple[int, bytes]] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self._key, self._address, self._done = "", "", False

    def serve(self) -> int:
        """Serve until no connection has been open for a while; returns 1 if wireguard-go or a relay ended earlier."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(f"\0{self._name}")
            listening.listen()
            until = time.monotonic() + _BEGIN_S
            while time.monotonic() < until:
                ready, _, _ = select.select([listening, *self._open], [], [], 0.5)
                for connection in ready:
                    if connection is listening:
                        self._accept(listening)
                    else:
                        self._read(connection)
                if any(child.poll() is not None for child in self._children):
                    return FAILED
                if self._open:
                    until = time.monotonic() + _LINGER_S
                elif self._done:
                    break
        self._end_relays()
        return 0

    def _end_relays(self) -> None:
        """End the relays.

        Each ends when its pair of other hosts is silent, because they may outlive this host's node.
        """
        for child in self._children[1:]:
            child.terminate()
        for child in self._children[1:]:
            child.wait()

    def _accept(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)  # type: ignore[attr-defined,unused-ignore]
        uid = _CREDENTIALS.unpack(credentials)[1]
        if uid in (0, self._uid) and len(self._open) < 64:
            self._open[connection] = uid, b""
        else:
            connection.close()

    def _read(self, connection: socket.socket) -> None:
        (uid, rest), piece = self._open[connection], b""
        with suppress(OSError):
            piece = connection.recv(_PIECE)
        if not piece or len(rest + piece) > _MOST_LINE:
            del self._open[connection]
            connection.close()
            return
        *lines, rest = (rest + piece).split(b"\n")
        self._open[connection] = uid, rest
        if uid == self._uid:
            self._done = self._done or DONE.strip() in lines
            return
        for line in lines:
            if line.strip():
                with suppress(OSError):
                    connection.sendall(json.dumps(self.answer(json.loads(line))).encode() + b"\n")

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Execute a request from the control side."""
        does = {"hello": self._hello, "up": self._up, "forget": self._forget, "meet": self._meet, "relay": self._relay}
        try:
            if question["do"] == "held":
                return {"nodes": sum(uid == self._uid for uid, _ in self._open.values())}
            return does[question["do"]](question)
        except (Failed, OSError, subprocess.SubprocessError) as fault:
            return {"error": str(fault)}

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        if lacking := [tool for tool in TOOLS if shutil.which(tool) is None]:
            return {"lacking": lacking}
        self._key = _tool("wg", "genkey")
        return {"key": _tool("wg", "pubkey", text=self._key)}

    def _up(self, question: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            # a check: wireguard-go itself would only log that the port is taken
            free.bind(("0.0.0.0", question["port"]))
        with _LOG.open("wb") as log:
            self._children.append(
                subprocess.Popen(
                    ["wireguard-go", "--foreground", self._interface],
                    env={**os.environ, "LOG_LEVEL": "error"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )
        self._await_device()
        port, self._address = str(question["port"]), question["address"]
        words = ("listen-port", port, "private-key", "/dev/stdin")
        _tool("wg", "set", self._interface, *words, text=self._key)
        self._key = ""
        _tool("ip", "address", "add", f"{self._address}/{question['prefix']}", "dev", self._interface)
        _tool("ip", "link", "set", self._interface, "mtu", str(question["mtu"]), "up")
        return {"up": self._interface}

    def _await_device(self) -> None:
        control, until = Path(f"/var/run/wireguard/{self._interface}.sock"), time.monotonic() + _DEVICE_S
        while not control.exists():
            if self._children[0].poll() is not None or time.monotonic() > until:
                words = _LOG.read_text(errors="replace").strip().splitlines()
                raise Failed(f"wireguard-go made no interface: {words[-1] if words else 'it printed nothing'}")
            time.sleep(_POLL_S)

    def _forget(self, question: dict[str, Any]) -> dict[str, Any]:
        """Remove these peers, and with them WireGuard's record of their last handshake attempt."""
        for key in question["keys"]:
            _tool("wg", "set", self._interface, "peer", key, "remove")
        return {"forgotten": len(question["keys"])}

    def _meet(self, question: dict[str, Any]) -> dict[str, Any]:
        """Try a handshake with each peer; answers with those that succeeded.

        A peer without an endpoint starts it itself.
        """
        for way in question["ways"]:
            begin = ("endpoint", way["endpoint"], "persistent-keepalive", str(_KEEP_OPEN_S)) if way["endpoint"] else ()
            allowed = ("allowed-ips", f"{way['address']}/32")
            _tool("wg", "set", self._interface, "peer", way["key"], *begin, *allowed)
            if way.get("mtu"):
                mtu = ("mtu", str(way["mtu"]))
                _tool("ip", "route", "replace", f"{way['address']}/32", "dev", self._interface, *mtu)
        wanted, until = {way["key"] for way in question["ways"]}, time.monotonic() + question["wait"]
        while not wanted <= (met := self._handshakes()) and time.monotonic() < until:
            time.sleep(_POLL_S)
        return {"met": sorted(wanted & met)}

    def _handshakes(self) -> set[str]:
        rows = _tool("wg", "show", self._interface, "latest-handshakes").split()
        return {key for key, second in zip(rows[::2], rows[1::2], strict=True) if second != "0"}

    def _relay(self, question: dict[str, Any]) -> dict[str, Any]:
        """Relay the packets that each of these pairs sends through its tunnel to this host.

        Answers with a port for each pair.
        """
        ports = []
        for pair in question["pairs"]:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as between:
                # The pair's packets come out of the tunnel. On kernels before 5.7 the socket cannot be bound to the
                # interface.
                with suppress(OSError):
                    between.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, self._interface.encode())
                with suppress(OSError):
                    between.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
                between.bind((self._address, 0))
                ports.append(between.getsockname()[1])
                words = ("relay", str(between.fileno()), *pair, str(question["port"]))
                command = [sys.executable, "-P", "-m", NODE, "overlay", *words]
                self._children.append(subprocess.Popen(command, pass_fds=[between.fileno()], stdin=subprocess.DEVNULL))
        return {"ports": ports}


def relay(descriptor: int, pair: list[str], port: int) -> int:
    """Relay each packet from one of the pair to the other, and drop all others; after SIGTERM, end when both rest.

    The packets are encrypted from end to end. The pair is recognised by its overlay addresses, whose senders WireGuard
    has authenticated: so a stranger cannot inject a packet in place of a host.
    """
    die_with_parent(signal.SIGKILL)
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    # The process that reads these packets drops all capabilities of this container.
    ctypes.CDLL(None).capset(struct.pack("=Ii", _CAPABILITIES, 0), bytes(24))
    first, second = ((address, port) for address in pair)
    other, piece = {first: second, second: first}, bytearray(_PIECE)
    view = memoryview(piece)
    with socket.socket(fileno=descriptor) as between:
        between.setblocking(True)  # if its opener left it non-blocking, every read would look like a rest
        between.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _REST_S, 0))
        while True:
            try:
                size, sender = between.recvfrom_into(piece)
                if sender in other:
                    between.sendto(view[:size], other[sender])
            except BlockingIOError:
                if ends:
                    return 0
            except OSError:  # the receiver is away, or the queue is full: packets may be lost
                continue


def talk(name: str) -> int:
    """Pass lines between this process's input and output and the socket, until either side ends or is silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        until = time.monotonic() + _DEVICE_S
        while connection.connect_ex(f"\0{name}"):
            if time.monotonic() > until:
                print("error: the overlay's container has ended", file=sys.stderr)
                return FAILED
            time.sleep(_POLL_S)
        heard = time.monotonic()
        while (left := heard + _SILENT_S - time.monotonic()) > 0:
            ready, _, _ = select.select([0, connection.fileno()], [], [], left)
            if 0 in ready:
                heard = time.monotonic()
                if not (piece := os.read(0, _PIECE)):
                    return 0
                connection.sendall(piece)
            if connection.fileno() in ready:
                if not (piece := connection.recv(_PIECE)):
                    print("error: the overlay's container has ended", file=sys.stderr)
                    return FAILED
                os.write(1, piece)
        return FAILED


def _tool(*words: str, text: str = "") -> str:
    """Run a tool and return what it prints. Raises Failed with its last line."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise Failed(f"{' '.join(words[:2])} ended with code {done.returncode}: {last}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
