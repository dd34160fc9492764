"""`muster logs`: print what all ranks of a run on real hosts printed, in order of time.

One thread for each host reads its lines into merge.py (Reader). The merge blocks a thread until its lines are taken, so
gigabytes pass through in bounded memory. With --follow the stream lasts until the run ends. An engine interprets
`--since`, and keeps the last 100 MB of a console (container.LOG_LIMITS); if it drops lines before they are read, a
warning says so.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from ...causes import docker_faults
from ...core.errors import DONE, FAILED, FINAL, STOPPED, DeployError, UsageError
from ...core.names import RunId
from ...core.printable import console_line, is_redrawn
from ...core.text import last_line
from ...door.session import Session, SshFault, on_all, open_again, open_all
from ...engine import reach
from ...host import commands
from ...host import logs as host_logs
from ...host.facts import Container
from ...host.logs import ConsoleCount, HostLogs
from ...job.load import known_cluster, read_run, refuse_no_rank
from ...job.options import Options
from ...job.values import is_text
from ...report.console import Console
from .. import recorded, which_run
from ..start import observe
from .merge import Line, Merge

# With --follow, how many seconds a line waits for an earlier line from another host.
_PATIENCE_S = 1.0
# How often (in seconds) a lost host is tried again, and for how long.
_AGAIN_S, LOST_S = 2.0, 300.0
# The most seconds that a search through the logs of a host may take, and the longest pattern.
_SEARCH_S, _MOST_PATTERN = 600.0, 1000
# A duration, a time, or seconds since 1970; the engine itself interprets it.
_TIME = re.compile(r"[0-9][0-9a-zA-Z:.+-]*")


def logs(options: Options, console: Console) -> int:
    """Print the lines. Returns 1 if the connection to a host was lost. With --follow, Ctrl-C is a normal end.

    Raises DeployError with every host that does not answer, UsageError for a run or a rank that no host has.
    """
    options = replace(options, rank="") if options.rank == "all" else options
    refuse_no_rank(options.rank)
    refuse_pattern(options.grep)
    if options.since and not _TIME.fullmatch(options.since):
        raise UsageError(f"--since {options.since}: not a time", "--since 10m, or --since 2026-11-21T03:00:00Z")
    wanted = read_run(options.run)
    with open_all(known_cluster(options).hosts) as opened:
        sessions = opened.all()
        hosts = on_all(sessions.values(), observe.logs).all()
        runs = which_run.runs_of({host: of_host.members for host, of_host in hosts.items()})
        if wanted or not runs:  # a run that has ended may have left only its ranks' logs
            runs |= {run: {} for of_host in hosts.values() for run, _ in of_host.rank_logs if run not in runs}
        run = which_run.choose_run(runs, wanted, recorded.unfinished_runs())
        readers, ranks = _readers(sessions, hosts, run, runs[run], options)
        merge = Merge([reader.source for reader in readers], _PATIENCE_S if options.follow else None)
        matched = False
        with _reading(readers, merge, console):
            try:
                for block in merge.blocks():
                    matched = True
                    _tell(block, ranks, console)
                    if console.gone:
                        return STOPPED
            except KeyboardInterrupt:
                return DONE if options.follow else STOPPED
    faults = [reader.fault for reader in readers if reader.fault]
    for fault in faults:
        console.error(fault)
    if not (matched or faults):
        newer = f" in --since {options.since}" if options.since else ""
        console.note(f"no line matches {options.grep}" if options.grep else f"nothing was printed{newer}")
    return FAILED if faults else DONE


def _readers(
    sessions: Mapping[str, Session],
    hosts: Mapping[str, HostLogs],
    run: RunId,
    members: Mapping[str, Container],
    options: Options,
) -> tuple[list[Reader], dict[str, str]]:
    """The readers, and for each source the ranks whose lines it has."""
    if not (options.rank or members):
        return _files(sessions, hosts, run, options)
    if not options.rank:
        readers = [Reader(sessions[host], member.name, options) for host, member in members.items()]
        return readers, {host: host_logs.rank_text([ranks]) for host, ranks in host_logs.ranks_of(members).items()}
    host, own_log = host_logs.host_of_rank(hosts, members, run, int(options.rank))
    if host in members and members[host].script and members[host].ranks == 1:
        # The rank's log has every line; the console has the lines with their times.
        own_log = not options.since
    if own_log:
        _refuse_since(options)
    container = members[host].name if host in members else ""
    log = (run, int(options.rank)) if own_log else None
    return [Reader(sessions[host], container, options, log)], {host: options.rank}


def _files(
    sessions: Mapping[str, Session], hosts: Mapping[str, HostLogs], run: RunId, options: Options
) -> tuple[list[Reader], dict[str, str]]:
    """Return readers of the ranks' own logs, rank by rank. An ended run has no consoles: its containers are gone."""
    _refuse_since(options)
    options = replace(options, follow=False)
    places = {rank: host for host, logs in hosts.items() for of_run, rank in logs.rank_logs if of_run == run}
    readers, ranks = [], dict[str, str]()
    for rank, host in sorted(places.items()):
        source = host if list(places.values()).count(host) == 1 else f"{host} {rank}"
        readers.append(Reader(sessions[host], "", options, (run, rank), source))
        ranks[source] = str(rank)
    return readers, ranks


