"""Go on from a run's newest checkpoint on real hosts: `fab deploy --resume latest|ID`, and the words that name it.

Rank 0 reads and writes checkpoints, on the first host, in its run folder: a run can only go on where that folder is.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploy import deploy_spec, host_commands, launch, record
from deploy.deploy_options import Options
from deploy.ending import Result
from deploy.errors import DeployError, UsageError
from deploy.host_facts import HostFacts, json_object
from deploy.session import Session, on_all

# What the trainer was told for one start only.
_ONCE = ("resume",)
# The trainer's own hint (docs/contract.md, MUSTER_GO_ON) knows neither the hosts nor the options.
_ITS_OWN = "goes on from here"


@dataclass(frozen=True)
class Resumed:
    """The run to go on with: its id, the trainer's arguments, and which start this is."""

    run: str
    arguments: tuple[str, ...]
    start: int


@dataclass(frozen=True)
class Kept:
    """The newest checkpoint of a run on one host: its step, and when it was written, by the host's clock."""

    step: int
    t: int


def choose(asked: str, sessions: Sequence[Session], facts: Mapping[str, HostFacts]) -> Resumed:
    """The run that `latest` or an id names. `sessions` in the order of the hosts: the first one has rank 0.

    Raises DeployError where it still goes on, has no checkpoint, or has it on another host than the first.
    """
    refuse_going(asked, facts)
    found = on_all(sessions, _kept).all()
    run = pick(asked, found, frozenset[str]().union(*(one.runs for one in facts.values())))
    refuse_going(run, facts)
    hosts = [session.host.name for session in sessions]
    refuse_elsewhere(run, hosts, {host: kept[run] for host, kept in found.items() if run in kept})
    there = record.read_json(launch.RUNS / run / "record.json")
    if there.get("script"):
        raise UsageError(f"{run}: a script's own checkpoints are its own", "start it again: fab deploy --run ...")
    if there:
        return Resumed(run, tuple(there.get("arguments", ())), len(there.get("starts", ())) + 1)
    # Started from another machine: what it was told stands beside its checkpoints.
    done = sessions[0].run(["cat", "--", f"{sessions[0].home}/runs/{run}/config.json"], check=False)
    newest = max(kept[run].t for kept in found.values() if run in kept)
    return Resumed(run, arguments_of(json_object(done.out)), newest)


def pick(asked: str, found: Mapping[str, Mapping[str, Kept]], runs: frozenset[str]) -> str:
    """The id of the run that is meant. `found`: by host, the newest checkpoint of each run; `runs`: all run folders."""
    times = {run: kept.t for by_run in found.values() for run, kept in by_run.items()}
    if asked == "latest":
        if not times:
            raise DeployError("--resume latest: no run on these hosts has a checkpoint", "fab deploy starts a new one")
        return max(times, key=lambda run: (times[run], run))
    if asked in times:
        return asked
    if asked in runs:
        raise DeployError(f"--resume {asked}: that run has no checkpoint yet", "start a new one without --resume")
    there = f"there are {', '.join(sorted(times))}" if times else "no run there has one"
    raise DeployError(f"--resume {asked}: these hosts have no checkpoint of it; {there}", "name the hosts it ran on")


def refuse_going(run: str, facts: Mapping[str, HostFacts]) -> None:
    """Raise DeployError where containers of the run still run: two runs in one folder would ruin it."""
    there = {host: node for host, fact in facts.items() for node in fact.containers if node.run == run}
    alive = [host for host, node in there.items() if node.code is None]
    if alive:
        raise DeployError(
            f"--resume {run}: it still runs on {', '.join(alive)}",
            f"follow it: fab attach --hosts {','.join(there)} --run {run}",
        )


def refuse_elsewhere(run: str, hosts: Sequence[str], kept: Mapping[str, Kept]) -> None:
    """Raise DeployError where the first host does not have the run's newest checkpoint."""
    best = max(kept.values(), key=lambda one: one.step)
    having = [host for host in hosts if host in kept and kept[host].step == best.step]
    if hosts[0] in having:
        return
    order = [having[0], *(host for host in hosts if host != having[0])]
    raise DeployError(
        f"--resume {run}: its newest checkpoint, of step {best.step}, is on {having[0]}; rank 0 looks for it on the "
        f"first host, which is {hosts[0]}",
        f"name {having[0]} first: fab deploy --hosts {','.join(order)} --resume {run}",
    )


def arguments_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The trainer's command line that makes `config`, as rank 0 wrote it into config.json."""
    words: list[str] = []
    for name, value in config.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value not in (None, False) and name not in _ONCE:
            words += [option, str(value)]
    return tuple(words)


def again(options: Options) -> dict[str, str]:
    """What of a deploy has to be said again when the run is resumed, for record.json."""
    words = [("--folder", options.folder), ("--image", options.image), ("--nproc", options.processes)]
    several = {"--env": options.environment, "--secret": options.secrets, "--mount": options.mounts}
    words += [(option, text) for option, texts in several.items() for text in texts]
    said = shlex.join(word for option, value in words if value for word in (option, value))
    return {"again": said, "cluster": options.cluster}


def hinted(result: Result, run_dir: Path, saved: bool, lost: Sequence[str] = ()) -> Result:
    """`result` with the command that goes on from its checkpoint, if `saved`; without the hosts that are `lost`."""
    there = record.read_json(run_dir / "record.json")
    if result.verdict not in ("stopped", "failed") or not saved or there.get("script"):
        return replace(result, hint="") if _ITS_OWN in result.hint else result
    hosts = [str(host) for host in there.get("hosts", ())]
    left = [host for host in hosts if host not in lost]
    more = f" {there['again']}" if there.get("again") else ""
    if there.get("cluster") and not lost:
        where = f"--cluster {there['cluster']}"
    else:
        where = f"--hosts {','.join(left if hosts[:1] == left[:1] else hosts)}"
    command = f"fab deploy {where} --resume {run_dir.name}{more}"
    if lost and hosts[:1] != left[:1]:
        return replace(result, hint=f"its checkpoints are on {hosts[0]}: once that is back, {command}")
    first = f"{result.hint}; " if result.hint and _ITS_OWN not in result.hint else ""
    return replace(result, hint=f"{first}{command} goes on from its last checkpoint")


def placed(text: str, run: str, host: str) -> str:
    """A path in a node's container as it is found on its host."""
    return text.replace(deploy_spec.RUN_IN_CONTAINER, f"{host}:~/.muster/runs/{run}")


def _kept(session: Session) -> dict[str, Kept]:
    kept: dict[str, Kept] = {}
    for line in session.run(host_commands.checkpoints()).out.splitlines():
        t, run, step = line.split()
        one = Kept(int(step.removeprefix("step-")), int(t))
        if run not in kept or one.step > kept[run].step:
            kept[run] = one
    return kept
