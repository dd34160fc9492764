"""The backend of real hosts: one container on each host, followed over SSH; a lost connection is opened again.

One long command on each host copies new output and files into the local run folder. If this process ends, the run
continues, and `muster attach` resumes from what the local folder already has. A host counts as lost only if the run
misses it: while the ranks train, it does not matter that this machine cannot reach the host.
"""

from __future__ import annotations

import shlex
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ..causes.end_causes import Cause
from ..core.errors import FAILED, BadAnswer, DeployError
from ..core.facts import NodeState
from ..core.names import NodeName
from ..core.results import HostsFailed, named
from ..door.session import Session, open_again
from ..host import commands
from ..job.inventory import Host, typed_hosts
from ..job.option_words import command_of
from ..job.options import FLAG
from ..run.backend import Backend
from ..run.events import Event
from ..run.lost_host import AFTER_S, UNSEEN_S, WAIT_LOST_S, Misses, Signs, is_lost, may_be_lost, refuse_cut_off
from ..run.output import ConsoleLines
from ..run.progress import State
from ..run.state.ranks import by_node
from ..run.state.story import Happening
from . import nodes
from .mirror import AllFiles, Mirror
from .node import secrets as deploy_secrets
from .node.container import container_name

EVERY_S = 0.5
AGAIN_S = 2.0
# How long to wait before looking again at a node that has ended: somebody may start its container again.
ENDED_AGAIN_S = 5.0


@dataclass(frozen=True)
class RunHandle:
    """What this process knows about a run on real hosts.

    `nodes`: the node on each host. `command`: the script, or the trainer's options. `resumed`: the run's folder holds
    earlier starts; what is older than `since` belongs to them. `secrets`: as secrets.Handover takes them.
    `wait_lost_s`: how long the run waits for a lost host (--wait-lost). `least`: how many nodes are enough to keep
    training when others are lost (--min-nodes); 0: all are needed. `away`: hosts that did not answer. `roles`: each
    node's role, in a run of several roles.
    """

    run_dir: Path
    nodes: Mapping[str, NodeName]
    script: bool
    command: Sequence[str]
    resumed: bool = False
    secrets: Callable[[], Mapping[str, str]] | None = None
    since: float = 0.0
    wait_lost_s: float = WAIT_LOST_S
    least: int = 0
    away: Sequence[Host] = ()
    roles: Mapping[str, str] = field(default_factory=dict)


