"""Where a command looks that names no hosts: on those that this user's record of the run names (runs/ID/record.json).

Only a record that this user's seal proves counts (record.own). The folder's cluster.toml comes before it.
which_run.py chooses among the runs that hosts have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from dataclasses import replace
from pathlib import Path

from ..core.errors import UsageError
from ..core.names import RunId
from ..job.load import read_run
from ..job.options import FLAG, Options
from ..report.console import Console
from ..run.files import folders, record, resumable

_MOST_NAMES = 5


def names_hosts(options: Options) -> bool:
    """Whether a command is about hosts: it names some, or this folder has a cluster.toml. Else about this machine."""
    return bool(options.hosts or options.cluster or Path("cluster.toml").is_file())


def filled(options: Options, console: Console, file_first: bool = True) -> Options:
    """Options with the run that `latest` means, and with the hosts and the run of the record if no hosts are named.

    `file_first`: a cluster.toml of this folder names them. Without --run it is the newest run that was deployed to
    hosts. Raises UsageError if `latest` means none.
    """
    newest = record.newest(record.HOSTS)
    if not options.run:
        _refuse_slurm(_here(options), options)
    if options.run == "latest":
        if newest is None:
            raise UsageError(
                f"{FLAG.run} latest: no run in {folders.RUNS} was deployed to hosts", "muster runs lists them"
            )
        options = replace(options, run=newest.name)
    run_dir = record.path_of(RunId(read_run(options.run))) if options.run else newest
    own = record.own(run_dir) if run_dir else {}
    if run_dir and not run_dir.is_dir() and not names_hosts(options):
        resumable.refuse_unknown(options.run, flag=FLAG.run)
    if run_dir:
        _refuse_slurm(run_dir, options)
    named = names_hosts(options) if file_first else options.hosts or options.cluster
    if named or run_dir is None or own.get("backend") != record.HOSTS or not own.get("hosts"):
        return options
    hosts, cluster = ",".join(own["hosts"]), own.get("cluster", "")
    console.note(f"{run_dir.name} on {hosts}")
    return replace(options, hosts=hosts, cluster=cluster if Path(cluster).is_file() else "", run=run_dir.name)


def to_stop(options: Options, console: Console, going_on: Callable[[], Collection[str]] = tuple) -> Options:
    """Fill the options of a command that ends a run. Without --run, it means the only run that has no end.

    `going_on`: the runs of this machine that have none. Raises UsageError if there are several: an end that no command
    here has seen is unknown, so Muster would guess.
    """
    if options.run or names_hosts(options):
        return filled(options, console)
    names = [*sorted(going_on()), *(path.name for path in record.without_end(record.HOSTS))]
    if len(names) > 1:
        shown = ", ".join(names[:_MOST_NAMES]) + (" and others" if len(names) > _MOST_NAMES else "")
        raise UsageError(f"which run? of {shown} no end is known here", f"name the run: {FLAG.run} {names[0]}")
    return filled(replace(options, run=names[0]) if names else options, console)


def here(options: Options) -> Path | None:
    """The run of this machine that a command means: the one that it names, or else the latest, wherever runs run.

    None: hosts are typed, cluster.toml names those of a command without a run, or the run is not of this machine.
    """
    named = options.run not in ("", "latest")
    if options.hosts or options.cluster or (names_hosts(options) and not named):
        return None
    run_dir = _here(options)
    elsewhere = record.facts(run_dir).get("backend") in (record.HOSTS, record.SLURM)
    return run_dir if record.is_run(run_dir) and not elsewhere else None


def newest_of(runs: Container[str]) -> RunId | None:
    """The newest run that was deployed from this folder, if it is one of `runs`: hosts have those of others as well."""
    newest = record.newest(record.HOSTS)
    return RunId(newest.name) if newest and newest.name in runs else None


def without_end() -> frozenset[str]:
    """The runs of this folder whose end is not known here: of several on the hosts, these are meant."""
    return frozenset(path.name for path in record.without_end(record.HOSTS))


def ended_here(options: Options, rank: str = "") -> bool:
    """Whether no hosts are named, and the run has ended and its logs are here: somebody followed it, or fetched it.

    `rank`: a number, or all. Ranks' own logs are here only once somebody has fetched them.
    """
    run_dir = _here(options)
    logs = f"logs/rank-{rank}.log" if rank.isdecimal() else "logs/rank-*.log" if rank else "logs/*.log"
    return not names_hosts(options) and (run_dir / "outcome.json").is_file() and any(run_dir.glob(logs))


def _here(options: Options) -> Path:
    """The folder of the run that is meant: the latest of any backend, or the one that is named."""
    if options.run in ("", "latest"):
        return record.latest()
    return record.path_of(RunId(read_run(options.run)))


def _refuse_slurm(run_dir: Path, options: Options) -> None:
    """Raise UsageError if the run is one on Slurm, and the command did not ask for that first: it knows hosts alone."""
    own = record.own(run_dir)
    if own.get("backend") == record.SLURM and not names_hosts(options):
        job, login = own.get("job") or "JOB", ",".join(own.get("hosts", ()))
        raise UsageError(
            f"{run_dir.name}: it runs on Slurm: status, logs, attach, stop and fetch know it, this command does not",
            f"in its job: ssh {login} srun --overlap --jobid={job} nvidia-smi",
        )
