"""Commands about hosts, without a run: bootstrap, login, trust, push, unlock, clean."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..core.errors import DONE, FAILED, STOPPED, USAGE, UsageError
from ..core.results import all_faults
from ..job.load import known_cluster
from ..job.option_words import command_of
from ..job.options import FLAG, Options
from .command import command

if TYPE_CHECKING:
    from ..report.console import Console

_HOSTS = "gpu-a,gpu-b"


@command(
    example=command_of("bootstrap", hosts=_HOSTS, dry_run=True),
    codes={
        DONE: "every host can run containers",
        FAILED: "a host failed, or needs something that its owner must do",
        STOPPED: "you answered no, or pressed Ctrl-C",
    },
)
def bootstrap(options: Options, console: Console) -> int:
    """Install Docker on Debian and Ubuntu hosts, with NVIDIA's toolkit for GPUs.

    It shows every command first, and asks.
    """
    from ..hosts import bootstrap_run

    if not options.yes and not options.dry_run and not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask you on whether to install",
            f"{FLAG.yes} installs without asking, {FLAG.dry_run} only prints the commands",
        )
    ask = None if options.yes else console.ask
    return bootstrap_run.run(known_cluster(options).hosts, ask, options.dry_run, console)


@command(
    example=(command_of("login", hosts=_HOSTS), command_of("login", hosts=_HOSTS, end=True)),
    codes={
        DONE: f"a connection to every host is open; with {FLAG.end}, all are closed",
        FAILED: "ssh could not log in to a host",
    },
)
def login(options: Options, console: Console) -> int:
    """Log in to hosts with your own ssh, and keep the connections.

    This is for hosts that want a second factor, a key on a token, or
    Kerberos: ssh asks once, and the other commands use the connections.
    """
    from ..door import login as ssh_login

    asked = known_cluster(options).hosts
    opened = None if options.end else ssh_login.login(asked, console.note)
    for host, words in (opened.values if opened else ssh_login.logout(asked)).items():
        console.line(f"{host}  {words}", {"kind": "login", "host": host, "message": words})
    if opened:
        all_faults(opened)
    return DONE


@command(
    example=command_of("trust", hosts=_HOSTS),
    codes={
        DONE: "each host's keys were known already, or you have answered the question with yes or no",
        FAILED: "a host does not answer, or shows a key that is not the known one",
    },
)
def trust(options: Options, console: Console) -> int:
    """Show the SSH keys of unknown hosts, and ask whether to trust them."""
    from ..door import session

    for host, words in session.trust(known_cluster(options).hosts, console.ask, console.note).all().items():
        console.line(f"{host}  {words}", {"kind": "trust", "host": host, "message": words})
    return DONE


@command(
    example=command_of("push", hosts=_HOSTS, folder="examples"),
    codes={DONE: "every host has the image and the folder"},
)
def push(options: Options, console: Console) -> int:
    """Send an image and a folder to real hosts, and start nothing."""
    from ..hosts.start import push as hosts_push

    return hosts_push.push(options, console)


@command(
    example=command_of("unlock", hosts=_HOSTS),
    codes={DONE: "no host is locked", STOPPED: "you answered no, or pressed Ctrl-C: the locks stay"},
)
def unlock(options: Options, console: Console) -> int:
    """Remove a deploy's lock from hosts. Asks first if it is still running."""
    from ..door import session
    from ..host import lock as host_lock

    with session.open_all(known_cluster(options).hosts) as opened:
        sessions = opened.all()
        seen = host_lock.read_states(sessions.values()).all()
        held = {host: lock for host, lock in seen.items() if lock}
        alive = [] if options.yes else [f"{host}: {lock.shown}" for host, lock in held.items() if lock.is_alive]
        words = f"the deploy that holds the lock is still running: {'; '.join(alive)}"
        if alive and not console.ask(f"{words}. Break it?", f"wait until it ends, or add {FLAG.yes}"):
            console.note("the locks stay")
            return STOPPED
        taken = host_lock.break_lock(sessions.values(), held).all()
        for host in sessions:
            words = f"was held by {taken[host]}" if host in taken else "was not locked"
            console.line(f"{host}  {words}", {"kind": "unlocked", "host": host, "holder": taken.get(host, "")})
    return DONE


@command(
    example=(
        command_of("clean", hosts=_HOSTS),
        command_of("clean", hosts=_HOSTS, runs="all", images=True, older="30d"),
        command_of("clean", hosts=_HOSTS, caches=True),
    ),
    codes={
        DONE: "everything was listed, or what you named was removed",
        FAILED: "a host did not answer, or something could not be removed",
        USAGE: f"an option was refused, or there is no terminal to ask on and no {FLAG.yes}: nothing was removed",
        STOPPED: "you answered no, or pressed Ctrl-C",
    },
)
def clean(options: Options, console: Console) -> int:
    """Show what Muster keeps on hosts, with age and size; remove what you name.

    It removes nothing that a run uses, and nothing of another user.
    """
    from ..host import leftovers
    from ..hosts.act import clean as hosts_clean

    named = frozenset(kind for kind in ("images", "folders", "packages", "caches") if getattr(options, kind))
    older_s = leftovers.parse_age(options.older) if options.older else 0
    wanted = leftovers.Selection(options.runs, named, older_s, options.data)
    return hosts_clean.clean(options, wanted, console)
