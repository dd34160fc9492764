"""Copy what one host reports about its node into the local run folder while the run is followed. watch.py reads it.

We tell the host what we have already, and it continues from there. A warning names everything that is not copied.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..core.errors import SIGNALLED, BadAnswer
from ..core.facts import NodeState
from ..core.fields import digits
from ..core.names import NodeName, node_name
from ..core.program import FAB
from ..core.text import amount
from ..host import facts, logs
from ..run import events, own_files

# Limits for one host: bytes of each kind, number of files, and what stays free on the disk here. Of a host that sends
# more, we still follow the state, but write nothing more down.
MOST_BYTES, MOST_FILES, LEAST_FREE = 4 << 30, 10_000, 1 << 30
# The files of a run folder that are copied while the run is followed; the groups must be node names.
_ALLOWED = re.compile(
    r"config\.json|environment\.json|metrics\.jsonl|ranks/rank-[0-9]{1,9}\.jsonl|nodes/(?P<node>[^/]+)\.json|"
    r"outcome/(?P<place>[^/]+)-(?:[0-9]{1,9}|agent)\.json|(?:telemetry|scalars)/(?P<machine>[^/]+)\.jsonl"
)


class Mirror:
    """Writes what one host reports into the local run folder. `away`: the host's engine does not answer.

    `say` gets one warning for each reason why something is not written; `on_console_line` gets each console line.
    """

    def __init__(
        self,
        run_dir: Path,
        host: str,
        node: NodeName,
        say: Callable[[str], None],
        on_console_line: Callable[[str], None] = lambda words: None,
    ) -> None:
        self._on_console_line = on_console_line
        self._dir, self._host, self._node, self._say = run_dir, host, node, say
        self._count = logs.ConsoleCount(lambda: say(logs.missed_lines(host)))
        self._warned, self._sizes, self._check_disk_at = set[str](), dict[str, int](), 0
        self._paths = set[str]()
        self.mark = secrets.token_hex(8)
        self.state = NodeState(node, "waiting")
        self.over = False
        self._last_answer = time.monotonic()
        self._life, self.away = "", False
        self._stamp = self._known = ""
        self._console = own_files.open_to_append(run_dir, f"logs/{node}.log", empty=True)

    def unseen_s(self) -> float:
        """Seconds since the host and its engine last answered; 0 once the node has ended."""
        return 0.0 if self.over else time.monotonic() - self._last_answer

    def known(self) -> tuple[str, dict[str, int]]:
        """Where the host must continue: the time of the console's last line, and the size of each growing file."""
        self._known = self._stamp
        patterns = ("ranks/rank-*.jsonl", "metrics.jsonl", "telemetry/[!.]*.jsonl", "scalars/[!.]*.jsonl")
        growing = [path for pattern in patterns for path in self._dir.glob(pattern)]
        return self._known, {str(path.relative_to(self._dir)): path.stat().st_size for path in growing}

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
            elif what in ("doc", "add", "big"):
                self._take_file(what, rest.split(" "))
        except OSError as fault:
            self._lose(f"cannot be written here: {fault.strerror}", f"free some disk space, then: {FAB} attach")
        if not self.away:
            self._last_answer = time.monotonic()

    def _take_console(self, line: str) -> None:
        stamp, words = logs.split(line)
        # After a reconnect, the console begins with lines that we have already.
        if (stamp and stamp <= self._known) or self._count.is_count(words):
            return
        self._stamp = max(self._stamp, stamp)
        self._on_console_line(words)
        data = f"{words}\n".encode()
        if self._has_room("console", len(data)):
            self._console.write(data)

    def _has_room(self, kind: str, size: int) -> bool:
        """Whether `size` more bytes of this kind may be written: within the kind's limit, and while the disk has room.

        Each kind has its own limit, so an endless console leaves room for a verdict.
        """
        size_of_kind = self._sizes[kind] = self._sizes.get(kind, 0) + size
        if size_of_kind > MOST_BYTES:
            self._lose(f"is more than {amount(MOST_BYTES)}", f"{FAB} logs --hosts {self._host} shows its console")
            return False
        if (size_of_all := sum(self._sizes.values())) >= self._check_disk_at:
            if shutil.disk_usage(self._dir).free < LEAST_FREE:
                self._lose(
                    f"would leave less than {amount(LEAST_FREE)} here", f"free some disk space, then: {FAB} attach"
                )
                return False
            self._check_disk_at = size_of_all + LEAST_FREE // 16
        return True

    def _lose(self, why: str, then: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            self._say(f"{self._host}: not everything that it sends is kept: it {why} ({then})")

    def _take_state(self, text: str) -> None:
        self.away = text == "away"
        if self.away:
            return
        if text == "gone":
            code = SIGNALLED + signal.SIGKILL
            self.state, self.over = NodeState(self._node, "exited", code, self.state.restarts, "gone"), True
            return
        container = facts.parse_container(text)
        restarted = bool(self._life and container.started and container.started != self._life)
        restarts = self.state.restarts + restarted
        self._life = container.started
        if container.code is not None:
            self.state, self.over = NodeState(self._node, "exited", container.code, restarts), True
        elif container.status == "restarting":
            self.state = NodeState(self._node, "waiting", container.last_code, restarts)
        elif container.status in ("running", "paused"):
            trouble = "paused" if container.status == "paused" else ""
            self.state = NodeState(self._node, "running", self.state.code if restarted else None, restarts, trouble)

    def _take_file(self, what: str, words: Sequence[str]) -> None:
        if len(words) != (4 if what == "add" else 3) or words[-1] != ".":
            self._lose("sent a line that was cut", f"{FAB} fetch --hosts {self._host} copies the files")
            return
        path = allowed_path(words[0])
        if path is None:
            return
        self._paths.add(words[0])
        if what == "big" or len(self._paths) > MOST_FILES:
            why = f"has {words[0]}, of {words[1][:20]} bytes" if what == "big" else f"has more than {MOST_FILES} files"
            self._lose(why, f"{FAB} fetch --hosts {self._host} copies the files")
            return
        try:
            data = base64.b64decode(words[-2], validate=True)
            offset = digits()(words[1], "an offset") if what == "add" else 0
        except (ValueError, BadAnswer):
            self._lose(f"sent a line of {words[0]} that cannot be read", f"look at that host: {self._host}")
            return
        if self._has_room(what, len(data)):
            self._write(path, what, offset, data)

    def _write(self, path: Path, what: str, offset: int, data: bytes) -> None:
        if what == "doc":
            own_files.write(self._dir, str(path), _with_local_time(data) if path.parent.name == "nodes" else data)
            return
        with own_files.open_to_append(self._dir, str(path)) as file:
            # Hosts that share a home send the same file: we append only what continues our copy.
            have = file.tell() - offset
            if have < 0:
                self._lose(f"leaves out {-have} bytes of {path.name}", f"{FAB} fetch --hosts {self._host} copies it")
            elif have < len(data):
                file.write(data[have:])


def allowed_path(text: str) -> Path | None:
    """The path of a file that is copied; None for any other name: a container may have made a file of that name."""
    match = _ALLOWED.fullmatch(text)
    if match is None:
        return None
    try:
        for name in filter(None, match.groups()):
            node_name(name)
    except BadAnswer:
        return None
    return Path(text)


def _with_local_time(document: bytes) -> bytes:
    """The document with our time instead of the host's: we compare nodes' start times, so one clock must give them."""
    try:
        return json.dumps(
            events.node_up({**facts.json_object(document.decode(errors="replace")), "t": time.time()}, 0.0)
        ).encode()
    except BadAnswer:
        return document
