"""`muster down` on hosts: remove the containers of our runs, and record here how the runs that still ran have ended."""

from __future__ import annotations

from ...core.errors import DONE
from ...core.results import all_faults
from ...core.text import several
from ...door.session import open_all
from ...host import lock as host_lock
from ...job.load import known_cluster, read_run
from ...job.options import Options
from ...report.console import Console
from ...run import outcome
from .. import nodes as host_nodes
from .. import which_run
from ..start import observe
from . import stop


def down(options: Options, console: Console) -> int:
    """Remove the containers of all our runs (or of one) from the hosts, and the locks of dead deploys.

    Run folders stay. The runs of other users of the hosts are reported and left alone.
    """
    run = read_run(options.run)
    with open_all(known_cluster(options).hosts) as opened:
        sessions = list(opened.values.values())
        runs = which_run.runs_of(observe.containers(sessions, run).values)
        running = {each: nodes for each, nodes in runs.items() if any(node.code is None for node in nodes.values())}
        for each in running:
            stop.tell_followers(each)
        removed = host_nodes.remove(sessions, run)
        swept = host_lock.sweep(sessions)
        for host, removal in removed.values.items():
            lock, containers = swept.values.get(host, ""), several(removal.containers, "container")
            parts = [f"removed {containers}"] if removal.containers else []
            parts += [f"removed the lock of {lock}, whose process is dead"] if lock else []
            parts += [f"left {other}, which belongs to {user}" for other, user in removal.left]
            console.note(f"{host}: {', '.join(parts) or 'nothing to remove'}")
            left = [{"run": other, "user": user} for other, user in removal.left]
            console.data(
                {"kind": "removed", "host": host, "containers": removal.containers, "lock": lock, "left": left}
            )
        all_faults(opened, removed, swept)
        for each, nodes in running.items():
            if len(nodes) == max(node.nodes for node in nodes.values()):  # otherwise the run continues on other hosts
                state = stop.state_of(nodes, ())
                stop.record_end(each, outcome.killed(state), state, ())
        return DONE
