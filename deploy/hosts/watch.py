"""Watch a run on real hosts: one long command a host brings what is new into the local run folder.

The run does not need us: it goes on when we end, and whoever attaches goes on from what the local folder holds. A
connection that is lost is opened again. A host is lost only when the run itself misses it: that we do not reach it
tells nothing as long as the ranks train on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..core.errors import FAILED, BadAnswer, DeployError
from ..core.facts import NodeState
from ..core.names import NodeName
from ..host import commands
from ..run.output import ConsoleLines
from ..run.progress import State
from ..ssh.session import Session, open_all
from . import secrets as deploy_secrets
from .container import container_name
from .mirror import Mirror

EVERY_S = 0.5
AGAIN_S = 2.0
# Told of twice a second; a host that says nothing for this long is out of sight.
UNSEEN_S = 4.0
# A machine that reboots is back within this, most of them. MUSTER_LOST_AFTER_S for those that take longer.
LOST_AFTER_S = 300.0
# A node that lost its peer ends within moments; the host of that peer must be missed before it is blamed.
BLAME_S = 12.0


class HostsWatch:
    """The nodes of a run on real hosts, as run/follow.py wants them. `nodes` is by host's name; `say` narrates.

    `secrets`: as deploy_secrets.Handover has them.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        nodes: Mapping[str, NodeName],
        run_dir: Path,
        script: bool,
        say: Callable[[str], None],
        secrets: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._run, self._script, self._say = run_dir.name, script, say
        self._sessions = {session.host.name: session for session in sessions}
        self._handover = deploy_secrets.Handover(run_dir.name, secrets, self._sessions.__getitem__, say)
        self.lines = ConsoleLines()
        self._mirrors = {
            host: Mirror(run_dir, host, node, say, partial(self._hear, host, node)) for host, node in nodes.items()
        }
        self._lost_after_s = float(os.environ.get("MUSTER_LOST_AFTER_S", LOST_AFTER_S))
        self._step, self._moved = 0, time.monotonic()
        self._silent, self._said = set[str](), set[str]()
        self._final: dict[str, int] = {}
        self._closed = threading.Event()
        for host in self._mirrors:
            threading.Thread(target=self._follow, args=(host,), daemon=True, name=f"muster-follow-{host}").start()

    @property
    def sessions(self) -> list[Session]:
        """The sessions to hosts in sight, as they are now: those that were lost have been opened again."""
        return [session for host, session in self._sessions.items() if host not in self.out_of_sight]

    @property
    def out_of_sight(self) -> list[str]:
        """Hosts that say nothing, or whose engine does not."""
        return [host for host, mirror in self._mirrors.items() if mirror.unseen_s() > UNSEEN_S]

    def states(self, state: State) -> list[NodeState]:
        """How each node stands. One whose host the run waits for in vain is lost; none is, while ranks train on.

        Raises DeployError when no host was in sight for too long: the run is left alone.
        """
        mirrors = list(self._mirrors.values())
        self._tell_silent()
        cut_off_s = min(mirror.unseen_s() for mirror in mirrors)
        if cut_off_s > self._lost_after_s:
            raise DeployError(
                f"no host of {self._run} was in sight for {cut_off_s:.0f} s; it may go on there",
                f"look again: fab attach --hosts {','.join(self._mirrors)} --run {self._run}",
            )
        waits = self._handover.waits() or any(mirror.state.state == "waiting" for mirror in mirrors)
        if self._script or self.out_of_sight or waits:
            # A script says nothing of itself; and a run that waits for a host that boots is not silent for long.
            state.last_sign = time.time()
        step = max((view.step for view in state.ranks.values()), default=0)
        if step != self._step:
            self._step, self._moved = step, time.monotonic()
        return [self._judged(mirror, mirrors, bool(state.verdicts)) for mirror in mirrors]

    def _hear(self, host: str, node: str, words: str) -> None:
        self._handover.heard(host, words)
        self.lines.put(node, words)

    def _tell_silent(self) -> None:
        silent = {host for host, mirror in self._mirrors.items() if mirror.away and mirror.unseen_s() > UNSEEN_S}
        for host in sorted(silent - self._silent):
            self._say(f"{host}: the Docker engine there does not answer; looking again")
        self._silent = silent

    def _judged(self, mirror: Mirror, mirrors: Sequence[Mirror], verdict: bool) -> NodeState:
        seen, others = mirror.state, [other for other in mirrors if other is not mirror]
        if verdict:  # its end is final: what its engine may still try is nobody's concern
            if seen.code is not None:
                self._final.setdefault(seen.node, seen.code)
            code = self._final.get(seen.node)
            return seen if code is None else replace(seen, state="exited", code=code)
        if seen.state == "exited" and seen.code == FAILED and any(1 < other.unseen_s() <= BLAME_S for other in others):
            # Perhaps a victim of the one that is missing now.
            return replace(seen, state="running", code=None)
        unseen = mirror.unseen_s()
        missed = unseen > BLAME_S and any(other.over for other in others)
        in_vain = not self._script and min(unseen, time.monotonic() - self._moved) > self._lost_after_s
        # Where no host is in sight, it is we who are cut off.
        if (missed or in_vain) and any(other.unseen_s() <= UNSEEN_S for other in others):
            return replace(seen, state="lost")
        return seen

    def close(self) -> None:
        """Follow no longer; the run is left alone."""
        self._closed.set()
        self._handover.close()

    def _follow(self, host: str) -> None:
        mirror = self._mirrors[host]
        while not self._closed.is_set() and not mirror.over:
            session = self._sessions[host]
            folder = f"{session.home}/runs/{self._run}"
            try:
                since, sizes = mirror.known()
                told = commands.follow(container_name(self._run), folder, mirror.mark, since, sizes, EVERY_S)
                session.run(told, timeout_s=None, on_line=mirror.take, check=False)
            except BadAnswer as fault:
                if fault.message not in self._said:
                    self._said.add(fault.message)
                    self._say(f"{host}: {fault.message}")
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
