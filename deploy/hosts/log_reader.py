"""One host's part of `fab logs`: a node's console, or a rank's own log, read line by line.

Where the connection is lost, or the node is started again, it goes on from where it was.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from ..core.errors import DONE, FINAL, DeployError
from ..core.fields import digits
from ..core.merge import Line, Merge
from ..core.names import RunId
from ..host import logs, look_commands
from ..host.logs import Heard
from ..ssh.session import Session, SshFault, open_all

_AGAIN_S = 2.0
LOST_S = 300.0


class Reader:
    """Reads the container's console, or `log` (run and rank) instead. `fault` is why it ended early.

    `streams` is false once the node has ended, for now or for good.
    """

    def __init__(
        self, session: Session, container: str, since: str, follow: bool, log: tuple[RunId, int] | None = None
    ) -> None:
        self.host, self._session = session.host.name, session
        self._container, self._since, self._follow, self._log = container, since, follow, log
        self._last, self._read = "", 0
        self.fault: DeployError | None = None
        self.streams = True

    def read(
        self,
        merge: Merge,
        others_go_on: Callable[[Reader], bool],
        say: Callable[[str], None],
        closed: threading.Event,
    ) -> None:
        """To the end of what there is; with `follow` to the end of the run."""
        heard = Heard(lambda: say(logs.missed(self.host)), whole=not self._since)
        with ExitStack() as opened:
            try:
                while not closed.is_set():
                    try:
                        self._once(merge, heard)
                        if not self._follow or self._over(others_go_on, closed):
                            return
                    except SshFault as lost:
                        if not self._follow or closed.is_set():
                            raise
                        say(f"{lost.message.partition(' while ')[0]}: looking for the host again")
                        self._reopen(opened, closed)
                    closed.wait(_AGAIN_S)
            except DeployError as fault:
                self.fault = None if closed.is_set() else fault
            finally:
                self.streams = False
                merge.end(self.host)

    def _once(self, merge: Merge, heard: Heard) -> None:
        mark = secrets.token_hex(8)
        since = self._last or self._since
        before, self._read, known = self._last, 0, self._read

        def take(line: str) -> None:
            if line == mark:
                return
            self._read += 1
            if self._log:
                if self._read > known:
                    merge.put(Line(self.host, "", line))
                return
            stamp, words = logs.split(line)
            self._last = stamp or self._last
            # `since` gives what was said at that very time once more; what comes before any time is the engine's own.
            if self._last > before and not heard.is_count(words):
                merge.put(Line(self.host, self._last, words))

        if self._log:
            command = look_commands.rank_log(*self._log, self._container if self._follow else "", mark)
        else:
            command = look_commands.console(self._container, since, mark if self._follow else "")
        # What goes on may be silent for as long as it likes; what is there already comes at once.
        moving = not self._follow
        done = self._session.run(command, timeout_s=None, on_line=take, check=False, moving=moving)
        said = (done.out.strip() or done.err.strip() or "it said nothing").splitlines()[-1]
        if done.code and not (self._follow and "No such container" in said):
            raise DeployError(f"{self.host}: its log ended with code {done.code}: {said}")

    def _over(self, others_go_on: Callable[[Reader], bool], closed: threading.Event) -> bool:
        """Whether the node has ended for good: its container is gone, or will not be started again."""
        self.streams = False
        while not closed.is_set():
            done = self._session.run(look_commands.state(self._container), check=False)
            running, _, code = done.out.strip().partition(" ")
            ended = DONE if done.code else digits(-(1 << 32), 1 << 32)(code, "the exit code")
            if done.code or (running == "false" and (ended in FINAL or not others_go_on(self))):
                return True
            if running == "true":
                self.streams = True
                return False
            closed.wait(_AGAIN_S)
        return True

    def _reopen(self, opened: ExitStack, closed: threading.Event) -> None:
        end = time.monotonic() + LOST_S
        while not closed.wait(_AGAIN_S):
            attempt = ExitStack()
            found = attempt.enter_context(open_all([self._session.host]))
            if found.values:
                opened.callback(attempt.close)
                (self._session,) = found.values.values()
                return
            attempt.close()
            if time.monotonic() > end:
                found.all()
