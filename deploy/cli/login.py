"""`fab login`: log in to hosts by the user's own ssh."""

from __future__ import annotations

from ..core.errors import DONE, FAILED
from ..core.program import FAB
from ..core.results import all_faults
from ..door import login as ssh_login
from ..job.load import load_cluster
from ..job.options import Options
from ..report.console import Console
from .command import command


@command(
    name="login",
    example=(f"{FAB} login --hosts gpu-a,gpu-b", f"{FAB} login --hosts gpu-a,gpu-b --end"),
    codes={DONE: "a connection to every host is open; with --end, none is", FAILED: "ssh could not log in to a host"},
)
def login_task(options: Options, console: Console) -> int:
    """Log in to hosts with your own ssh, and keep the connections.

    For hosts that want a second factor, a key on a token, or Kerberos:
    ssh asks once, and the other commands use these connections.
    """
    asked = load_cluster(options).hosts
    opened = None if options.end else ssh_login.login(asked, console.note)
    for host, words in (opened.values if opened else ssh_login.logout(asked)).items():
        console.line(f"{host}  {words}", {"kind": "login", "host": host, "message": words})
    if opened:
        all_faults(opened)
    return DONE
