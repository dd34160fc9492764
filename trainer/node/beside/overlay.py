"""`python -m muster.trainer.node overlay serve NAME INTERFACE UID`: a host's end of a run's own network (--overlay).

It stands in a container beside the run's, makes this host's key and interface with wireguard-go, wg and ip, as the
control side asks through `... overlay talk NAME` (contract.md), and relays what two other hosts send each other.
It lives as long as a connection to its abstract socket NAME is open: first that of the control side, then that of the
node of the run (tie.py). With its container wireguard-go ends, and the kernel removes the interface.

The private key goes from `wg genkey` to wireguard-go through pipes, and is nowhere else. Standard library only.
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
from .tie import DONE

TOOLS = ("wireguard-go", "wg", "ip")
# A node that its engine starts again is away for moments.
_BEGIN_S, _LINGER_S, _SILENT_S = 60.0, 6.0, 60.0
_DEVICE_S, _TOOL_S, _POLL_S = 10.0, 20.0, 0.05
# A pair at rest: the packets that only keep a way open come every 20 s.
_REST_S, _KEEP_OPEN_S = 3, 20
_LOG = Path("/var/run/wireguard/log")
_MOST_LINE, _PIECE, _BUFFER = 1 << 20, 1 << 16, 8 << 20
_CREDENTIALS = struct.Struct("3i")
_SO_BINDTODEVICE, _SO_RCVBUFFORCE, _CAPABILITIES = 25, 33, 0x20080522


class Failed(Exception):
    """A tool did not do what it was asked to; in words."""


def main() -> int:
    """Do what the first word says; returns the exit code."""
    what, *words = sys.argv[1:]
    if what == "talk":
        return talk(words[0])
    if what == "relay":
        return relay(int(words[0]), words[1:3], int(words[3]))
    return Overlay(words[0], words[1], int(words[2])).serve()


class Overlay:
    """This host's end. Only root's connections may ask for something; `uid`: of the node, which keeps it alive."""

    def __init__(self, name: str, interface: str, uid: int) -> None:
        self._name, self._interface, self._uid = name, interface, uid
        # By connection: its user, and what has come of its next line.
        self._open: dict[socket.socket, tuple[int, bytes]] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self._key, self._address, self._done = "", "", False

    def serve(self) -> int:
        """Serve until no connection has been open for a while; returns 1 if wireguard-go or a relay ended before."""
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
        """The nodes of a pair may still talk when this host's has ended: its relay ends when they are silent."""
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
        """Do what the control side asks for."""
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
            free.bind(("0.0.0.0", question["port"]))  # wireguard-go itself only logs that it is taken
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
        """Forget these peers, and with them when their last handshake was tried."""
        for key in question["keys"]:
            _tool("wg", "set", self._interface, "peer", key, "remove")
        return {"forgotten": len(question["keys"])}

    def _meet(self, question: dict[str, Any]) -> dict[str, Any]:
        """Try a handshake with each peer; answers whose came about. A peer without an endpoint begins it itself."""
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
        """Pass on what each of these pairs sends through its tunnel to this host; answers a port for each pair."""
        ports = []
        for pair in question["pairs"]:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as between:
                # What the pair sends comes out of the tunnel. Kernels before 5.7 do not let us insist on that.
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
    """Pass each packet of one of the pair to the other one, and drop everybody else's; after SIGTERM until both rest.

    The packets are encrypted from end to end. The pair is known by its addresses in the network, whose senders
    WireGuard has proved: so a stranger can put no packet of theirs into the place of a host's.
    """
    die_with_parent(signal.SIGKILL)
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    # No right of this container is left to what reads packets here.
    ctypes.CDLL(None).capset(struct.pack("=Ii", _CAPABILITIES, 0), bytes(24))
    first, second = ((address, port) for address in pair)
    other, piece = {first: second, second: first}, bytearray(_PIECE)
    view = memoryview(piece)
    with socket.socket(fileno=descriptor) as between:
        between.setblocking(True)  # whoever opened it may have left it otherwise: then each look would be a rest
        between.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _REST_S, 0))
        while True:
            try:
                size, sender = between.recvfrom_into(piece)
                if sender in other:
                    between.sendto(view[:size], other[sender])
            except BlockingIOError:
                if ends:
                    return 0
            except OSError:  # a host that is away, a full queue: packets may be lost
                continue


def talk(name: str) -> int:
    """Pass lines between this process's input and output and the socket, until one of them ends or is silent."""
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
    """What a tool prints. Raises Failed with its last words."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise Failed(f"{' '.join(words[:2])} ended with code {done.returncode}: {last}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
