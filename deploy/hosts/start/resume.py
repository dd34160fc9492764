"""Resume a run on real hosts: `muster deploy --resume latest|ID`, and the hint that shows this command.

A run continues with the files that it wrote on each host. The ranks of Muster's trainer look on their disks for the
newest checkpoint, and the rank that has it sends it to the others.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from ...causes.end_causes import Cause
from ...core.errors import DeployError, UsageError
from ...core.names import RunId, check_typed, run_id
from ...core.program import script_option
from ...host import commands
from ...host.reached import ReachedHosts
from ...job import script as typed
from ...job.cluster import Cluster
from ...job.inventory import hosts_of_flag, typed_hosts
from ...job.load import known_cluster, read_run, trainer_words
from ...job.option_words import command_of, read_again, words_again, words_of
from ...job.options import FLAG, Job, Options
from ...run import resume_options
from ...run.files import record, resumable
from ...run.outcome import Result
from ...send.folder.credentials import SendChoice
from .. import which_run


def run_to_continue(options: Options) -> tuple[Options, RunId | None]:
    """Return `options` with what the run ran, and the run that --resume or a repeated --run continues (None: new).

    A script and Muster's trainer find their own checkpoints, because they work in the same folder on each host. Muster
    runs again only what this machine recorded. Raises UsageError if `latest` or --run would continue another script's
    run, if the run is not on hosts, or if this machine has not recorded what it ran.
    """
    run_dir = _run_dir_named(options)
    if run_dir is None:
        return options, None
    own, run = record.own_fields(run_dir), RunId(run_dir.name)
    if not (options.resume or own.get("script")):
        return options, None  # a new start refuses --run with the name of a run that exists
    continued = replace(options, resume="", run="")
    if own.get("script"):
        script = options.script or resumable.command_of(run_dir)
        folder = options.folder or ("" if options.script else resumable.folder_of(run_dir))
        return replace(continued, script=script, folder=folder), run
    if "arguments" in own and options.script:
        raise UsageError(f"--resume {run}: this run has no script", "leave out the script")
    if "arguments" in own:
        return replace(continued, args=shlex.join([*own["arguments"], *trainer_words(options)])), run
    if not (options.script or options.args):  # another machine started it
        if not run_dir.exists():
            resumable.refuse_unknown(run)
        raise UsageError(
            f"--resume {run}: this machine did not record what the run started, and Muster never runs what "
            "others recorded",
            f"give the script yourself: muster deploy --resume {run} {script_option()} ..., or --args",
        )
    return continued, run


def _run_dir_named(options: Options) -> Path | None:
    if options.resume == "latest":
        return _latest_recorded(options)
    if options.resume:
        run_dir = record.path_of(check_typed(FLAG.resume, options.resume, run_id))
        resumable.refuse_elsewhere(run_dir, record.HOSTS)
        return run_dir
    run = read_run(options.run)
    if not run or not options.script:
        return None
    run_dir = record.path_of(RunId(run))
    if record.own_fields(run_dir).get("backend") == record.HOSTS:
        words = typed.read(options.script, Path(options.folder or ".")).words
        resumable.refuse_other(run_dir, words, options.folder)
    return run_dir


def _latest_recorded(options: Options) -> Path:
    """The newest recorded run on hosts that the command means.

    The script in cluster.toml says which script is meant, as in a deploy; its arguments come from the record.
    """
    job = known_cluster(options).job
    script, arguments = options.script, trainer_words(options)
    if not (script or arguments):
        script, arguments = job.script, trainer_words(replace(options, args=job.args))
    wanted = resumable.WantedRun(typed.read(script, Path(options.folder or ".")).words, options.folder, arguments)
    run_dir = resumable.newest(record.HOSTS, wanted)
    if run_dir is None:
        resumable.refuse_none(wanted, record.runs_on(record.HOSTS))
    return run_dir


def next_start(run: RunId, hosts: ReachedHosts, resumes: bool, warn: Callable[[str], None]) -> int:
    """The number of the run's next start. `resumes`: the user gave --resume, rather than --run again.

    Raises DeployError if the run is still running, UsageError if --resume is given and no host has a file of the run.
    """
    refuse_running(run, hosts)
    own = record.own_fields(record.folder_of(run))
    if not any(run in fact.runs for fact in hosts.facts.values()):
        if resumes:
            _refuse_fileless(run, own, hosts)
        warn(f"{run}: these hosts have none of its files; the script starts with the folder that you send")
    return max(2, len(own.get("starts", ())) + 1)


def _refuse_fileless(run: RunId, own: Mapping[str, Any], asked: ReachedHosts) -> NoReturn:
    """Raise UsageError: the run to resume has no files on these hosts, so it would begin from scratch."""
    facts = asked.facts
    if not own:
        resumable.refuse_unknown(run, frozenset[str]().union(*(each.runs for each in facts.values())))
    hosts, hint = ",".join(map(str, own.get("hosts", ()))), "leave out --resume to start a new run"
    # A host from cluster.toml has a name in addition to its address, so addresses are compared.
    if hosts and not {each.address for each in hosts_of_flag(hosts)} & {each.address for each in asked.cluster.hosts}:
        hint = f"it ran on {hosts}: {command_of('deploy', hosts=hosts, resume=run)}; or {hint}"
    have = "has" if len(facts) == 1 else "have"
    raise UsageError(f"--resume {run}: {', '.join(facts)} {have} no files of it", hint)


def refuse_running(run: str, hosts: ReachedHosts) -> None:
    """Raise DeployError if containers of the run still run: two starts in one run folder would corrupt it."""
    which_run.refuse_foreign(run, hosts.containers_by_host)
    nodes = {host: node for host, each in hosts.containers_by_host.items() for node in each if node.run == run}
    running = [host for host, node in nodes.items() if node.code is None]
    if running:
        attach = command_of(
            "attach", hosts=typed_hosts(each for each in hosts.cluster.hosts if each.name in nodes), run=run
        )
        raise DeployError(f"{run}: it is still running on {', '.join(running)}", f"follow it: {attach}")


def resume_fields(options: Options) -> dict[str, str]:
    """For record.json: the options of a deploy that its resume must repeat."""
    return {"again": shlex.join(words_again(options)), "cluster": options.cluster}


def resume_words(options: Options, cluster: Cluster) -> tuple[str, str]:
    """For Work: the words for the hosts, and the options, of the command that resumes the run on these hosts."""
    where = Options(cluster=options.cluster) if options.cluster else Options(typed_hosts(cluster.hosts))
    return shlex.join(words_of(where)), resume_fields(options)["again"]


def sent(run_dir: Path, job: Job) -> tuple[Path, SendChoice] | None:
    """The folder sent with a run's script, from this user's record, and the choice of files that were asked for."""
    own = record.own_fields(run_dir)
    if not own.get("script") or not own.get("starts"):
        return None
    given = read_again(own.get("again", ""))
    folder = Path(given.folder) if given.folder else job.folder or Path()
    return folder, SendChoice(frozenset({*job.include, *given.include}))


def with_resume_hint(
    result: Result, run_dir: Path, saved: bool, lost: Sequence[str] = (), copied: bool = False
) -> Result:
    """`result` with the command that resumes the run, if it `saved` something; the command leaves out hosts in `lost`.

    `copied`: a host other than the first also has the checkpoints.
    """
    own = record.own_fields(run_dir)
    hosts = [str(host) for host in own.get("hosts", ())]
    script = record.facts(run_dir).get("script")
    # The trainer's own hint shows MUSTER_RESUME_COMMAND, which does not know which hosts have been lost since.
    its_own = result.verdict == "stopped" and result.from_ranks and not script
    if result.verdict not in ("stopped", "failed") or not saved or not hosts:
        return replace(result, hint="") if its_own else result
    reachable = [host for host in hosts if host not in lost]
    without = reachable and (copied or hosts[:1] == reachable[:1])
    left = reachable if without else hosts
    more = resume_options.options(own, len(left))
    where = Options(cluster=own["cluster"]) if own.get("cluster") and not lost else Options(",".join(left))
    command = command_of("deploy", replace(where, resume=run_dir.name), more)
    result = replace(result, hosts_left=tuple(left) if lost else ())
    first = f"{result.hint}; " if result.hint and not its_own else ""
    if script:
        return replace(result, hint=f"{first}{_room(result)}continue with the files that it wrote: {command}")
    if lost and hosts[:1] != reachable[:1] and not (copied and reachable):
        return replace(result, hint=f"its checkpoints are on {hosts[0]}; when that host is back: {command}")
    return replace(result, hint=f"{first}resume from its last checkpoint: {command}")


def _room(result: Result) -> str:
    """The step to take before the next start if a disk was full: otherwise it would fill up again."""
    if result.cause != Cause.DISK_FULL or not result.node:
        return ""
    return (
        f"first free some space on {result.node} (`df -h ~` there; `{command_of('clean', hosts=result.node)}`), then "
    )


def result_on_hosts(result: Result, run: str, first: str, nodes: Mapping[str, str], everywhere: bool) -> Result:
    """The result with paths on hosts instead of paths of the run folder in a container. Other paths stay.

    Checkpoints are on the `first` host, or `everywhere`, whichever rank mentions them; all other files are on the
    rank's host. `nodes`: the run's nodes by host.
    """
    inside = rf"(?<![\w./-]){re.escape(commands.RUN_IN_CONTAINER)}(?![\w-])(?P<kept>/checkpoints(?![\w-]))?"
    own = next((host for host, node in nodes.items() if node == result.node), first)

    def host_path(match: re.Match[str]) -> str:
        host = first if match["kept"] and not everywhere else own
        return f"{host}:~/.muster/runs/{run}{match['kept'] or ''}"

    hint, message = (re.sub(inside, host_path, text) for text in (result.hint, result.message))
    return replace(result, message=message, hint=hint)
