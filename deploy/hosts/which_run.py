"""Which of the runs on the hosts the user means, and whose it is. recorded.py: the choice if none is named.

Pure, except for `nodes_of`, which asks the hosts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ..core.errors import DeployError, UsageError
from ..core.names import RunId
from ..door.session import Session
from ..host.facts import Container
from .start import observe


def runs_of(containers: Mapping[str, Sequence[Container]]) -> dict[RunId, dict[str, Container]]:
    """Our runs by id, each with its container on each host."""
    runs: dict[RunId, dict[str, Container]] = {}
    for host, on_host in containers.items():
        for container in on_host:
            if container.node and container.ours:
                runs.setdefault(container.run, {})[host] = container
    return dict(sorted(runs.items()))


def nodes_of(run: str, sessions: Iterable[Session]) -> Mapping[str, Container]:
    """The container that each host has for one of our runs. Raises DeployError with every host that failed."""
    return runs_of(observe.containers(sessions, run).all()).get(RunId(run), {})


def refuse_foreign(run: str, containers: Mapping[str, Sequence[Container]]) -> None:
    """Raise DeployError if another user of a host's engine has a run with this id: a host can have only one."""
    for host, on_host in containers.items():
        for container in on_host:
            if container.run == run and not container.ours:
                what = f"{run}: the run with that name on {host} belongs to {container.user}"
                raise DeployError(what, f"only {container.user} can stop or remove it")


def choose_run(
    runs: Mapping[RunId, Mapping[str, Container]], wanted: str, here: Collection[str] = frozenset()
) -> RunId:
    """Return the run that was named, or the only one that is running, or the only one. UsageError lists the runs.

    If several are running, return the only one of `here`, the runs of this folder.
    """
    if wanted in runs:
        return RunId(wanted)
    running = [run for run, nodes in runs.items() if any(node.code is None for node in nodes.values())]
    for choice in (running, [run for run in running if run in here], list(runs)):
        if not wanted and len(choice) == 1:
            return choice[0]
    shown = list(runs if wanted else running or runs)
    available = f"they have {', '.join(shown)}" if runs else "they have no runs"
    what = f"{wanted} is not on these hosts" if wanted else "which run?"
    example = shown[-1] if runs and not wanted else "ID"
    hint = f"say which run: --run {example}" if runs else "muster runs lists the runs on this machine"
    raise UsageError(f"{what}: {available}", hint)