class HostsBackend(Backend):
    """The nodes of one run on real hosts. Every command follows them through this class; new_run.py starts them.

    `say` prints a warning.
    """

    def __init__(self, sessions: Sequence[Session], run: RunHandle, say: Callable[[str], None]) -> None:
        self.run, self._say, self._id = run, say, run.run_dir.name
        self._sessions = {session.name: session for session in sessions}
        self._hosts = {host.name: host for host in (*run.away, *(session.host for session in sessions))}
        self._handover = deploy_secrets.Handover(self._id, run.secrets, self._sessions.__getitem__, say)
        self._lines, self._mirrors = ConsoleLines(), dict[str, Mirror]()
        self._step, self._moved = 0, time.monotonic()
        self._silent, self._full, self._reported = set[str](), set[str](), set[str]()
        self._final, self._closed = FinalCodes(), threading.Event()
        self._again = {host: ExitStack() for host in self._hosts}

    @property
    def sessions(self) -> list[Session]:
        """The current sessions to the hosts that answer, including sessions that were opened again."""
        away = {*self.silent_hosts}
        return [session for host, session in list(self._sessions.items()) if host not in away]

    @property
    def run_options(self) -> str:
        """The run and its hosts as command-line options, with the user and port of each host, which node names lack."""
        return f"{FLAG.hosts} {shlex.quote(typed_hosts(self._hosts.values()))} {FLAG.run} {self._id}"

    @property
    def silent_hosts(self) -> list[str]:
        """Hosts that do not answer, or whose engine does not answer."""
        return [host for host, mirror in self._mirrors.items() if mirror.engine_s() > UNSEEN_S]

    def typed(self, names: Iterable[str]) -> list[str]:
        """These hosts as a user types them and as a record stores them."""
        return [self._hosts[name].destination for name in names]

    def start(self) -> None:
        """Do nothing: another command has started the nodes."""
        return

    def _watch(self) -> None:
        """Begin to follow the nodes on all hosts."""
        files = AllFiles(self.run.run_dir)
        for host, node in self.run.nodes.items():
            hear = partial(self._hear, host, node)
            self._mirrors[host] = Mirror(self.run.run_dir, host, node, self._say, hear, files)
        self._moved = time.monotonic()
        for host in self._mirrors:
            threading.Thread(target=self._follow, args=(host,), daemon=True, name=f"muster-follow-{host}").start()

    def states(self, state: State) -> list[NodeState]:
        """Return each node's state. A node is lost if the run waits too long for its host, never while the ranks train.

        Raises DeployError if no host has answered for too long. The run still continues in that case.
        """
        if not self._mirrors:
            self._watch()
        mirrors, ranks = list(self._mirrors.values()), by_node(state.ranks.began)
        signs = {host: mirror.signs(ranks.get(mirror.state.node, ())) for host, mirror in self._mirrors.items()}
        self._tell_silent(state, signs)
        self._tell_full(state)
        silent_s = min(of_host.silent_s for of_host in signs.values())
        again = f"muster attach {self.run_options}"
        refuse_cut_off(f"no host of {self._id} has", silent_s, state.wait_lost_s, "the run", again)
        waits = self._handover.waits() or any(mirror.state.state == "waiting" for mirror in mirrors)
        if self.silent_hosts or waits or state.ranks.waiting:
            # A run that waits for a host or for its GPUs must not count as silent.
            state.ranks.last_sign = time.time()
        step = max((view.step for view in state.ranks.views.values()), default=0)
        if step != self._step:
            self._step, self._moved = step, time.monotonic()
        if state.ranks.waiting and not state.verdicts:
            return [mirror.state for mirror in mirrors]  # the nodes wait for a lost host, so we do too
        finding = state.case.finding
        lost = finding.node if finding and finding.cause == Cause.NODE_LOST else ""
        # A node that has left the run does not wait for any other node.
        members = {*(state.nodes.members or state.names)}
        ended = {host for host, mirror in self._mirrors.items() if mirror.over and mirror.state.node in members}
        return [self._judged(host, signs, ended, state, lost) for host in self._mirrors]

    def output(self, state: State) -> list[Event]:
        """The new lines of the nodes' consoles."""
        return self._lines.take(state.ranks.began)

    def stop(self) -> None:
        """Ask every node to stop with SIGINT. An engine that shuts down sends SIGTERM (contract.md)."""
        self._signal("SIGINT")

    def pass_on(self, number: signal.Signals) -> None:
        """Send this signal to every node."""
        self._signal(number.name)

    def kill(self) -> None:
        """Send SIGKILL to every node."""
        self._signal("SIGKILL")

    def clean(self) -> None:
        """Remove the run's containers; run folders stay. Warns about each host that may still have a container."""
        for words in self.remove():
            self._say(words)

    def remove(self) -> list[str]:
        """Remove the run's containers; returns a warning for each host that may still have one."""
        faults = nodes.remove(self.sessions, self._id).faults
        whys = {host: f"{named(host, fault)}; clean up with" for host, fault in faults.items()}
        whys |= {host: f"{host}: does not answer; when it is back" for host in self.silent_hosts}
        downs = [command_of("down", hosts=host, run=self._id) for host in self.typed(whys)]
        return [f"{why}: {down}" for why, down in zip(whys.values(), downs, strict=True)]

    def close(self) -> None:
        """Stop following the run. The run continues."""
        self._closed.set()
        self._handover.close()
        for opened in self._again.values():
            opened.close()

    def _signal(self, name: str) -> None:
        for host, fault in nodes.signal(self.sessions, self._id, name).faults.items():
            self._say(f"{host}: {name} did not reach it: {fault.message}")

    def _hear(self, host: str, node: str, words: str, t: float) -> None:
        self._handover.on_console_line(host, words)
        if not words.startswith(commands.WAITS_FOR_HOSTS):  # the run's story already tells this
            self._lines.put(node, words, t)

    def _tell_silent(self, state: State, signs: Mapping[str, Signs]) -> None:
        """Report hosts whose engine stops answering although SSH works, and engines that answer again, to the story."""
        # When a host comes back after it was silent, it may first report its engine as away, because it was waiting for
        # the engine's answer meanwhile.
        silent = {host for host, mirror in self._mirrors.items() if mirror.away_s() > UNSEEN_S}
        for host in sorted(silent - self._silent):
            words = engine_words(signs[host], _trains_since(state, self._mirrors[host].state.node, signs[host]))
            state.story.tell(Happening(time.time(), f"{host}: {words}", grave=True))
        for host in sorted(self._silent - silent):
            state.story.tell(Happening(time.time(), f"{host}: the Docker engine there answers again"))
        self._silent = silent

    def _tell_full(self, state: State) -> None:
        """Report a full disk to the story: the ranks' own messages about it cannot be written to that disk either."""
        full = {host for host, mirror in self._mirrors.items() if mirror.full}
        for host in sorted(full ^ self._full):
            words = "is full: no checkpoint or event can be written there" if host in full else "has room again"
            state.story.tell(Happening(time.time(), f"{host}: the disk of the run's folder {words}", host in full))
        self._full = full

    def _judged(
        self, host: str, signs: Mapping[str, Signs], ended: Collection[str], state: State, lost: str
    ) -> NodeState:
        """Judge a node's state. `ended`: hosts whose nodes have ended; `lost`: the node that the ranks report lost."""
        mirror, own = self._mirrors[host], signs[host]
        node = mirror.state
        if trouble := own.trouble or ("closed" if mirror.closed and not node.trouble else ""):
            node = replace(node, trouble=trouble)
        if state.verdicts:
            return self._final.at_the_end(node)
        self._final.before_the_end(node)
        if node.state == "exited" and node.code == FAILED and any(map(may_be_lost, _others(host, signs))):
            # The node may have failed because of the host that is silent now.
            return replace(node, state="running", code=None)
        no_step_s = time.monotonic() - self._moved
        has_ended = any(name != host for name in ended)
        misses = Misses(no_step_s, has_ended, is_waited_for=node.node == lost, has_reports=self.run.script)
        if is_lost(own, _others(host, signs), misses, state.wait_lost_s):
            return replace(node, state="lost")
        return node

    def _follow(self, host: str) -> None:
        mirror = self._mirrors[host]
        if host not in self._sessions:
            self._reopen(host)
        while not self._closed.is_set():
            session = self._sessions[host]
            folder = f"{session.home}/runs/{self._id}"
            try:
                since, files = mirror.resume_point()
                command = commands.follow(container_name(self._id), folder, mirror.mark, since, EVERY_S)
                session.run(command, input=commands.file_lines(files), timeout_s=None, on_line=mirror.take, check=False)
            except BadAnswer as fault:
                self._once(f"{host}: {fault.message}")
            except DeployError as fault:
                if self._closed.is_set():
                    return
                # The follow command is long and tells the user nothing: the warning shows only the host and the fault.
                self._say(f"{fault.brief}: the run continues; reconnecting")
                self._reopen(host)
            self._closed.wait(AGAIN_S if not mirror.over else ENDED_AGAIN_S)

    def _reopen(self, host: str) -> None:
        """Open a new session to the host, as soon as it answers."""
        while not self._closed.is_set():
            try:
                self._sessions[host] = open_again(self._again[host], self._hosts[host])
            except HostsFailed:  # the story already says that the host is silent
                pass
            except (DeployError, OSError) as fault:  # for example, the local disk is full
                self._once(f"{host}: {fault}")
            else:
                self._say(f"{host}: connected again")
                break
            self._closed.wait(AGAIN_S)
        if self._closed.is_set():
            self._again[host].close()

    def _once(self, words: str) -> None:
        if words not in self._reported:
            self._reported.add(words)
            self._say(words)


