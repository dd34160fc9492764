"""Resume a run on real hosts: `fab deploy --resume latest|ID`, and the hint that names it.

A script continues with the files that it wrote on each host. Muster's trainer continues from its newest checkpoint on
any of the hosts: its ranks look on their disks, and the one that has it sends it to the others.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ..causes.ends import Cause
from ..core.errors import BadAnswer, DeployError, UsageError
from ..core.fields import document, either, nothing, scalar, table, text
from ..core.names import RunId, asked, run_id, run_ids
from ..core.program import FAB, SCRIPT
from ..door.session import Session, on_all
from ..host import commands
from ..host.facts import HostFacts
from ..job import script as typed
from ..job.again import command_of, read_again, words_again, words_of
from ..job.cluster import Cluster, find_cluster
from ..job.inventory import hosts_of_flag
from ..job.load import read_run
from ..job.options import Job, Options, flag_of
from ..run import folders, onward, record, resumable
from ..run.outcome import Result
from ..send.folder.credentials import Choice
from . import plan

# Options of the trainer that belong to one start only.
_ONCE = ("resume",)
_CONFIG = table(text(100, "[a-z][a-z0-9_]*"), either(nothing, scalar))
_CHECKPOINT, _STEP = re.compile(r"([0-9]{1,12}) (.+) (\S+)"), re.compile(r"step-([0-9]{1,12})")


@dataclass(frozen=True)
class Resumption:
    """The run to resume: its id, the trainer's arguments, and the number of this start.

    `foreign`: the arguments come from a host, not from this machine's record.
    """

    run: RunId
    arguments: tuple[str, ...]
    start: int
    foreign: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """The newest checkpoint of a run on one host: its step, and the time of writing by the host's clock."""

    step: int
    t: int


def choose(
    wanted: str, sessions: Sequence[Session], facts: Mapping[str, HostFacts], arguments: Sequence[str] = ()
) -> Resumption:
    """The run of Muster's own trainer that `latest` or an id names; `arguments`: what it is given now.

    Raises DeployError if the run still runs, UsageError if it has no checkpoint here.
    """
    known = frozenset[RunId]().union(*(fact.runs for fact in facts.values()))
    if wanted != "latest":
        refuse_going(run := asked(flag_of("resume"), wanted, run_id), facts)
        if run not in known and not record.path_of(run).exists():
            resumable.refuse_unknown(run, folders.RUNS, _flag, known)
    checkpoints = on_all(sessions, _checkpoints).all()
    if wanted == "latest":
        checkpoints = {host: _meant(by_run, arguments) for host, by_run in checkpoints.items()}
    run = pick(wanted, checkpoints, known)
    refuse_going(run, facts)
    run_dir = record.folder_of(folders.RUNS, run)
    own = record.own(run_dir)
    if record.facts(run_dir).get("script"):
        raise UsageError(f"{run} runs a script", f"name both: {FAB} deploy --resume {run} {SCRIPT} ...")
    if "arguments" in own:
        return Resumption(run, tuple(own["arguments"]), len(own.get("starts", ())) + 1)
    # Another machine started it: the trainer's configuration lies beside its checkpoints.
    configs = on_all(sessions, lambda session: _config(session, run)).all()
    config = next((configs[session.host.name] for session in sessions if configs[session.host.name]), {})
    newest = max(by_run[run].t for by_run in checkpoints.values() if run in by_run)
    return Resumption(run, arguments_of(config), newest, foreign=True)


def _meant(by_run: Mapping[RunId, Checkpoint], arguments: Sequence[str]) -> dict[RunId, Checkpoint]:
    """Those that may go on with these arguments: of no script, nor of another recipe, as far as it is recorded here."""
    others = {
        path.name
        for path in record.on(folders.RUNS, record.HOSTS)
        if record.own(path).get("script") or not resumable.Asked(arguments=tuple(arguments)).matches(path)
    }
    return {run: checkpoint for run, checkpoint in by_run.items() if run not in others}


def script_run(options: Options) -> tuple[Options, RunId | None]:
    """The run of a script that --resume, or --run once more, continues, and `options` with its script; None otherwise.

    The script finds its own checkpoints: it works in the same folder of each host. Raises UsageError for a run of
    another script that `latest` or --run would continue, and for one that is not on hosts.
    """
    run_dir = _script_run_dir(options)
    if run_dir is None:
        return options, None
    own = record.own(run_dir)
    if own.get("script"):
        script = options.script or resumable.command_of(run_dir)
    elif options.resume not in ("", "latest") and options.script:
        script = options.script  # another machine started it
    else:
        return options, None
    if options.resume and options.run:
        raise UsageError("--resume and --run both name a run", "leave out --run")
    folder = options.folder or ("" if options.script else resumable.folder_of(run_dir))
    return replace(options, script=script, folder=folder, resume="", run=""), RunId(run_dir.name)


