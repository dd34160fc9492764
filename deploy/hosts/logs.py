"""`fab logs`: what the ranks of a run on real hosts say, as one stream in the order of time; nothing there is changed.

A thread for each host reads its lines (log_reader.py) into core/merge.py, which holds it up while nobody reads them:
gigabytes pass through in bounded memory. With --follow it goes on until the run ends. Of a node that says more than is
read the engine forgets the oldest, which is told: it keeps the last 100 MB (container.LOG_LIMITS).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..config.inventory import Cluster
from ..core.errors import DONE, FAILED, STOPPED, UsageError
from ..core.merge import Line, Merge
from ..core.names import RunId, asked_run
from ..core.printable import console_line
from ..host import logs as host_logs
from ..host import look_commands
from ..host.logs import HostLogs
from ..report.console import Console
from ..ssh.session import Session, on_all, open_all
from .log_reader import Reader

# With --follow a line waits so long for an earlier one of another host.
_PATIENCE_S = 1.0


@dataclass(frozen=True)
class Choice:
    """What is asked for: all consoles, or one rank's lines; from when on; whether to go on until the run ends."""

    run: str = ""
    rank: str = ""
    since: str = ""
    follow: bool = False


def logs(cluster: Cluster, choice: Choice, console: Console) -> int:
    """Print the lines. Returns 1 when a host was lost on the way; with --follow Ctrl-C is an end like any other.

    Raises DeployError with every host that does not answer, UsageError for a run or a rank that is not there.
    """
    if choice.rank and not re.fullmatch(r"[0-9]{1,9}", choice.rank):
        raise UsageError(f"--rank {choice.rank}: not a number", "ranks count from 0")
    asked = asked_run("--run", choice.run)
    with open_all(cluster.hosts) as opened:
        sessions = opened.all()
        hosts = on_all(sessions.values(), lambda one: host_logs.parse(one.run(look_commands.members()).out)).all()
        run = host_logs.choose_run(hosts, asked)
        readers, ranks = _readers(sessions, hosts, run, choice)
        merge = Merge([reader.host for reader in readers], _PATIENCE_S if choice.follow else None)
        with _reading(readers, merge, console):
            try:
                for block in merge.blocks():
                    _tell(block, ranks, console)
                    if console.gone:
                        return STOPPED
            except KeyboardInterrupt:
                return DONE if choice.follow else STOPPED
    faults = [reader.fault for reader in readers if reader.fault]
    for fault in faults:
        console.error(fault)
    return FAILED if faults else DONE


def _readers(
    sessions: Mapping[str, Session], hosts: Mapping[str, HostLogs], run: RunId, choice: Choice
) -> tuple[list[Reader], dict[str, str]]:
    """Who reads what, and the ranks that each host's lines are of."""
    members = host_logs.members_of(hosts, run)
    if not choice.rank:
        every = [Reader(sessions[host], one.container, choice.since, choice.follow) for host, one in members.items()]
        return every, {host: host_logs.shown([own]) for host, own in host_logs.ranks_of(members).items()}
    host, own_log = host_logs.host_of_rank(hosts, run, int(choice.rank))
    if own_log and choice.since:
        raise UsageError(
            f"--since {choice.since}: the lines of a rank's own log have no times", "leave out --since, or --rank"
        )
    container = members[host].container if host in members else ""
    log = (run, int(choice.rank)) if own_log else None
    return [Reader(sessions[host], container, choice.since, choice.follow, log)], {host: choice.rank}


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
        rows = ({"t": one.stamp, "host": one.source, "rank": ranks[one.source], "line": one.text} for one in block)
        console.values(rows)
        return
    console.block([f"{one.source} [{ranks[one.source]}]  {console_line(one.text)}" for one in block])
