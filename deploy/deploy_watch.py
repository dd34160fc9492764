"""Follow a run on real hosts: one long command a host brings what is new into the local run folder, for watch.py.

The run does not need us: it goes on when we end, and whoever attaches goes on from what the local folder holds. A
connection that is lost is opened again.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy import deploy_actions, host_commands, host_facts
from deploy.deploy_spec import container_name
from deploy.errors import DeployError
from deploy.facts import NodeState
from deploy.progress import State
from deploy.session import Session, open_all

EVERY_S = 0.5
AGAIN_S = 2.0
# A host that reboots is back within this; after it the user is told, and the run is left alone.
LOST_S = 300.0
_PATHS = re.compile(r"(nodes|outcome|ranks)/[\w-][\w.-]*\.jsonl?|(config|environment)\.json|metrics\.jsonl", re.ASCII)


class Mirror:
    """What one host tells, written into the local run folder. `heard` is when its last line came."""

    def __init__(self, run_dir: Path, node: str) -> None:
        self._dir, self._node = run_dir, node
        self.mark = secrets.token_hex(8)
        self.state = NodeState(node, "waiting")
        self.heard = time.monotonic()
        self.over = False

    def sizes(self) -> dict[str, int]:
        """Bytes of the files that grow, as they are here: the host tells what comes behind. The console comes anew."""
        (self._dir / "logs").mkdir(exist_ok=True)
        (self._dir / "logs" / f"{self._node}.log").write_bytes(b"")
        found = [*self._dir.glob("ranks/rank-*.jsonl"), *self._dir.glob("metrics.jsonl")]
        return {str(path.relative_to(self._dir)): path.stat().st_size for path in found}

    def take(self, line: str) -> None:
        """One line from the host."""
        self.heard = time.monotonic()
        mark, _, rest = line.partition(" ")
        if mark != self.mark:
            with (self._dir / "logs" / f"{self._node}.log").open("a") as console:
                console.write(line + "\n")
            return
        what, _, rest = rest.partition(" ")
        if what == "state":
            self._take_state(rest)
        elif what in ("doc", "add"):
            self._take_file(what, rest.split(" "))

    def _take_state(self, text: str) -> None:
        if text == "gone":
            self.state, self.over = NodeState(self._node, "exited", 128 + 9), True
            return
        seen = host_facts.parse_container(text)
        if seen.code is not None:
            self.state, self.over = NodeState(self._node, "exited", seen.code), True
        elif seen.status in ("running", "paused"):
            self.state = NodeState(self._node, "running")

    def _take_file(self, what: str, words: Sequence[str]) -> None:
        # What a host says is a path must not lead out of the run folder.
        if len(words) != 2 + (what == "add") or not _PATHS.fullmatch(words[0]):
            return
        path = self._dir / words[0]
        path.parent.mkdir(exist_ok=True)
        try:
            data = base64.b64decode(words[-1])
        except binascii.Error:
            return
        if what == "doc":
            aside = path.with_name(f".{path.name}.{self._node}")
            aside.write_bytes(data)
            aside.replace(path)
            return
        with path.open("ab") as file:
            # Hosts that share a home tell the same file: only what continues ours is taken.
            if file.tell() == int(words[1]):
                file.write(data)


class HostsGround:
    """The nodes of a run on real hosts, as watch.py wants them. `nodes` is by host's name; `say` narrates."""

    def __init__(
        self,
        sessions: Sequence[Session],
        nodes: Mapping[str, str],
        run_dir: Path,
        script: bool,
        say: Callable[[str], None],
    ) -> None:
        self._run, self._script, self._say = run_dir.name, script, say
        self._sessions = {session.host.name: session for session in sessions}
        self._mirrors = {host: Mirror(run_dir, node) for host, node in nodes.items()}
        self._closed = threading.Event()
        for host in self._mirrors:
            threading.Thread(target=self._follow, args=(host,), daemon=True, name=f"muster-follow-{host}").start()

    @property
    def sessions(self) -> list[Session]:
        """The sessions as they are now: those that were lost have been opened again."""
        return list(self._sessions.values())

    def states(self, state: State) -> list[NodeState]:
        """How each node stands. Raises DeployError when a host was out of sight for too long; the run is left alone."""
        if self._script:  # it says nothing of itself: that its container runs is its sign of life
            state.last_sign = time.time()
        now = time.monotonic()
        for host, mirror in self._mirrors.items():
            if not mirror.over and now - mirror.heard > LOST_S:
                raise DeployError(
                    f"{host}: out of sight for {now - mirror.heard:.0f} s; the run may go on there",
                    f"when the host is back: fab attach --hosts {','.join(self._mirrors)} --run {self._run}",
                )
        return [mirror.state for mirror in self._mirrors.values()]

    def stop(self) -> None:
        """SIGTERM to every node."""
        self._signal("SIGTERM")

    def kill(self) -> None:
        """SIGKILL to every node."""
        self._signal("SIGKILL")

    def close(self) -> None:
        """Follow no longer; the run is left alone."""
        self._closed.set()

    def _signal(self, name: str) -> None:
        for host, fault in deploy_actions.signal(self.sessions, self._run, name).faults.items():
            self._say(f"{host}: {name} did not reach it: {fault.message}")

    def _follow(self, host: str) -> None:
        mirror = self._mirrors[host]
        while not self._closed.is_set() and not mirror.over:
            session = self._sessions[host]
            folder = f"{session.home}/runs/{self._run}"
            try:
                told = host_commands.follow(container_name(self._run), folder, mirror.mark, mirror.sizes(), EVERY_S)
                session.run(told, timeout_s=None, on_line=mirror.take, check=False)
            except DeployError as fault:
                if self._closed.is_set():
                    return
                # The command that ran is ours and long; which host, and that it is lost, is what counts.
                said = fault.message.partition(" while ")[0]
                self._say(f"{said}: the run goes on; looking for the host again")
                self._reopen(host)
            self._closed.wait(AGAIN_S if not mirror.over else 0)

    def _reopen(self, host: str) -> None:
        """Hold a new session to the host for as long as we follow, in a thread of its own."""
        found = threading.Event()

        def hold() -> None:
            while not self._closed.is_set():
                with open_all([self._sessions[host].host]) as opened:
                    for session in opened.values.values():
                        self._sessions[host] = session
                        self._say(f"{host}: found again")
                        found.set()
                        self._closed.wait()
                        return
                self._closed.wait(AGAIN_S)

        threading.Thread(target=hold, daemon=True, name=f"muster-hold-{host}").start()
        while not found.wait(0.5) and not self._closed.is_set():
            pass
