"""`muster down` on hosts: remove the containers of our runs, and record here how the runs that still ran have ended."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.errors import DONE
from ...core.names import RunId
from ...core.results import all_faults
from ...core.text import several
from ...door.session import open_all
from ...host import lock as host_lock
from ...host.facts import Container
from ...job.load import known_cluster, read_run
from ...job.options import Options
from ...report.console import Console
from ...run import outcome
from ...run.files import record
from .. import nodes as host_nodes
from .. import which_run
from ..start import observe
from . import stop


def down(options: Options, console: Console) -> int:
    """Remove the containers of all our runs (or of one) from the hosts, and the locks of dead deploys.

    Run folders stay. The runs of other users of the hosts are reported and left alone.
    """
    run = read_run(options.run)
    cluster = known_cluster(options)
    with open_all(cluster.hosts) as opened:
        sessions = list(opened.values.values())
        runs = which_run.runs_of(observe.containers(sessions, run).values)
        running = _running_runs(runs, {host.destination: host.name for host in cluster.hosts})
        for each in running:
            stop.tell_followers(each)
        removed = host_nodes.remove(sessions, run)
        swept = host_lock.sweep(sessions)
        for host, removal in removed.values.items():
            # A bare host has no containers: its nodes are processes.
            lock, nodes_there = swept.values.get(host, ""), several(removal.containers, "node")
            parts = [f"removed {nodes_there}"] if removal.containers else []
            parts += [f"removed the lock of {lock}, whose process is dead"] if lock else []
            parts += [f"left {other}, which belongs to {user}" for other, user in removal.left]
            console.note(f"{host}: {', '.join(parts) or 'nothing to remove'}")
            left = [{"run": other, "user": user} for other, user in removal.left]
            console.data(
                {"kind": "removed", "host": host, "containers": removal.containers, "lock": lock, "left": left}
            )
        all_faults(opened, removed, swept)
        for each, nodes in running.items():
            state = stop.state_of(nodes, ())
            stop.record_end(each, outcome.killed(state), state, nodes, (), console)
        return DONE


def _running_runs(
    runs: Mapping[RunId, Mapping[str, Container]], names: Mapping[str, str]
) -> dict[RunId, dict[str, Container]]:
    """The runs that have a running node, and whose hosts are all among these; `names`: of hosts, by destination.

    The record of this machine says which hosts a run has: a host cannot end the record of a run on other hosts, and a
    run that has nodes elsewhere may continue there.
    """
    running = {}
    for run, nodes in runs.items():
        hosts = [names.get(each, "") for each in record.facts(record.path_of(run)).get("hosts", ())]
        own = {host: nodes[host] for host in hosts if host in nodes}
        if "" not in hosts and any(node.code is None for node in own.values()):
            running[run] = own
    return running
