"""Copies one host's reports into the local run folder, and notes by the local clock when the host last gave a sign.

Muster tells the host what the local folder already has, and the host continues from there. A warning names everything
that is not copied.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ..core.errors import SIGNALLED
from ..core.facts import NodeState
from ..core.fields import digits
from ..core.names import NodeName
from ..host import facts, logs
from ..host.files.folder_copy import FolderCopy, allowed_path, growing
from ..host.status import parse_time
from ..run.files import host_copies, locks, own_files
from ..run.lost_host import Signs

# Two hosts may have a file with the same name. The host whose first piece arrives first gets the plain name.
_FIRST_PIECE = threading.Lock()
_LOOK_S = 1.0


def _file_states(run_dir: Path, folder: str) -> dict[str, str]:
    """The growing files in this folder, in the form that `commands.file_lines` takes."""
    sizes = growing(run_dir / folder)
    return {
        name: f"{size} {host_copies.time_in(host_copies.head(run_dir, folder + name))}" for name, size in sizes.items()
    }


class AllFiles:
    """The growing files of a run's folder, cached for a second because hundreds of hosts may ask at the same moment."""

    def __init__(self, run_dir: Path) -> None:
        self._dir, self._lock = run_dir, threading.Lock()
        self._at, self._files = -_LOOK_S, dict[str, str]()

    def file_states(self) -> Mapping[str, str]:
        """The files, as `_file_states` returns them.

        If a file has grown since, the host sends the new part twice; the mirror writes it once.
        """
        with self._lock:
            if time.monotonic() - self._at >= _LOOK_S:
                self._files, self._at = _file_states(self._dir, ""), time.monotonic()
            return self._files


