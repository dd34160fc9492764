"""`unlock`: what a dead deploy has left locked."""

from __future__ import annotations

import sys

from ..core.errors import DONE, STOPPED, UsageError
from ..core.program import FAB
from ..door import session
from ..host import lock as host_lock
from ..job.load import load_cluster
from ..job.options import Options
from ..report.console import Console
from .command import command


@command(
    example=f"{FAB} unlock --hosts gpu-a,gpu-b",
    codes={DONE: "no host is locked", STOPPED: "the answer was no, or Ctrl-C: the locks stay"},
)
def unlock(options: Options, console: Console) -> int:
    """Remove a deploy's lock from hosts. Asks first if that deploy is alive."""
    with session.open_all(load_cluster(options).hosts) as opened:
        sessions = opened.all()
        seen = host_lock.look(sessions.values()).all()
        held = {host: lock for host, lock in seen.items() if lock}
        alive = [] if options.yes else [f"{host}: {lock.shown}" for host, lock in held.items() if lock.alive]
        if alive and not sys.stdin.isatty():
            raise UsageError(
                f"the deploy that holds the lock is alive: {'; '.join(alive)}", "wait until it ends, or add --yes"
            )
        if alive and not console.ask(f"the deploy that holds the lock is alive: {'; '.join(alive)}. Break it?"):
            console.note("the locks stay")
            return STOPPED
        taken = host_lock.break_lock(sessions.values(), held).all()
        for host in sessions:
            words = f"was held by {taken[host]}" if host in taken else "was not locked"
            console.line(f"{host}  {words}", {"kind": "unlocked", "host": host, "holder": taken.get(host, "")})
    return DONE
