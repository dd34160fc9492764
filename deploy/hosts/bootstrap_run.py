"""`muster bootstrap`: look at every host, show each command, ask, run it, and note it in the host's audit log."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from ..core.errors import DONE, FAILED, STOPPED, DeployError
from ..core.results import Results
from ..core.text import last_line, several
from ..door.session import CommandFailed, Session, on_all, open_all
from ..host import audit
from ..job.inventory import Host
from ..report.console import Console
from . import bootstrap
from .bootstrap import Machine, Plan

_STEP_S = 1800.0


def run(hosts: Sequence[Host], ask: Callable[[str], bool] | None, dry_run: bool, console: Console) -> int:
    """Make every host able to run containers. `ask` asks the user a question; None: do not ask, go ahead.

    Returns 0 if all hosts have what they need, 1 if their owners must do something, 75 if the user said no. Raises
    DeployError with every host that cannot be reached (nothing was changed then) or whose command failed.
    """
    with open_all(hosts) as opened:
        sessions = list(opened.all().values())
        plans = {host: bootstrap.decide(machine) for host, machine in _look(sessions).all().items()}
        for host, plan in plans.items():
            console.data({"host": host, "commands": [list(step.argv) for step in plan.steps], "by_hand": plan.by_hand})
        for line in plan_lines(plans):
            console.text(line)
        wanted = [session for session in sessions if plans[session.name].steps]
        left = any(plan.by_hand for plan in plans.values())
        if dry_run or not wanted:
            return FAILED if left else DONE
        if ask and not ask(f"run these commands as root on {several(len(wanted), 'host')}?"):
            console.note("nothing was done")
            return STOPPED
        on_all(wanted, lambda session: _perform(session, plans[session.name], console)).all()
        on_all(wanted, _prove).all()
        console.note(f"an engine answers on {', '.join(session.name for session in wanted)}")
        return FAILED if left else DONE


def plan_lines(plans: dict[str, Plan]) -> list[str]:
    """Format the plans as lines: each command in shell quoting, its reason, and what the host's owner must do."""
    lines = []
    for host, plan in plans.items():
        lines += [f"{host}: {shlex.join(step.argv)}    # {step.why}" for step in plan.steps]
        lines += [f"{host}: by hand: {what}" for what in plan.by_hand]
        if not plan.steps and not plan.by_hand:
            lines.append(f"{host}: has everything it needs")
    return lines


def _look(sessions: Sequence[Session]) -> Results[Machine]:
    return on_all(sessions, lambda session: bootstrap.parse(session.run(bootstrap.look()).out))


def _perform(session: Session, plan: Plan, console: Console) -> None:
    for step in plan.steps:
        console.note(f"{session.name}: {shlex.join(step.argv)}")
        try:
            session.run(step.argv, timeout_s=_STEP_S)
        except CommandFailed as failed:
            audit.note(session, audit.Action.BOOTSTRAP_FAILED, shlex.join(step.argv))
            raise DeployError(failed.message, "log in there and run the command yourself to see more") from failed
        audit.note(session, audit.Action.BOOTSTRAP, shlex.join(step.argv))


def _prove(session: Session) -> None:
    """Raise DeployError if no engine answers root on this host."""
    done = session.run(bootstrap.wait(), check=False)
    if done.code:
        words = last_line(done.err, "no output")
        raise DeployError(
            f"{session.name}: Docker is installed, but its engine does not answer: {words}",
            "log in there: journalctl -u docker, or /var/log/docker.log",
        )