def _refuse_since(options: Options) -> None:
    if options.since:
        raise UsageError(
            f"--since {options.since}: the lines of a rank's own log have no times", "leave out --since or --rank"
        )


def refuse_pattern(pattern: str) -> None:
    """Raise UsageError for a --grep value that `grep -E` could not take as one pattern."""
    if len(pattern) > _MOST_PATTERN or "\n" in pattern or not is_text(pattern):
        raise UsageError(
            f"--grep: the pattern must be one line of at most {_MOST_PATTERN} characters", "--grep 'nan|inf'"
        )


@contextmanager
def _reading(readers: Sequence[Reader], merge: Merge, console: Console) -> Iterator[None]:
    closed = threading.Event()

    def others_go_on(asking: Reader) -> bool:
        return any(reader.streams for reader in readers if reader is not asking)

    for reader in readers:
        threading.Thread(
            target=reader.read,
            args=(merge, others_go_on, console.warn, closed),
            daemon=True,
            name=f"logs-{reader.host}",
        ).start()
    try:
        yield
    finally:
        closed.set()
        merge.close()


def _tell(block: Sequence[Line], ranks: Mapping[str, str], console: Console) -> None:
    if console.as_json:
        rows = (
            {"t": line.stamp, "host": line.source.partition(" ")[0], "rank": ranks[line.source], "line": line.text}
            for line in block
        )
        console.values(rows)
        return
    shown = [line for line in block if not is_redrawn(line.text)]
    hosts = [line.source.partition(" ")[0] for line in shown]
    console.block(
        [f"{host} [{ranks[line.source]}]  {console_line(line.text)}" for host, line in zip(hosts, shown, strict=True)]
    )


class Reader:
    """Reads the container's console, or a rank's own log if `log` gives a run and a rank, as `options` ask.

    `source`: the name of its lines in the merge: the host, with the rank if several logs of one host are read.
    `fault`: why reading ended early. `streams`: false while the node does not run.
    """

    def __init__(
        self,
        session: Session,
        container: str,
        options: Options,
        log: tuple[RunId, int] | None = None,
        source: str = "",
    ) -> None:
        self._pattern, self.source = options.grep, source or session.name
        self.host, self._session = session.name, session
        self._container, self._since, self._follow, self._log = container, options.since, options.follow, log
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
        """Read all lines that exist; with --follow, keep reading until the run ends."""
        # With a pattern most lines are absent on purpose, so missing lines are no reason for a warning.
        missed = (lambda: None) if self._pattern else partial(say, host_logs.missed_lines(self.host))
        console_count = ConsoleCount(missed, whole=not self._since)
        with ExitStack() as opened:
            try:
                while not closed.is_set():
                    try:
                        self._once(merge, console_count)
                        if not self._follow or self._over(others_go_on, closed):
                            return
                    except SshFault as lost:
                        if not self._follow or closed.is_set():
                            raise
                        say(f"{lost.brief}: reconnecting")
                        self._reopen(opened, closed)
                    closed.wait(_AGAIN_S)
            except DeployError as fault:
                self.fault = None if closed.is_set() else fault
            finally:
                self.streams = False
                merge.end(self.source)

    def _once(self, merge: Merge, console_count: ConsoleCount) -> None:
        mark = secrets.token_hex(8)
        since = self._last or self._since
        before, self._read, known = self._last, 0, self._read

        def take(line: str) -> None:
            if line == mark:
                return
            self._read += 1
            if self._log:
                if self._read > known:
                    merge.put(Line(self.source, "", line))
                return
            stamp, words = host_logs.split(line)
            self._last = stamp or self._last
            # `since` repeats the lines of exactly that time. A line without a time comes from the engine itself.
            if self._last > before and not console_count.is_count(words):
                merge.put(Line(self.source, self._last, words))

        if self._log:
            command = commands.rank_log(*self._log, self._container if self._follow else "", mark, self._pattern)
        else:
            command = commands.console(self._container, since, mark if self._follow else "", self._pattern)
        # A followed console may be silent for any time. A finished one must arrive without pauses.
        moving = not self._follow and not self._pattern
        done = self._session.run(
            command,
            timeout_s=_SEARCH_S if self._pattern and not self._follow else None,
            on_line=take,
            check=False,
            moving=moving,
        )
        last = last_line(done.out.strip() or done.err, "no output")
        if done.code and not (self._follow and docker_faults.lacks_container(last)):
            raise DeployError(f"{self.host}: its log ended with code {done.code}: {last}")

    def _over(self, others_go_on: Callable[[Reader], bool], closed: threading.Event) -> bool:
        """Whether the node has ended for good: its container was removed, or its engine will not restart it.

        Raises DockerFault if the engine does not answer: the node may still run.
        """
        self.streams = False
        while not closed.is_set():
            seen = reach.on_host(self._session).inspect(self._container)
            if seen is None:
                return True
            if seen.runs:
                self.streams = True
                return False
            if seen.code in FINAL or not others_go_on(self):
                return True
            closed.wait(_AGAIN_S)
        return True

    def _reopen(self, opened: ExitStack, closed: threading.Event) -> None:
        end = time.monotonic() + LOST_S
        while not closed.wait(_AGAIN_S):
            try:
                self._session = open_again(opened, self._session.host)
                return
            except DeployError:
                if time.monotonic() > end:
                    raise
