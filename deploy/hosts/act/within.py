"""`muster exec` and `muster shell`: run a command or a shell next to the ranks of a running run.

Both run in the run's container, as its user, in the folder where the script works. They end when the local command ends
or the connection is lost, so nothing of them stays on a host.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...core.errors import DONE, FAILED, NOT_EXECUTABLE, NOT_FOUND, STOPPED, DeployError, UsageError
from ...core.printable import console_line
from ...door.session import Session, on_all, open_all
from ...engine import reach
from ...engine.wire import read_lines
from ...host import commands
from ...host import logs as host_logs
from ...job.cluster import Cluster
from ...job.load import known_cluster, read_run, refuse_no_rank
from ...job.option_words import command_of
from ...job.options import Options
from ...report.console import Console
from ..look import ended
from ..start import observe

# For these exit codes the engine's own message does not tell the host.
_NOT_STARTED = (NOT_EXECUTABLE, NOT_FOUND)


@dataclass(frozen=True)
class Place:
    """A running node of the run: its host's session, and its container."""

    session: Session
    container: str


def exec_on_hosts(options: Options, words: Sequence[str], console: Console) -> int:
    """Run a command on all hosts of a run, or on the host of one rank; returns the largest of the exit codes.

    Raises DeployError if the run has no running node.
    """
    with places(known_cluster(options), options.run, options.rank) as chosen:
        several = len(chosen) > 1
        by_host = {place.session.name: place.container for place in chosen}

        def work(session: Session) -> int:
            """Run the command on one host. It ends with this process, because its input ends then."""
            name, command = session.name, commands.node_program("within", "--", *words)
            with reach.on_host(session).run_inside(by_host[name], command) as inside:
                for line in read_lines(inside.frames):
                    _show(console, name if several else "", line)
                return inside.code()

        try:
            codes = on_all([place.session for place in chosen], work)
        except KeyboardInterrupt:
            return STOPPED
        for fault in codes.faults.values():
            console.error(fault)
        for host, code in codes.values.items():
            console.data({"kind": "ended", "host": host, "code": code})
            if code and (several or code in _NOT_STARTED):
                console.warn(f"{host}: ended with code {code}")
        return max([*codes.values.values(), FAILED if codes.faults else DONE])


def shell(options: Options, words: Sequence[str]) -> int:
    """Open a shell, or `words` with a terminal, next to a rank (default: rank 0); returns its exit code."""
    cluster = known_cluster(options)
    if not sys.stdout.isatty():
        raise UsageError("there is no terminal here", f"without one: {command_of('exec', options, '-- COMMAND')}")
    with places(cluster, options.run, options.rank or "0") as (place, *_):
        program = commands.node_program("within", "--terminal", "--", *words)
        return place.session.converse(("docker", "exec", "--interactive", place.container, *program))


@contextmanager
def places(cluster: Cluster, run: str, rank: str) -> Iterator[list[Place]]:
    """The running nodes of the chosen run, or the node of one rank, in the order of their places."""
    refuse_no_rank(rank)
    wanted = read_run(run)
    with open_all(cluster.hosts, ask_home=False) as opened:
        sessions = opened.all()
        containers = observe.containers(sessions.values())
        containers.all()
        chosen, members = ended.find_run(wanted, opened, containers)
        of_host = host_logs.ranks_of(members)
        living = {
            host: member
            for host, member in members.items()
            if member.status == "running" and (not rank or int(rank) in of_host[host])
        }
        if not living:
            what = f"rank {rank} of {chosen}" if rank else chosen
            raise DeployError(f"{what}: it has no running container on these hosts", "muster status")
        yield [Place(sessions[host], member.name) for host, member in living.items()]


def _show(console: Console, host: str, line: str) -> None:
    if console.as_json:
        console.data({"kind": "line", "host": host, "line": line})
    else:
        console.line(console_line(f"{host}  {line}" if host else line))
    if console.gone:  # the reader has closed the pipe, as `| head` does
        raise KeyboardInterrupt
