"""Go on from a run's newest checkpoint on real hosts: `fab deploy --resume latest|ID`, and the words that name it.

Rank 0 reads and writes checkpoints, on the first host, in its run folder: a run can only go on where that folder is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.errors import BadAnswer, DeployError, UsageError
from ..core.fields import document, either, nothing, scalar, table, text
from ..core.names import RunId, asked, run_id, run_ids
from ..host import commands
from ..host.facts import HostFacts
from ..run import folders, record
from ..run.outcome import Result
from ..ssh.session import Session, on_all
from . import plan
from .options import Options

# What the trainer was told for one start only.
_ONCE = ("resume",)
_CONFIG = table(text(100, "[a-z][a-z0-9_]*"), either(nothing, scalar))
_CHECKPOINT, _STEP = re.compile(r"([0-9]{1,12}) (.+) (\S+)"), re.compile(r"step-([0-9]{1,12})")
# The trainer's own hint (docs/contract.md, MUSTER_RESUME_COMMAND) knows neither the hosts nor the options.
_ITS_OWN = "goes on from here"


@dataclass(frozen=True)
class Resumed:
    """The run to go on with: its id, the trainer's arguments, and which start this is. `foreign`: a host told them."""

    run: RunId
    arguments: tuple[str, ...]
    start: int
    foreign: bool = False


@dataclass(frozen=True)
class Kept:
    """The newest checkpoint of a run on one host: its step, and when it was written, by the host's clock."""

    step: int
    t: int


def choose(wanted: str, sessions: Sequence[Session], facts: Mapping[str, HostFacts]) -> Resumed:
    """The run that `latest` or an id names. `sessions` in the order of the hosts: the first one has rank 0.

    Raises DeployError where it still goes on, has no checkpoint, or has it on another host than the first.
    """
    if wanted != "latest":
        refuse_going(asked("--resume", wanted, run_id), facts)
    found = on_all(sessions, _kept).all()
    run = pick(wanted, found, frozenset[RunId]().union(*(one.runs for one in facts.values())))
    refuse_going(run, facts)
    hosts = [session.host.name for session in sessions]
    refuse_elsewhere(run, hosts, {host: kept[run] for host, kept in found.items() if run in kept})
    run_dir = record.folder_of(folders.RUNS, run)
    there = record.own(run_dir)
    if record.facts(run_dir).get("script"):
        raise UsageError(
            f"{run}: Muster cannot resume a script: its checkpoints are the script's own",
            "start it again: fab deploy --script ...",
        )
    if "arguments" in there:
        return Resumed(run, tuple(there["arguments"]), len(there.get("starts", ())) + 1)
    # Started from another machine: what it was told stands beside its checkpoints.
    config = on_all(sessions[:1], lambda session: _config(session, run)).all()[hosts[0]]
    newest = max(kept[run].t for kept in found.values() if run in kept)
    return Resumed(run, arguments_of(config), newest, foreign=True)


def pick(wanted: str, found: Mapping[str, Mapping[RunId, Kept]], runs: frozenset[RunId]) -> RunId:
    """The id of the run that is meant. `found`: by host, the newest checkpoint of each run; `runs`: all run folders."""
    times = {run: kept.t for by_run in found.values() for run, kept in by_run.items()}
    if wanted == "latest":
        if not times:
            raise DeployError("--resume latest: no run on these hosts has a checkpoint", "fab deploy starts a new one")
        return max(times, key=lambda run: (times[run], run))
    if wanted in times:
        return RunId(wanted)
    if wanted in runs:
        raise DeployError(f"--resume {wanted}: that run has no checkpoint yet", "start a new one without --resume")
    there = f"there are {', '.join(sorted(times))}" if times else "no run there has one"
    raise DeployError(f"--resume {wanted}: these hosts have no checkpoint of it; {there}", "name the hosts it ran on")


def refuse_going(run: str, facts: Mapping[str, HostFacts]) -> None:
    """Raise DeployError where containers of the run still run: two runs in one folder would ruin it."""
    plan.refuse_foreign(run, {host: fact.containers for host, fact in facts.items()})
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
    several |= {"--include": options.include}
    words += [(option, text) for option, texts in several.items() for text in texts]
    said = shlex.join(word for option, value in words if value for word in (option, value))
    return {"again": said, "cluster": options.cluster}


def hinted(result: Result, run_dir: Path, saved: bool, lost: Sequence[str] = ()) -> Result:
    """`result` with the command that goes on from its checkpoint, if `saved`; without the hosts that are `lost`."""
    there = record.own(run_dir)
    hosts = [str(host) for host in there.get("hosts", ())]
    script = record.facts(run_dir).get("script")
    if result.verdict not in ("stopped", "failed") or not saved or script or not hosts:
        return replace(result, hint="") if _ITS_OWN in result.hint else result
    left = [host for host in hosts if host not in lost]
    more = f" {there['again']}" if there.get("again") else ""
    if there.get("cluster") and not lost:
        where = f"--cluster {shlex.quote(there['cluster'])}"
    else:
        where = f"--hosts {shlex.quote(','.join(left if hosts[:1] == left[:1] else hosts))}"
    command = f"fab deploy {where} --resume {run_dir.name}{more}"
    if lost and hosts[:1] != left[:1]:
        return replace(result, hint=f"its checkpoints are on {hosts[0]}: once that is back, {command}")
    first = f"{result.hint}; " if result.hint and _ITS_OWN not in result.hint else ""
    return replace(result, hint=f"{first}{command} goes on from its last checkpoint")


def placed(text: str, run: str, first: str, own: str = "") -> str:
    """A path in a node's container as it is found on the hosts. A longer path that only holds its letters stays.

    Checkpoints are on the `first` host, whoever tells of them; all else is on the teller's `own`.
    """
    inside = rf"(?<![\w./-]){re.escape(commands.RUN_IN_CONTAINER)}(?![\w-])(?P<kept>/checkpoints(?![\w-]))?"

    def there(found: re.Match[str]) -> str:
        host = first if found["kept"] else own or first
        return f"{host}:~/.muster/runs/{run}{found['kept'] or ''}"

    return re.sub(inside, there, text)


def _config(session: Session, run: RunId) -> dict[str, Any]:
    """The trainer's configuration as rank 0 wrote it there; nothing where it did not."""
    done = session.run(commands.document(run, "config.json"), check=False)
    return {} if done.code or not done.out else parse_config(done.out)


def parse_config(said: str) -> dict[str, Any]:
    """config.json as the trainer writes it. Raises BadAnswer."""
    return _CONFIG(document(said, "config.json"), "config.json")


def parse_checkpoints(said: str) -> dict[RunId, Kept]:
    """The newest checkpoint of each run, from the lines of `host_commands.checkpoints`.

    Folders that are no run's, or no checkpoint's, are passed over. Raises BadAnswer for a line of another kind.
    """
    kept: dict[RunId, Kept] = {}
    for line in said.splitlines():
        found = _CHECKPOINT.fullmatch(line)
        if not found:
            raise BadAnswer("a checkpoint", "a time, a run and a step", line)
        step = _STEP.fullmatch(found[3])
        for run in run_ids([found[2]]):
            if step and (run not in kept or int(step[1]) > kept[run].step):
                kept[run] = Kept(int(step[1]), int(found[1]))
    return kept


def _kept(session: Session) -> dict[RunId, Kept]:
    return parse_checkpoints(session.run(commands.checkpoints()).out)
