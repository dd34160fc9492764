"""Keep a copy of what the login node sends about a job: its state, and the files of its run's folder."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from ..host import jobs
from ..host.files.folder_copy import FolderCopy
from ..host.jobs import Job
from ..run.files import locks, own_files

# The output of the job and of its ranks: only the end of these files is copied.
_LOG = re.compile(r"logs/rank-[0-9]{1,9}\.log|job\.out")


class JobCopy(FolderCopy):
    """Reads the lines of the script follow-job. `job`: Slurm's last report; `since`: when its state was first seen."""

    def __init__(self, run_dir: Path, host: str, say: Callable[[str], None]) -> None:
        super().__init__(run_dir, host, say)
        self.job: Job | None = None
        self.since = self.heard = time.monotonic()
        self._lines, self._ends, self._begun = list[str](), dict[str, int](), set[str]()

    def copied_sizes(self) -> dict[str, int]:
        """Return the sizes of the files copied so far: the login node must continue from there."""
        return {**self.sizes(), **self._ends}

    def take(self, line: str) -> None:
        """Process one line from the login node. Raises BadAnswer."""
        mark, _, rest = line.partition(" ")
        if mark != self.mark:
            return  # another program printed it: a message of the day, or one of Slurm's commands
        what, _, rest = rest.partition(" ")
        self.heard = time.monotonic()
        try:
            if what in ("doc", "add", "big"):
                self.take_file(what, rest.split(" "))
        except OSError as fault:
            self.lose(f"cannot be written here: {fault.strerror}", "free some disk space, then: muster attach")
        if what == "said" and rest != ".":
            self._lines = [*self._lines[-10:], rest]
        elif what == "said":
            lines, self._lines = self._lines, []
            job = jobs.parse_job(lines)
            if self.job is None or job.state != self.job.state:
                self.since = time.monotonic()
            self.job = job

    @cached_property
    def _out(self) -> BinaryIO:
        """The file job.out. If several commands follow the job in one folder, only the one with the lock writes."""
        return own_files.open_to_append(self._dir, "job.out")

    def allowed(self, name: str) -> Path | None:
        """Return the path of a file that may be copied under that name; logs are allowed too."""
        return Path(name) if _LOG.fullmatch(name) else super().allowed(name)

    def _write(self, path: Path, what: str, offset: int, data: bytes) -> None:
        name = str(path)
        if what != "add" or not _LOG.fullmatch(name):
            super()._write(path, what, offset, data)
            return
        if locks.is_first_writer(self._out):
            fresh = name not in self._begun  # start it anew: another command's copy of it may end at another place
            with own_files.open_to_append(self._dir, name, empty=fresh) as file:
                if fresh and offset:
                    file.write(f"({offset} bytes before this stay on the cluster)\n".encode())
                have = self._ends.get(name, offset) - offset
                if 0 <= have < len(data):
                    file.write(data[have:])
            self._begun.add(name)
        self._ends[name] = max(self._ends.get(name, 0), offset + len(data))