def _others(host: str, signs: Mapping[str, Signs]) -> Iterator[Signs]:
    """The signs of all other hosts. A generator: with hundreds of hosts, callers stop at the first sign they need."""
    return (of_host for name, of_host in signs.items() if name != host)


class Onlooker(HostsBackend):
    """Follows the nodes but never stops or removes them, whatever state it judges them to be in.

    Its console output may come late: viewers of the run's page see the files that the mirrors write.
    """

    look_s = 0.5

    def remove(self) -> list[str]:
        """Remove nothing."""
        return []

    def _signal(self, name: str) -> None:
        return


def engine_words(signs: Signs, rank: int | None) -> str:
    """What the story says about a host whose engine does not answer. `rank`: the rank that trains there, if known."""
    text = "the Docker engine there does not answer"
    if not signs.lives_on:
        return f"{text}; asking again"
    who = "its node keeps running" if rank is None else f"rank {rank} keeps training"
    return f"{text}; {who}, but if it ends, nothing restarts it until somebody starts the engine"


def _trains_since(state: State, node: str, signs: Signs) -> int | None:
    """The node's only rank, if it has made a step since the engine fell silent: else its container may be stopped."""
    rank = state.ranks.only_rank(node)
    if rank is None or rank in state.ranks.stuck or rank in state.ranks.ends or state.verdicts:
        return None
    view = state.ranks.views.get(rank)
    return rank if view and view.time and view.time.t > time.time() - signs.engine_s + AFTER_S else None


class FinalCodes:
    """Remembers, from one look to the next, the exit code with which each node ended the run.

    It is needed because the Docker engine may start an ended node again.
    """

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._restarts: dict[str, int] = {}

    def before_the_end(self, node: NodeState) -> None:
        """Note a node's state while no rank has given a verdict."""
        self._restarts[node.node] = node.restarts

    def at_the_end(self, node: NodeState) -> NodeState:
        """Return the state once a rank has given a verdict: a node that has ended since then stays ended.

        A running node carries the exit code of its previous life. That life ended with the run only if the engine
        has started the node since the last look before the verdict.
        """
        ended = node.state != "running" or node.restarts > self._restarts.get(node.node, -1)
        if node.code is not None and ended:
            self._codes.setdefault(node.node, node.code)
        code = self._codes.get(node.node)
        return node if code is None else replace(node, state="exited", code=code)
