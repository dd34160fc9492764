"""Copy what a host reports from a run's folder into the local run folder while the run is followed.

Muster tells the host what the local folder already has, and the host continues from there. A warning names everything
that is not copied. hosts/mirror.py adds what a container reports, slurm/mirror.py what Slurm reports about a job.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ...core.errors import BadAnswer
from ...core.fields import digits, json_object
from ...core.names import node_name
from ...core.text import amount
from ...job.option_words import command_of
from ...run import events
from ...run.files import own_files

# Limits for one host: bytes of each kind, number of files, and bytes that stay free on the local disk. If a host sends
# more, Muster still follows its state, but stores nothing more.
MOST_BYTES, MOST_FILES, LEAST_FREE = 4 << 30, 10_000, 1 << 30
# The files of a run folder that are copied while the run is followed; the regex groups must be node names.
_ALLOWED = re.compile(
    r"config\.json|environment\.json|metrics(?:-(?P<writer>[^/]+))?\.jsonl|ranks/rank-[0-9]{1,9}\.jsonl|"
    r"nodes/(?P<node>[^/]+)\.json|"
    r"outcome/(?P<place>[^/]+)-(?:[0-9]{1,9}|agent)\.json|(?:telemetry|scalars)/(?P<machine>[^/]+)\.jsonl"
)


class FolderCopy:
    """Writes what one host reports from a run's folder into the local run folder.

    `say` gets one warning for each reason why something is not written.
    """

    def __init__(self, run_dir: Path, host: str, say: Callable[[str], None]) -> None:
        self._dir, self._host, self._say = run_dir, host, say
        self._fetch = f"{command_of('fetch', run=run_dir.name)} copies the files"
        self._warned, self._sizes, self._check_disk_at = set[str](), dict[str, int](), 0
        self._paths = set[str]()
        self.mark = secrets.token_hex(8)

    def sizes(self) -> dict[str, int]:
        """Where the host must continue: the size of each growing file."""
        return growing(self._dir)

    def allowed(self, name: str) -> Path | None:
        """The local path for a file with this name; None if it may not be copied."""
        return allowed_path(name)

    def has_room(self, kind: str, size: int) -> bool:
        """Whether `size` more bytes of this kind may be written: within the kind's limit, and while the disk has room.

        Each kind has its own limit, so an endless console leaves room for a verdict.
        """
        size_of_kind = self._sizes[kind] = self._sizes.get(kind, 0) + size
        if size_of_kind > MOST_BYTES:
            self.lose(f"is more than {amount(MOST_BYTES)}", self._fetch)
            return False
        if (size_of_all := sum(self._sizes.values())) >= self._check_disk_at:
            if shutil.disk_usage(self._dir).free < LEAST_FREE:
                self.lose(
                    f"would leave less than {amount(LEAST_FREE)} here", "free some disk space, then: muster attach"
                )
                return False
            self._check_disk_at = size_of_all + LEAST_FREE // 16
        return True

    def lose(self, why: str, then: str) -> None:
        """Warn, once for each reason, that something is not copied."""
        if why not in self._warned:
            self._warned.add(why)
            self._say(f"{self._host}: this machine does not keep everything that the host sends: it {why} ({then})")

    def take_file(self, what: str, words: Sequence[str]) -> None:
        """Take a document or a piece of a growing file. Raises OSError if it cannot be written here."""
        if len(words) != (4 if what == "add" else 3) or words[-1] != ".":
            self.lose("sent an incomplete line", self._fetch)
            return
        path = self.allowed(words[0])
        if path is None:
            return
        self._paths.add(words[0])
        if what == "big" or len(self._paths) > MOST_FILES:
            why = f"has {words[0]}, of {words[1][:20]} bytes" if what == "big" else f"has more than {MOST_FILES} files"
            self.lose(why, self._fetch)
            return
        try:
            data = base64.b64decode(words[-2], validate=True)
            offset = digits()(words[1], "an offset") if what == "add" else 0
        except (ValueError, BadAnswer):
            self.lose(f"sent a line of {words[0]} that cannot be read", f"look at the host {self._host}")
            return
        if self.has_room(what, len(data)):
            self._write(path, what, offset, data)

    def _write(self, path: Path, what: str, offset: int, data: bytes) -> None:
        if what == "doc":
            own_files.write(self._dir, str(path), _with_past_time(data) if path.parent.name == "nodes" else data)
            return
        with own_files.open_to_append(self._dir, str(path)) as file:
            with suppress(OSError):  # a disk without locks
                fcntl.flock(file, fcntl.LOCK_EX)  # another command may follow the run from this folder
            # Hosts that share a home send the same file: only what continues the local copy is appended.
            have = file.seek(0, os.SEEK_END) - offset
            if have < 0:
                self.lose(f"leaves out {-have} bytes of {path.name}", self._fetch)
            elif have < len(data):
                file.write(data[have:])


def growing(folder: Path) -> dict[str, int]:
    """The sizes of a folder's growing files, by their names in the folder."""
    sizes = {}
    for place, begin in (("ranks/", "rank-"), ("", "metrics"), ("telemetry/", ""), ("scalars/", "")):
        with suppress(OSError), os.scandir(folder / place) as entries:
            for entry in entries:
                if entry.name.startswith(begin) and entry.name.endswith(".jsonl") and not entry.name.startswith("."):
                    sizes[place + entry.name] = entry.stat().st_size
    return sizes


def allowed_path(text: str) -> Path | None:
    """The path of a file that may be copied; None for any other name: a container may create files of any name."""
    match = _ALLOWED.fullmatch(text)
    if match is None:
        return None
    try:
        for name in filter(None, match.groups()):
            node_name(name)
    except BadAnswer:
        return None
    return Path(text)


def _with_past_time(document: bytes) -> bytes:
    """The document with the time at which its node came up, by its host's clock; now, if that clock is ahead of ours.

    The run's wait for its other nodes counts from this time.
    """
    now = time.time()
    try:
        node = events.node_up(json_object(document, "a node"), now)
    except BadAnswer:
        return document
    return json.dumps({**node, "t": min(float(node["t"]), now)}).encode()
