"""What one host tells of its node while a run goes on, written into the local run folder, for watch.py to read.

A host is told what is here already, and goes on from there. What is not kept is said: nothing is dropped in silence.
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
from ..core.text import amount
from ..host import facts, logs
from ..run import events, own_files

# Of one host, while it is followed: bytes of each kind, files, and what it leaves free on the disk here. A host that
# tells more is followed on, and not written down.
MOST_KEPT, MOST_FILES, LEAST_FREE = 4 << 30, 10_000, 1 << 30
# What of a run folder is brought home while the run goes on; `<node>` is a node's name.
_TOLD = re.compile(
    r"config\.json|environment\.json|metrics\.jsonl|ranks/rank-[0-9]{1,9}\.jsonl|nodes/(?P<node>[^/]+)\.json|"
    r"outcome/(?P<place>[^/]+)-(?:[0-9]{1,9}|agent)\.json"
)


class Mirror:
    """What one host tells, written into the local run folder. `away`: its engine does not answer.

    `say` is told, once for each reason, what of it is not kept here; `hear` each line of its console.
    """

    def __init__(
        self,
        run_dir: Path,
        host: str,
        node: NodeName,
        say: Callable[[str], None],
        hear: Callable[[str], None] = lambda words: None,
    ) -> None:
        self._hear = hear
        self._dir, self._host, self._node, self._say = run_dir, host, node, say
        self._count = logs.Heard(lambda: say(logs.missed(host)))
        self._not_kept, self._kept, self._room_at = set[str](), dict[str, int](), 0
        self._paths = set[str]()
        self.mark = secrets.token_hex(8)
        self.state = NodeState(node, "waiting")
        self.over = False
        self._heard = time.monotonic()
        self._life, self.away = "", False
        self._stamp = self._known = ""
        self._console = own_files.open_to_append(run_dir, f"logs/{node}.log", empty=True)

    def unseen_s(self) -> float:
        """Seconds since the host, or its engine, said something; 0 where all has been said."""
        return 0.0 if self.over else time.monotonic() - self._heard

    def known(self) -> tuple[str, dict[str, int]]:
        """Where the host is to go on: the time of the console's last line, and the bytes of each file that grows."""
        self._known = self._stamp
        found = [*self._dir.glob("ranks/rank-*.jsonl"), *self._dir.glob("metrics.jsonl")]
        return self._known, {str(path.relative_to(self._dir)): path.stat().st_size for path in found}

    def take(self, line: str) -> None:
        """One line from the host."""
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
            self._lose(f"cannot be written here: {fault.strerror}", "make room, then fab attach again")
        if not self.away:
            self._heard = time.monotonic()

    def _take_console(self, line: str) -> None:
        stamp, words = logs.split(line)
        # A console that is asked for again begins with lines that were told already.
        if (stamp and stamp <= self._known) or self._count.is_count(words):
            return
        self._stamp = max(self._stamp, stamp)
        self._hear(words)
        data = f"{words}\n".encode()
        if self._has_room("console", len(data)):
            self._console.write(data)

    def _has_room(self, kind: str, size: int) -> bool:
        """Whether so much more of this kind is kept: not where it has no end, nor where the disk here is full.

        Each kind has its own limit: a console without an end leaves room for a verdict.
        """
        kept = self._kept[kind] = self._kept.get(kind, 0) + size
        if kept > MOST_KEPT:
            self._lose(f"is more than {amount(MOST_KEPT)}", f"fab logs --hosts {self._host} shows what it says")
            return False
        if (all_kept := sum(self._kept.values())) >= self._room_at:
            if shutil.disk_usage(self._dir).free < LEAST_FREE:
                self._lose(f"would leave less than {amount(LEAST_FREE)} here", "make room, then fab attach again")
                return False
            self._room_at = all_kept + LEAST_FREE // 16
        return True

    def _lose(self, why: str, then: str) -> None:
        if why not in self._not_kept:
            self._not_kept.add(why)
            self._say(f"{self._host}: not all that it tells is kept: it {why} ({then})")

    def _take_state(self, text: str) -> None:
        self.away = text == "away"
        if self.away:
            return
        if text == "gone":
            self.state, self.over = (
                NodeState(self._node, "exited", SIGNALLED + signal.SIGKILL, self.state.restarts),
                True,
            )
            return
        seen = facts.parse_container(text)
        again = bool(self._life and seen.started and seen.started != self._life)
        restarts = self.state.restarts + again
        self._life = seen.started
        if seen.code is not None:
            self.state, self.over = NodeState(self._node, "exited", seen.code, restarts), True
        elif seen.status == "restarting":
            self.state = NodeState(self._node, "waiting", seen.last_code, restarts)
        elif seen.status in ("running", "paused"):
            self.state = NodeState(self._node, "running", self.state.code if again else None, restarts)

    def _take_file(self, what: str, words: Sequence[str]) -> None:
        if len(words) != (4 if what == "add" else 3) or words[-1] != ".":
            self._lose("has a line that was cut", f"fab fetch --hosts {self._host} brings the files home")
            return
        told = told_path(words[0])
        if told is None:
            return
        self._paths.add(words[0])
        if what == "big" or len(self._paths) > MOST_FILES:
            of = f"has {words[0]}, of {words[1][:20]} bytes" if what == "big" else f"has more than {MOST_FILES} files"
            self._lose(of, f"fab fetch --hosts {self._host} brings the files home")
            return
        try:
            data = base64.b64decode(words[-2], validate=True)
            offset = digits()(words[1], "an offset") if what == "add" else 0
        except (ValueError, BadAnswer):
            self._lose(f"has a line of {words[0]} that cannot be read", f"look at that host: {self._host}")
            return
        if self._has_room(what, len(data)):
            self._write(told, what, offset, data)

    def _write(self, path: Path, what: str, offset: int, data: bytes) -> None:
        if what == "doc":
            own_files.write(self._dir, str(path), _seen_now(data) if path.parent.name == "nodes" else data)
            return
        with own_files.open_to_append(self._dir, str(path)) as file:
            # Hosts that share a home tell the same file: only what continues ours is taken.
            have = file.tell() - offset
            if have < 0:
                self._lose(f"leaves out {-have} bytes of {path.name}", f"fab fetch --hosts {self._host} brings it home")
            elif have < len(data):
                file.write(data[have:])


def told_path(text: str) -> Path | None:
    """A file of the run folder, as a host names it; None for any other: a container may have put it there."""
    found = _TOLD.fullmatch(text)
    if found is None:
        return None
    try:
        for name in filter(None, (found["node"], found["place"])):
            node_name(name)
    except BadAnswer:
        return None
    return Path(text)


def _seen_now(document: bytes) -> bytes:
    """With our time instead of the host's: when nodes came up is compared among hosts, and with our clock."""
    try:
        return json.dumps(
            events.node_up({**facts.json_object(document.decode(errors="replace")), "t": time.time()}, 0.0)
        ).encode()
    except BadAnswer:
        return document