def _script_run_dir(options: Options) -> Path | None:
    if options.resume == "latest":
        return _latest_recorded(options)
    if options.resume:
        run_dir = record.path_of(asked(flag_of("resume"), options.resume, run_id))
        resumable.refuse_elsewhere(run_dir, record.HOSTS)
        return run_dir
    run = read_run(options.run)
    if not run or not options.script:
        return None
    run_dir = record.path_of(RunId(run))
    if record.own(run_dir).get("backend") == record.HOSTS:
        words = typed.read(options.script, Path(options.folder or ".")).words
        resumable.refuse_other(run_dir, words, options.folder)
    return run_dir


def _latest_recorded(options: Options) -> Path | None:
    """The newest recorded run on hosts that the command means; None: the hosts know those of Muster's own trainer.

    The script of cluster.toml says which script is meant, as in a deploy; what it was given is as it was recorded.
    """
    job = find_cluster(options.hosts, options.cluster).job
    script = options.script or job.script * (not options.args)
    if not script and (options.args or job.args):
        return None
    words = typed.read(script, Path(options.folder or ".")).words
    wanted = resumable.Asked(words, options.folder)
    run_dir = resumable.newest(folders.RUNS, record.HOSTS, wanted)
    if run_dir is None and words:
        resumable.refuse_none(wanted, folders.RUNS, record.on(folders.RUNS, record.HOSTS), _flag)
    return run_dir


def _flag(run: str) -> str:
    return f"--resume {run}"


def continue_script(
    run: RunId, facts: Mapping[str, HostFacts], resumes: bool, warn: Callable[[str], None]
) -> Resumption:
    """The next start of a script's run; `resumes`: by --resume, and not by --run once more.

    Raises DeployError if it still runs, UsageError for a resume of a run of which no host has a file.
    """
    refuse_going(run, facts)
    own = record.own(record.folder_of(folders.RUNS, run))
    if not any(run in fact.runs for fact in facts.values()):
        if resumes:
            _refuse_fileless(run, own, facts)
        warn(f"{run}: these hosts have no files of it; the script starts with the folder that you send")
    return Resumption(run, (), max(2, len(own.get("starts", ())) + 1))


def _refuse_fileless(run: RunId, own: Mapping[str, Any], facts: Mapping[str, HostFacts]) -> NoReturn:
    """Raise UsageError: the run that shall go on has no files on these hosts, so it would begin anew."""
    present = frozenset[str]().union(*(fact.runs for fact in facts.values()))
    if not own:
        resumable.refuse_unknown(run, folders.RUNS, _flag, present)
    hosts, new = [str(host) for host in own.get("hosts", ())], "leave out --resume to start a new run"
    if alike := resumable.alike(record.path_of(run), present):
        hint = f"they have {resumable.described(alike, _flag)}; or {new}"
    elif hosts and not facts.keys() & {host.name for host in hosts_of_flag(",".join(hosts))}:
        hint = f"it ran on {', '.join(hosts)}: {FAB} deploy --hosts {','.join(hosts)} --resume {run}; or {new}"
    else:
        hint = new
    have = "has" if len(facts) == 1 else "have"
    raise UsageError(f"--resume {run}: {', '.join(facts)} {have} no files of it", hint)


def pick(wanted: str, checkpoints: Mapping[str, Mapping[RunId, Checkpoint]], runs: frozenset[RunId]) -> RunId:
    """The id of the run that `wanted` names. `checkpoints`: by host, the newest of each run. `runs`: all run folders.

    Raises UsageError if that run has no checkpoint here.
    """
    times = {run: checkpoint.t for by_run in checkpoints.values() for run, checkpoint in by_run.items()}
    if wanted == "latest":
        if not times:
            raise UsageError(
                "--resume latest: no run on these hosts has a checkpoint", "leave it out to start a new one"
            )
        return max(times, key=lambda run: (times[run], run))
    if wanted in times:
        return RunId(wanted)
    if wanted in runs:
        raise UsageError(f"--resume {wanted}: that run has no checkpoint yet", "start a new one without --resume")
    available = f"they have checkpoints of {', '.join(sorted(times))}" if times else "they have no checkpoint at all"
    raise UsageError(
        f"--resume {wanted}: these hosts have no checkpoint of it; {available}", "name the hosts that ran it"
    )


