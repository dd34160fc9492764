"""Make the run's own network on its hosts (--overlay), and hand it over to the run's nodes once they have started.

The container at each end makes its key; only public keys travel, through this machine. Then each pair of hosts tries
each other's addresses, with WireGuard's own handshake. A pair that does not meet uses a third host that meets both, if
there is one. overlay_plan.py decides this.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from ...core import fields
from ...core.errors import BadAnswer, DeployError
from ...core.fields import array, record, text, whole
from ...core.results import Results
from ...core.text import several
from ...door.session import Session, among, on_all
from ...engine import reach
from ...engine.wire import read_lines
from ...host import audit, commands, networks
from ...host.networks import Networks
from ...job.options import FLAG
from ...report.console import Console
from . import overlay_plan
from .docker_run import DockerRun
from .overlay_plan import Overlay, Pair

_START_S, _ANSWER_S, _MEET_S, _NODES_S, _BEAT_S = 180.0, 40.0, 3.0, 60.0, 10.0
_KEY = text(44, r"[A-Za-z0-9+/]{43}=")
_ANSWER = record(
    {},
    {
        "error": text(1000),
        "lacking": array(text(40), 10),
        "key": _KEY,
        "met": array(_KEY),
        "ports": array(whole(65535, least=1)),
        "nodes": whole(1000),
    },
)
_FIX = "in your Dockerfile: RUN apt-get update && apt-get install -y wireguard-go wireguard-tools iproute2"


def look(sessions: Sequence[Session]) -> dict[str, Networks]:
    """The networks and ports on each host that a new network must avoid. Raises DeployError with every failed host."""
    return on_all(sessions, lambda session: networks.parse(session.run(commands.script("look-overlay")).out)).all()


class OverlayEnds:
    """The network's ends on all hosts, from `open` until the nodes have taken them over or `close`."""

    def __init__(self, sessions: Sequence[Session], ends: Mapping[str, DockerRun], plan: Overlay) -> None:
        """`ends`: the container of the network's end on each host."""
        self._sessions, self._ends, self._plan = sessions, ends, plan
        self._started, self._talks = set[str](), dict[str, _Talk]()
        # A start still in progress when `close` is called would leave its container behind, so `close` waits for it.
        self._starts = {host: threading.Lock() for host in ends}
        self._keys: dict[str, str] = {}
        self._left, self._closed = False, threading.Event()

    def open(self, console: Console) -> None:
        """Make the network. Raises DeployError with every host that failed, or with the pairs that cannot connect."""
        on_all(self._sessions, self._start).all()
        threading.Thread(target=self._beat, daemon=True, name="muster-overlay").start()
        hellos = self._ask({host: {"do": "hello"} for host in self._ends})
        lacking = {
            host: DeployError(f"the image lacks {' and '.join(answer['lacking'])}, which {FLAG.overlay} needs", _FIX)
            for host, answer in hellos.items()
            if answer.get("lacking")
        }
        Results({host: lacking.get(host, True) for host in hellos}).all()
        self._keys = {host: _of(answer, "key") for host, answer in hellos.items()}
        if len(set(self._keys.values())) < len(self._keys):
            raise DeployError("two hosts gave the same public key", "look at the hosts: one of them copies another")
        plan = self._plan
        where = {"prefix": plan.prefix, "port": plan.port, "mtu": plan.mtu}
        self._ask({host: {"do": "up", "address": plan.addresses[host], **where} for host in self._ends})
        met = self._meet_directly()
        through = overlay_plan.relays(list(self._ends), met, plan.port)
        self._meet_through(through)
        names = [f"{' and '.join(sorted(pair))} through {relay}" for pair, relay in through.items()]
        ways = f"; {', '.join(names)}" if names else ""
        console.note(f"overlay: {several(len(self._ends), 'host')} on {plan.interface}, UDP {plan.port}{ways}")
        console.data({"kind": "overlay", "interface": plan.interface, "port": plan.port,
                      "addresses": dict(plan.addresses), "relayed": names})  # fmt: skip

    def leave_to_nodes(self) -> None:
        """Wait until each host's node keeps its end alive. Raises DeployError with every host where no node does."""
        until = time.monotonic() + _NODES_S

        def wait(session: Session) -> None:
            while not self._talks[session.name].ask({"do": "held"}).get("nodes"):
                if time.monotonic() > until:
                    raise DeployError(f"{session.name}: its node did not find the overlay", "try again")
                time.sleep(0.2)

        on_all(self._sessions, wait).all()
        self._left = True

    def close(self) -> None:
        """Disconnect from the ends, and remove them unless the nodes use them.

        Raises nothing: without a connection, an unused end also ends by itself.
        """
        self._closed.set()
        for talk in list(self._talks.values()):
            talk.close()
        if self._left:
            return

        def remove(session: Session) -> None:
            host = session.name
            with self._starts[host]:
                if host in self._started:
                    reach.on_host(session).remove(self._ends[host].name)

        with suppress(DeployError):
            on_all(self._sessions, remove).all()

    def _start(self, session: Session) -> None:
        host = session.name
        end = self._ends[host]
        with self._starts[host]:
            if self._closed.is_set():
                return
            self._started.add(host)
            session.run(end.argv, timeout_s=_START_S)
        self._talks[host] = _Talk(session, end.name, self._plan.socket)
        audit.note(session, audit.Action.STARTED, end.name)

    def _beat(self) -> None:
        """Send each end a sign of life: an end that hears nothing for a minute takes the connection for cut."""
        while not self._closed.wait(_BEAT_S):
            for talk in list(self._talks.values()):
                with suppress(DeployError):
                    talk.beat()

    def _ask(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Ask these hosts in parallel. Raises DeployError with every host that failed."""
        return on_all(
            among(self._sessions, questions), lambda session: self._talks[session.name].ask(questions[session.name])
        ).all()

    def _meet_directly(self) -> frozenset[Pair]:
        """The pairs of hosts that meet at an address of one of the two."""
        met = set()
        for tries in overlay_plan.turns(list(self._ends), self._plan.ways):
            ends = {
                (host, peer): overlay_plan.endpoint(address, self._plan.port)
                for (host, peer), address in tries.items()
                if frozenset((host, peer)) not in met
            }
            met |= self._meet(ends) if ends else set()
        return frozenset(met)

    def _meet_through(self, through: Mapping[Pair, str]) -> None:
        """Connect these pairs through the hosts that relay for them. Raises DeployError if a pair does not meet."""
        plan, by_relay = self._plan, dict[str, list[list[str]]]()
        for pair, relay in through.items():
            by_relay.setdefault(relay, []).append(sorted(pair))
        ends = {}
        questions = {
            relay: {
                "do": "relay",
                "port": plan.port,
                "pairs": [[plan.addresses[end] for end in pair] for pair in pairs],
            }
            for relay, pairs in by_relay.items()
        }
        for relay, answer in self._ask(questions).items():
            ports, pairs = _of(answer, "ports"), by_relay[relay]
            if len(ports) != len(pairs):
                raise BadAnswer(f"{relay}: the relay's ports", f"{len(pairs)} of them", ports)
            for (first, second), port in zip(pairs, ports, strict=True):
                ends[first, second] = f"{plan.addresses[relay]}:{port}"
        met = self._meet(ends, plan.relayed_mtu) if ends else set()
        lost = [f"{' and '.join(sorted(pair))} through {relay}" for pair, relay in through.items() if pair not in met]
        if lost:
            raise DeployError(f"{FLAG.overlay}: no packet passes between {', '.join(lost)}", "deploy again")

    def _meet(self, ends: Mapping[tuple[str, str], str], mtu: int = 0) -> set[Pair]:
        """Let the first host of each pair call the second at that endpoint; return the pairs where both report success.

        First both forget what they tried before: WireGuard begins a handshake with a peer only every 5 s. Only one of
        them calls: if two hosts call each other at the same moment, each drops the other's answer.
        """
        more = {"mtu": mtu} if mtu else {}
        ways: dict[str, list[dict[str, Any]]] = {}
        for (first, second), end in ends.items():
            for host, peer, known in ((first, second, end), (second, first, "")):
                way = {"key": self._keys[peer], "address": self._plan.addresses[peer], "endpoint": known, **more}
                ways.setdefault(host, []).append(way)
        self._ask({host: {"do": "forget", "keys": [way["key"] for way in each]} for host, each in ways.items()})
        # No end calls before all ends listen.
        listens = {host: [way for way in each if not way["endpoint"]] for host, each in ways.items()}
        self._ask({host: {"do": "meet", "wait": 0, "ways": each} for host, each in listens.items() if each})
        asked = self._ask({host: {"do": "meet", "wait": _MEET_S, "ways": each} for host, each in ways.items()})
        met = {host: set(_of(answer, "met")) for host, answer in asked.items()}
        return {
            frozenset((first, second))
            for first, second in ends
            if self._keys[second] in met[first] and self._keys[first] in met[second]
        }


class _Talk:
    """The conversation with one end of the network."""

    def __init__(self, session: Session, container: str, socket: str) -> None:
        self._host, self._container, self._writing = session.name, container, threading.Lock()
        self._open = ExitStack()
        command = commands.node_program("overlay", "talk", socket)
        self._inside = self._open.enter_context(reach.on_host(session).run_inside(container, command))
        self._lines = read_lines(self._inside.frames)

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask this end, and return its answer. Raises DeployError, including when the end reports a failure."""
        with self._writing:
            self._inside.write(json.dumps(question).encode() + b"\n")
        self._inside.set_wait(_ANSWER_S)
        line = next(self._lines, None)
        if line is None:
            raise DeployError(f"{self._host}: its end of the overlay network is gone", f"docker logs {self._container}")
        answer = read(line)
        if "error" in answer:
            words = f"{self._host}: the overlay: {answer['error']}"
            raise DeployError(words, f"on {self._host}: docker logs {self._container}")
        return answer

    def beat(self) -> None:
        with self._writing:
            self._inside.write(b"\n")

    def close(self) -> None:
        self._open.close()


def read(line: str | bytes) -> dict[str, Any]:
    """Read an end's answer. Raises BadAnswer."""
    return _ANSWER(fields.json_object(line, "the overlay's answer"), "the overlay")


def _of(answer: Mapping[str, Any], name: str) -> Any:
    if name not in answer:
        raise BadAnswer(f"the overlay's {name}", "a value", None)
    return answer[name]
