"""Find the run that a command applies to: on this machine, on Slurm, or on hosts. Every command uses this.

Typed hosts come first, then a named run, then this folder's cluster.toml, then the newest run. This user's record of a
run (runs/ID/record.json) tells where the run is. Hosts are taken only from a record with this user's seal
(record.own_fields).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..core.errors import UsageError
from ..core.names import RunId
from ..core.text import listed, subject
from ..job.load import read_run
from ..job.options import FLAG, Options, flag_of
from ..report.console import Console
from ..run.files import folders, record, resumable
from ..slurm import recorded_run
from ..slurm.recorded_run import RecordedRun

Chosen = TypeVar("Chosen", Path, RecordedRun, Options, Path | RecordedRun)
# Options of commands for any run that apply only to a run on hosts.
_HOSTS_ONLY = ("wait_lost", "secret", "env_file", "secret_file")


def run_of(options: Options, console: Console, copy: bool = False) -> Path | RecordedRun | Options:
    """The run that a command applies to: its folder on this machine, its record for Slurm, or options with its hosts.

    `copy`: if files of an ended run were fetched, it counts as a run on this machine. Raises UsageError if there is no
    such run.
    """
    if copy and ended_here(options, options.rank):
        return announced(_folder(options), options, console)
    if elsewhere := run_on_this_machine(options) or on_slurm(options):
        _refuse_of_hosts(options, elsewhere)
        return announced(elsewhere, options, console)
    asked = with_recorded_hosts(options, console)
    if not names_hosts(asked):
        hint = f"name its hosts: {FLAG.hosts} gpu-a,me@gpu-b:2222"
        if asked.run:
            raise UsageError(f"{asked.run}: you did not start this run here, so its hosts are not known", hint)
        folders.refuse_no_run(f", or {hint}")
    return announced(asked, options, console)


def announced(run: Chosen, options: Options, console: Console) -> Chosen:
    """Return the run that was chosen; if the user named none, say which others are going on on this machine."""
    name = run.name if isinstance(run, Path) else run.run
    others = [] if options.run or options.hosts or options.cluster else [each for each in going_on() if each != name]
    if others:
        going = subject(others[::-1], "is going on", "are going on")
        console.note(f"this is about {name or 'the runs on the hosts'}; {going}, too: {FLAG.run} {others[-1]}")
    return run


def going_on() -> list[str]:
    """The runs of this folder on this machine that have not ended, the newest last."""
    from ..local import attach

    return attach.going_on()


def _refuse_of_hosts(options: Options, run: Path | RecordedRun) -> None:
    """Raise UsageError for an option that applies only to a run on hosts."""
    if strange := next((name for name in _HOSTS_ONLY if getattr(options, name)), ""):
        what = f"{run.name if isinstance(run, Path) else run.run} is not a run on hosts"
        raise UsageError(f"{flag_of(strange)}: {what}", f"leave out {flag_of(strange)}")


def run_not_on_slurm(options: Options, console: Console, copy: bool = False) -> Path | Options:
    """Like `run_of`, for a command that does not support Slurm. Raises UsageError for a run on Slurm."""
    run = run_of(options, console, copy)
    return refuse_slurm(run) if isinstance(run, RecordedRun) else run


def refuse_slurm(run: RecordedRun, hint: str = "") -> NoReturn:
    """Raise UsageError for a run on Slurm. `hint`: what to do instead."""
    job, login = run.number or "JOB", run.login.destination
    raise UsageError(
        f"{run.run}: it runs on Slurm: status, logs, attach, stop and fetch can do this there, this command cannot",
        hint or f"to run a command in its job: ssh {login} srun --overlap --jobid={job} nvidia-smi",
    )


def to_stop(options: Options, console: Console) -> Path | RecordedRun | Options:
    """The run to stop: without --run, the only run whose end is not known.

    Raises UsageError if there are several: a run may have ended without any command here seeing it, so Muster would
    have to guess.
    """
    if not (options.run or names_hosts(options)):
        elsewhere = (path.name for backend in (record.HOSTS, record.SLURM) for path in record.without_end(backend))
        names = [*going_on(), *elsewhere]
        if len(names) > 1:
            words = f"which run? as far as this machine knows, {listed(names)} have not ended"
            raise UsageError(words, f"name the run: {FLAG.run} {names[0]}")
        options = replace(options, run="".join(names))
    return run_of(options, console)


def to_resume(options: Options, console: Console, end_of: Callable[[Path], Mapping[str, Any]]) -> Path:
    """The run to continue: the named one, or else the newest. Raises UsageError if there is none.

    It also raises UsageError if the newest is done and others are not: the user may mean either. `end_of`: how a run
    ended, as far as this machine knows.
    """
    newest = record.find(options.run or "latest")
    if record.is_starting(newest):
        raise UsageError(f"{newest.name} is starting now", f"follow it: muster attach {newest.name}")
    if options.run or not _is_done(end_of(newest)):
        return newest
    live = going_on()
    others = [path for path in record.run_dirs(folders.RUNS) if path.name not in live and record.own_fields(path)]
    ends = {path.name: end_of(path) for path in sorted(others, key=record.started, reverse=True)}
    left = [name for name, end in ends.items() if not _is_done(end)]
    if left:
        known = "" if all(map(ends.get, left)) else ", as far as this machine knows"
        raise UsageError(
            f"which run? the newest, {newest.name}, is done; {subject(left, 'is', 'are')} not{known}",
            f"muster resume {left[0]}; or, to start the newest again with its files: muster resume {newest.name}",
        )
    console.note(f"{newest.name} is done: it starts again with its files")
    return newest


def _is_done(end: Mapping[str, Any]) -> bool:
    return end.get("verdict") == "done"


def names_hosts(options: Options) -> bool:
    """Whether a command is about hosts: the user typed some, or this folder has a cluster.toml."""
    return bool(options.hosts or options.cluster or Path("cluster.toml").is_file())


def run_on_this_machine(options: Options) -> Path | None:
    """The run on this machine that a command applies to: the named run, or else the latest of all.

    None if hosts are typed, if no run is named and there is a cluster.toml, or if the run is not on this machine.
    """
    named = options.run not in ("", "latest")
    if options.hosts or options.cluster or (names_hosts(options) and not named):
        return None
    run_dir = _folder(options)
    elsewhere = record.facts(run_dir).get("backend") in (record.HOSTS, record.SLURM)
    return run_dir if record.is_run(run_dir) and not elsewhere else None


def on_slurm(options: Options) -> RecordedRun | None:
    """The run on Slurm that a command applies to; None if hosts are typed, or if the run's record is not of Slurm."""
    if options.hosts or options.cluster:
        return None
    return recorded_run.find(options.run, newest=not Path("cluster.toml").is_file())