def refuse_going(run: str, facts: Mapping[str, HostFacts]) -> None:
    """Raise DeployError if containers of the run still run: two starts in one run folder would ruin it."""
    plan.refuse_foreign(run, {host: fact.containers for host, fact in facts.items()})
    nodes = {host: node for host, fact in facts.items() for node in fact.containers if node.run == run}
    running = [host for host, node in nodes.items() if node.code is None]
    if running:
        raise DeployError(
            f"--resume {run}: it still runs on {', '.join(running)}",
            f"follow it: {FAB} attach --hosts {','.join(nodes)} --run {run}",
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


def resume_fields(options: Options) -> dict[str, str]:
    """For record.json: the options of a deploy that its resume must repeat."""
    return {"again": shlex.join(words_again(options)), "cluster": options.cluster}


def known_ahead(options: Options, cluster: Cluster) -> tuple[str, str]:
    """For Work: the words for the hosts, and the options, of the command that resumes the run on these hosts."""
    where = Options(cluster=options.cluster) if options.cluster else Options(_listed(cluster))
    return shlex.join(words_of(where)), resume_fields(options)["again"]


def _listed(cluster: Cluster) -> str:
    return ",".join(host.destination for host in cluster.hosts)


def sent(run_dir: Path, job: Job) -> tuple[Path, Choice] | None:
    """The folder that was sent with a run's script, as this user's record of it says, and what of it was asked for."""
    own = record.own(run_dir)
    if not own.get("script") or not own.get("starts"):
        return None
    given = read_again(shlex.split(own.get("again", "")))
    folder = Path(given.folder) if given.folder else job.folder or Path()
    return folder, Choice(frozenset({*job.include, *given.include}))


def with_resume_hint(
    result: Result, run_dir: Path, saved: bool, lost: Sequence[str] = (), copied: bool = False
) -> Result:
    """`result` with the command that resumes the run, if it `saved` something; without the hosts in `lost`.

    `copied`: another host than the first has the checkpoints, too.
    """
    own = record.own(run_dir)
    hosts = [str(host) for host in own.get("hosts", ())]
    script = record.facts(run_dir).get("script")
    # The hint of Muster's trainer has the command of MUSTER_RESUME_COMMAND, which does not know what is lost by now.
    its_own = result.verdict == "stopped" and result.from_ranks and not script
    if result.verdict not in ("stopped", "failed") or not saved or not hosts:
        return replace(result, hint="") if its_own else result
    reachable = [host for host in hosts if host not in lost]
    without = reachable and (copied or hosts[:1] == reachable[:1])
    left = reachable if without else hosts
    more = onward.options(own.get("again") or "", len(hosts), len(left))
    where = Options(cluster=own["cluster"]) if own.get("cluster") and not lost else Options(",".join(left))
    command = command_of("deploy", replace(where, resume=run_dir.name), more)
    result = replace(result, hosts_left=tuple(left) if lost else ())
    first = f"{result.hint}; " if result.hint and not its_own else ""
    if script:
        return replace(result, hint=f"{first}{_room(result)}continue with what it wrote: {command}")
    if lost and hosts[:1] != reachable[:1] and not (copied and reachable):
        return replace(result, hint=f"its checkpoints are on {hosts[0]}; when that host is back: {command}")
    return replace(result, hint=f"{first}resume from its last checkpoint: {command}")


def _room(result: Result) -> str:
    """What comes before the next start where a disk was full: it would only be full again."""
    if result.cause != Cause.DISK_FULL or not result.node:
        return ""
    return f"first free room on {result.node} (`df -h ~` there; `{FAB} clean --hosts {result.node}`), then "


def with_host_paths(text: str, run: str, first: str, own: str = "") -> str:
    """`text` with paths of the run folder in a container replaced by paths on hosts. Other paths stay.

    Checkpoints are on the `first` host, whichever rank names them; every other file is on the rank's host, `own`.
    """
    inside = rf"(?<![\w./-]){re.escape(commands.RUN_IN_CONTAINER)}(?![\w-])(?P<kept>/checkpoints(?![\w-]))?"

    def host_path(match: re.Match[str]) -> str:
        host = first if match["kept"] else own or first
        return f"{host}:~/.muster/runs/{run}{match['kept'] or ''}"

    return re.sub(inside, host_path, text)


def _config(session: Session, run: RunId) -> dict[str, Any]:
    """The trainer's configuration as rank 0 wrote it there; empty if it did not."""
    done = session.run(commands.document(run, "config.json"), check=False)
    return {} if done.code or not done.out else parse_config(done.out)


def parse_config(answer: str) -> dict[str, Any]:
    """Read config.json as the trainer writes it. Raises BadAnswer."""
    return _CONFIG(document(answer, "config.json"), "config.json")


def parse_checkpoints(answer: str) -> dict[RunId, Checkpoint]:
    """The newest checkpoint of each run, from the lines of checkpoints.

    Other folders are skipped. Raises BadAnswer for a line of another form.
    """
    checkpoints: dict[RunId, Checkpoint] = {}
    for line in answer.splitlines():
        match = _CHECKPOINT.fullmatch(line)
        if not match:
            raise BadAnswer("a checkpoint", "a time, a run and a step", line)
        step = _STEP.fullmatch(match[3])
        for run in run_ids([match[2]]):
            if step and (run not in checkpoints or int(step[1]) > checkpoints[run].step):
                checkpoints[run] = Checkpoint(int(step[1]), int(match[1]))
    return checkpoints


def _checkpoints(session: Session) -> dict[RunId, Checkpoint]:
    return parse_checkpoints(session.run(commands.script("checkpoints")).out)