class Mirror(FolderCopy):
    """Writes what one host reports into the local run folder.

    `full`: the disk with the run's folder on the host is full. `closed`: the folder's permissions were taken away.
    `say` gets one warning for each reason why something is not written. `on_console_line` gets each console line and
    the time at which it was printed.
    """

    def __init__(
        self,
        run_dir: Path,
        host: str,
        node: NodeName,
        say: Callable[[str], None],
        on_console_line: Callable[[str, float], None] = lambda words, t: None,
        all_files: AllFiles | None = None,
    ) -> None:
        super().__init__(run_dir, host, say)
        self._all = all_files or AllFiles(run_dir)
        self._on_console_line, self._node = on_console_line, node
        self._count = logs.ConsoleCount(lambda: say(logs.missed_lines(host)))
        self.state = NodeState(node, "waiting")
        self.over = False
        self._line_at = self._answer_at = time.monotonic()
        self._grew_at = dict[str, float]()
        self._life, self.full, self.closed = "", False, False
        self._away_at: float | None = None
        self._died: int | None = None
        self._stamp, self._resumed_at, self._printed = "", "", 0.0
        self._console = own_files.open_to_append(run_dir, f"logs/{node}.log")
        if locks.is_first_writer(self._console):
            self._console.truncate(0)

    def engine_s(self) -> float:
        """Seconds since both the host and its engine last answered; 0 once the node has ended."""
        return 0.0 if self.over else time.monotonic() - self._answer_at

    def away_s(self) -> float:
        """How many seconds the host has reported that its engine does not answer; 0 if it reports nothing like that."""
        return 0.0 if self._away_at is None else time.monotonic() - self._away_at

    def signs(self, ranks: Collection[int]) -> Signs:
        """How long ago the host last gave each sign of life.

        `ranks`: the node's own ranks. Files of other ranks do not count: hosts that share a home send each other's too.
        """
        if self.over:
            return Signs(0.0, 0.0, 0.0)
        now, own = time.monotonic(), [f"ranks/rank-{rank}.jsonl" for rank in ranks]
        grew_at = max(self._grew_at.get(path, 0.0) for path in (f"telemetry/{self._node}.jsonl", *own))
        return Signs(now - self._line_at, now - self._answer_at, now - grew_at)

    def resume_point(self) -> tuple[str, dict[str, str]]:
        """Where the host must continue: the time of the last console line, and what is here of each growing file.

        For a file that is its size and the time at its beginning, which shows whether it is another host's file.
        """
        self._resumed_at = self._stamp
        return self._resumed_at, {
            **self._all.file_states(),
            **_file_states(self._dir, host_copies.name_of(self._node, "")),
        }

    def take(self, line: str) -> None:
        """Take one line from the host."""
        mark, _, rest = line.partition(" ")
        try:
            if mark != self.mark:
                self._take_console(line)
                return
            what, _, rest = rest.partition(" ")
            if what == "state":
                self._take_state(rest)
            elif what == "died":
                self._died = digits(255)(rest, "an exit code")
            elif what == "disk":
                self.full, self.closed = rest == "full", rest == "closed"
            elif what in ("doc", "add", "big"):
                self.take_file(what, rest.split(" "))
                if what == "add" and allowed_path(path := rest.partition(" ")[0]):
                    self._grew_at[path] = time.monotonic()
        except OSError as fault:
            self.lose(f"cannot be written here: {fault.strerror}", "free some disk space, then: muster attach")
        self._line_at = time.monotonic()
        if self._away_at is None:
            self._answer_at = self._line_at

    def _write(self, path: Path, what: str, offset: int, data: bytes) -> None:
        if what != "add":
            super()._write(path, what, offset, data)
        elif offset:
            super()._write(self._place(path, b""), what, offset, data)
        else:
            with _FIRST_PIECE:
                super()._write(self._place(path, data), what, offset, data)

    def _place(self, path: Path, begin: bytes) -> Path:
        """Where to store a growing file of this host locally. `begin`: the file's beginning, as the host sends it."""
        own = host_copies.name_of(self._node, str(path))
        if (self._dir / own).exists():
            if host_copies.differ(host_copies.head(self._dir, own), begin):  # the host has lost its disk a second time
                own_files.write(self._dir, own, b"")
            return Path(own)
        return Path(own) if host_copies.differ(host_copies.head(self._dir, str(path)), begin) else path

    def _take_console(self, line: str) -> None:
        stamp, words = logs.split(line)
        # After a reconnect, the console begins with lines that are already copied.
        if (stamp and stamp <= self._resumed_at) or self._count.is_count(words):
            return
        if not stamp and logs.is_of_dead_engine(words):
            return  # run/follow.py reports this, with the host and the consequences
        self._stamp = max(self._stamp, stamp)
        self._printed = (parse_time(stamp) if stamp else self._printed) or time.time()
        self._on_console_line(words, self._printed)
        data = f"{words}\n".encode()
        if locks.is_first_writer(self._console) and self.has_room("console", len(data)):
            self._console.write(data)

    def _take_state(self, text: str) -> None:
        if text == "away":
            self._away_at = self._away_at or time.monotonic()
            return
        self._away_at = None
        if text == "gone":
            code = SIGNALLED + signal.SIGKILL
            self.state, self.over = NodeState(self._node, "exited", code, self.state.restarts, "gone"), True
            return
        container = facts.container_of(facts.parse_container(text))
        restarted = bool(self._life and container.started and container.started != self._life)
        restarts = self.state.restarts + restarted
        self._life = container.started
        if container.code is not None:
            self.state, self.over = NodeState(self._node, "exited", container.code, restarts), True
        elif container.status == "restarting":
            self.state, self.over = NodeState(self._node, "waiting", container.last_code, restarts), False
        elif container.status in ("running", "paused"):
            trouble = "paused" if container.status == "paused" else ""
            self.over = False  # somebody may start the container again with `docker start`
            seen = self.state.code if self.state.state != "running" else None
            last = (self._died if seen is None else seen) if restarted else None
            self.state, self._died = NodeState(self._node, "running", last, restarts, trouble), None