def with_recorded_hosts(options: Options, console: Console, file_first: bool = True) -> Options:
    """The options with the run's id in place of `latest` and, if no hosts are named, the hosts from the run's record.

    `file_first`: this folder's cluster.toml counts as naming the hosts. Without --run, the run is the newest that was
    deployed to hosts. Raises UsageError if `latest` means no run.
    """
    newest = record.newest(record.HOSTS)
    if options.run == "latest":
        if newest is None:
            raise UsageError(
                f"{FLAG.run} latest: no run in {folders.RUNS} was deployed to hosts", "muster runs lists them"
            )
        options = replace(options, run=newest.name)
    run_dir = record.path_of(RunId(read_run(options.run))) if options.run else newest
    named = names_hosts(options) if file_first else options.hosts or options.cluster
    if named or run_dir is None:
        return options
    if not run_dir.is_dir():
        resumable.refuse_unknown(options.run, flag=FLAG.run)
    own = record.own_fields(run_dir)
    if own.get("backend") != record.HOSTS or not own.get("hosts"):
        return options
    hosts, cluster = ",".join(own["hosts"]), own.get("cluster", "")
    console.note(f"{run_dir.name} on {hosts}")
    return replace(options, hosts=hosts, cluster=cluster if Path(cluster).is_file() else "", run=run_dir.name)


def ended_here(options: Options, rank: str = "") -> bool:
    """Whether no hosts are named, the run has ended, and its logs are here because somebody followed or fetched it.

    `rank`: a number, or all. The ranks' own logs are here only after a fetch.
    """
    run_dir = _folder(options)
    logs = f"logs/rank-{rank}.log" if rank.isdecimal() else "logs/rank-*.log" if rank else "logs/*.log"
    return not names_hosts(options) and (run_dir / "outcome.json").is_file() and any(run_dir.glob(logs))


def _folder(options: Options) -> Path:
    """The folder of the named run, or of the latest run of any backend."""
    if options.run in ("", "latest"):
        return record.latest()
    return record.path_of(RunId(read_run(options.run)))
