"""The Python API: what `muster` does on hosts and Slurm, for programs and notebooks: `from muster import Cluster`.

    run = Cluster("gpu-a,gpu-b").deploy("train.py --lr 3e-4")
    print(run.wait().verdict, run.fetch())

It calls what the commands call, so it refuses the same things, as exceptions. It prints nothing unless `show` is set.
"""

from __future__ import annotations

import inspect
import queue
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .core.errors import DETACHED, DONE, FAILED, STOPPED, DeployError, Refused, UsageError
from .core.names import RunId, check_run_id
from .core.text import in_seconds
from .hosts.act import delete, down, stop
from .hosts.look import attach, fetch, logs, status
from .hosts.start import deploy, preflight
from .job import cluster, consent
from .job.inventory import hosts_of_flag
from .job.load import environment_of, known_cluster
from .job.option_words import refuse_blank
from .job.options import FLAG, Options, options_of, row_of
from .job.together import refuse_pairs
from .preflight.request import PreflightRequest
from .report.console import Console
from .report.recorder import Recorder
from .run.files import record
from .slurm import recorded_run
from .slurm import runs as slurm_runs
from .slurm.recorded_run import RecordedRun

__all__ = ["Cluster", "DeployError", "Outcome", "Refused", "Run", "RunFailed", "UsageError"]
Event = dict[str, Any]
_FIELDS = {each.name: each for each in fields(Options)}
# The options that `deploy` below takes, by their Python names.
_IN_PYTHON = {
    row_of(each).python or each.name: each for each in options_of("deploy") if row_of(each).python is not None
}


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `values`: the results of the last evaluation; `event`: everything in outcome.json."""

    verdict: str
    code: int
    message: str
    hint: str
    seconds: float
    folder: Path
    report: Path
    values: Mapping[str, float] = field(default_factory=dict)
    event: Mapping[str, Any] = field(default_factory=dict)


class RunFailed(DeployError):
    """The run failed, or refused its input; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message or outcome.verdict, outcome.hint, outcome.code)
        self.outcome = outcome


class Cluster:
    """Some hosts: `"user@a:port,b"`, a list of such texts, or none for the hosts of cluster.toml.

    That is the file `file`, or cluster.toml in this folder. For a Slurm cluster, give one of its login nodes instead:
    `slurm="user@login:port"`. `allow_folder`: allow what the file asks for, as --allow-folder does; this is printed
    once to standard error.

    Raises UsageError for hosts or a file that cannot be understood, and for a file that is not allowed. The methods
    print nothing else, except with `show=True`: then they print what the command of the same name prints.
    """

    def __init__(
        self,
        hosts: str | Sequence[str] | None = None,
        file: str | Path | None = None,
        *,
        slurm: str | None = None,
        allow_folder: bool = False,
    ) -> None:
        self._gate = consent.ConsentGate(Console, allow_folder, "Cluster(..., allow_folder=True)")
        self._hosts, self._file = _as_option("hosts", hosts), _as_option("file", file)
        self._slurm = _as_option("slurm", slurm)
        refuse_pairs("deploy", Options(self._hosts, self._file, slurm=self._slurm), whole=False)
        asked = hosts_of_flag(self._slurm) if self._slurm else self._inventory().hosts
        self.hosts: tuple[str, ...] = tuple(host.name for host in asked)

    def preflight(self, image: str = "") -> Event:
        """Check whether training would start, and return the verdict. If not, raises Refused with the one cause."""
        asked = preflight.PreflightOptions(PreflightRequest(), proof=True)
        _, verdict = preflight.preflight(self._inventory(), image, asked)
        if not verdict.ok:
            cause = next(iter(verdict.faults), None)
            raise Refused(
                f"preflight: {cause.text}" if cause else "preflight could not tell", cause.fix if cause else ""
            )
        return verdict.json()

    def deploy(self, script: str | Sequence[str] | None = None, *, show: bool = False, **options: Any) -> Run:
        """Start a run, and return as soon as it has started. It takes and refuses the same options as `muster deploy`.

        script: a command as you type it, or its words. options: any option by its Python name (reference/options.md):
        `folder=`, `env={"A": 1}`, `secrets=["TOKEN"]`, `mounts=["/data:/data:ro"]`, `max_hours=2.5`.
        On Slurm the options are those of `muster deploy --slurm`: `nodes=2`, `sbatch="--partition=a"`, `setup=[...]`.
        Raises UsageError, Refused (by preflight), or DeployError with every host that failed; then nothing is running.
        """
        text = script if isinstance(script, str | None) else shlex.join(script)
        asked = replace(self._deploy_options(options), script=_as_option("script", text), detach=True)
        if self._slurm:
            return Run(self, self._submitted(asked, show))
        events = self._recorded(lambda console: deploy.deploy(asked, console), show)
        started = next(event for event in events if event.get("kind") == "started")
        return Run(self, started["run"])

    def run(self, name: str) -> Run:
        """Get a run on these hosts by its id. Raises UsageError for a name that no run can have."""
        if not (run := check_run_id("run", name)):
            raise UsageError("no run is named", "Cluster.runs() lists them")
        return Run(self, run)

    def runs(self) -> list[Event]:
        """List the runs that have a folder or a container on the hosts, as `muster runs --hosts --json` does."""
        return self._recorded(lambda console: status.runs(self._options(), console))

    def status(self) -> list[Event]:
        """List what runs on each host, as `muster status --json` does; a host without an answer has the key `error`."""
        return self._recorded(lambda console: status.status(self._options(), console))

    def gpus(self) -> list[Event]:
        """List who holds which GPU, as `muster gpus --json` does."""
        return self._recorded(lambda console: status.gpus(self._options(), console))

    def down(self, run: str = "all") -> None:
        """Remove the containers of all your runs, or of one run. Files stay. Raises DeployError."""
        named = "" if run == "all" else self.run(run).id
        self._recorded(lambda console: down.down(self._options(named), console))

    def _submitted(self, options: Options, show: bool) -> str:
        # Imported here because nothing else in this API needs it.
        from .commands import slurm

        events = self._recorded(lambda console: slurm.deploy(options, console), show)
        return str(next(event for event in events if event.get("kind") == "submitted")["run"])

    def _inventory(self) -> cluster.Cluster:
        """The hosts and their job. Raises UsageError as `_options` does."""
        with consent.asking(self._gate):
            return known_cluster(self._options())

    def _recorded(self, work: Callable[[Recorder], int], show: bool = False) -> list[Event]:
        """Do a piece of work and return its events. Raises what the work raises."""
        events: list[Event] = []
        with consent.asking(self._gate):
            work(Recorder(events.append, show))
        return events

    def _options(self, run: str = "") -> Options:
        """The options with the hosts and a run. Raises UsageError for a Slurm cluster: Slurm chooses its nodes."""
        if self._slurm and run:
            raise UsageError("not for a run on Slurm", "Run has wait, follow, stop and fetch there")
        if self._slurm:
            raise UsageError("a cluster of Slurm has no hosts of ours", "squeue and sinfo, on the login node")
        return Options(self._hosts, self._file, run)

    def _deploy_options(self, given: Mapping[str, Any]) -> Options:
        """The options of `muster deploy` from their Python names. Raises UsageError for an unknown option."""
        spelled = {each.name: each for each in _IN_PYTHON.values()} | _IN_PYTHON
        if strange := sorted(given.keys() - spelled):
            raise UsageError(f"deploy() has no option {strange[0]}", f"there are: {', '.join(sorted(_IN_PYTHON))}")
        read = {spelled[name].name: _as_option(name, value, spelled[name]) for name, value in given.items()}
        options = replace(Options(slurm=self._slurm) if self._slurm else self._options(), **read)
        refuse_pairs("deploy", options, whole=False)
        return options


def _signature() -> inspect.Signature:
    """The signature that `help(Cluster.deploy)` and a notebook show."""
    *own, _ = inspect.signature(Cluster.deploy).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(name, keyword, default=each.default) for name, each in _IN_PYTHON.items()]
    return inspect.Signature([*own, *more], return_annotation="Run")


setattr(Cluster.deploy, "__signature__", _signature())  # noqa: B010


class Run:
    """A run on hosts or Slurm, with its `id`. It does not depend on this process; `Cluster.run(id)` finds it again."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.id = cluster, name
        self._outcome: Outcome | None = None

    def __repr__(self) -> str:
        return f"<Run {self.id} on {', '.join(self.cluster.hosts)}>"

    def wait(
        self,
        timeout: float | None = None,
        *,
        each: Callable[[Event], None] | None = None,
        check: bool = True,
        show: bool = False,
    ) -> Outcome:
        """Follow the run to its end, and remove its containers. each: is called with every event (contract.md).

        Raises RunFailed for a failed run (not with check=False), DeployError, TimeoutError after `timeout` seconds, and
        KeyboardInterrupt after Ctrl-C. After the last two, the run continues.
        """
        if not self._outcome:
            until = None if timeout is None else time.monotonic() + timeout
            self._follow(each or (lambda event: None), lambda: until is not None and time.monotonic() > until, show)
            if not self._outcome:
                if timeout is not None and until is not None and time.monotonic() > until:
                    raise TimeoutError(f"{self.id} still runs after {in_seconds(timeout)}")
                raise KeyboardInterrupt(f"{self.id} continues")
        if check and self._outcome.code not in (DONE, STOPPED):
            raise RunFailed(self._outcome)
        return self._outcome

    def follow(self) -> Iterator[Event]:
        """Yield the run's events as they arrive, until its end. If the reader stops, the run continues."""
        return _streamed(self._follow)

    def logs(self, rank: int | None = None, since: str | None = None, follow: bool = False) -> Iterator[Event]:
        """Yield what the ranks print, in time order: `host`, `rank`, `t`, `line`. Raises UsageError, DeployError."""
        if self.cluster._slurm:
            raise UsageError("logs(): not for a run on Slurm", "follow() has rank 0's lines, fetch() brings logs/")
        about = {"rank": _as_option("rank", rank), "since": _as_option("since", since)}
        options = replace(self._options, **about, follow=follow)

        def work(tell: Callable[[Event], None], over: Callable[[], bool]) -> None:
            faults = []
            console = Recorder(lambda event: faults.append(event) if _is_fault(event) else tell(event), over=over)
            if logs.logs(options, console) == FAILED and faults:
                raise DeployError(faults[0]["message"], faults[0]["hint"])

        return (event for event in _streamed(work) if "line" in event)

    def stop(self, now: bool = False) -> None:
        """Stop the run: its script gets SIGTERM, and Muster's trainer writes a checkpoint. now: kill it instead.

        Raises DeployError.
        """
        if slurm_run := self._on_slurm:
            self.cluster._recorded(lambda console: slurm_runs.stop(slurm_run, now, console))
        else:
            self.cluster._recorded(lambda console: stop.stop(self._options, now, console))

    def fetch(self, only: str | Sequence[str] = ()) -> Path:
        """Copy what the run wrote to this machine, and return its folder. only: patterns, such as 'work/*.pt'.

        Raises DeployError with every host that failed.
        """
        patterns: tuple[str, ...] = _as_option("only", only)
        with consent.asking(self.cluster._gate):
            if slurm_run := self._on_slurm:
                return slurm_runs.fetch(slurm_run, patterns, Recorder(lambda event: None))
            return fetch.fetch(replace(self._options, only=patterns), Recorder(lambda event: None))

    def delete(self) -> None:
        """Remove the run and its files from the hosts. Raises DeployError."""
        self.cluster._recorded(lambda console: delete.delete(self._options, console))

    @property
    def folder(self) -> Path:
        """The run's folder on this machine."""
        if slurm_run := self._on_slurm:
            return slurm_run.run_dir
        return record.folder_of(RunId(self.id))

    @property
    def _on_slurm(self) -> RecordedRun | None:
        """The run's record, if the cluster is Slurm's. Raises UsageError if this folder has no record of the run."""
        if not self.cluster._slurm:
            return None
        if slurm_run := recorded_run.find(self.id):
            return slurm_run
        raise UsageError(f"{self.id}: no record of such a run on Slurm here", "start Python where you deployed it")

    @property
    def _options(self) -> Options:
        return self.cluster._options(self.id)

    def _follow(self, tell: Callable[[Event], None], over: Callable[[], bool], show: bool = False) -> None:
        """Follow the run until it ends or `over` returns True, and keep its outcome."""

        def hear(event: Event) -> None:
            if event.get("kind") == "result":
                self._outcome = self._ended(event)
            tell(event)

        console = Recorder(hear, show, over)
        on_slurm = self._on_slurm
        with consent.asking(self.cluster._gate):
            code = slurm_runs.attach(on_slurm, "", console) if on_slurm else attach.attach(self._options, console)
        if not self._outcome and code != DETACHED:
            raise DeployError(f"{self.id} ended with code {code} and left no outcome")

    def _ended(self, event: Event) -> Outcome:
        texts = {name: str(event.get(name) or "") for name in ("verdict", "message", "hint")}
        report = self.folder / "report.html"
        values = event.get("values") or {}
        return Outcome(
            **texts,
            code=event["code"],
            seconds=event["seconds"],
            folder=self.folder,
            report=report,
            values=values,
            event=event,
        )


def _as_option(name: str, value: Any, each: Any = None) -> Any:
    """A value in the form of `Options`: a text, several texts, or a switch, like the option's default.

    Only None means that it is not given. Raises UsageError for an empty text, as the commands do.
    """
    each = each or _FIELDS[{"file": "cluster"}.get(name, name)]
    usual = each.default
    if value is None:
        return usual
    if isinstance(value, Mapping):
        return _environment(value)
    if isinstance(usual, bool):
        return bool(value)
    several = isinstance(usual, tuple) or row_of(each).commas
    listed = several and not isinstance(value, str | Path)
    texts = tuple("" if item is None else str(item) for item in (value if listed else (value,)))
    refuse_blank(name, texts if texts or isinstance(usual, tuple) else [""])
    return texts if isinstance(usual, tuple) else ",".join(texts)


def _environment(variables: Mapping[str, str | int | float]) -> tuple[str, ...]:
    """The variables in the form of --env. Raises UsageError for a value that --env would read as two variables."""
    texts = tuple(f"{name}={value}" for name, value in variables.items())
    due = {name: str(value) for name, value in variables.items()}
    for name, value in environment_of(Options(env=texts)).items():
        if due.get(name) != value:
            raise UsageError(
                f"env {name}: it contains `,NAME=`, which {FLAG.env} takes for another variable", "use a file"
            )
    return texts


def _is_fault(event: Event) -> bool:
    return event.get("kind") == "error"


def _streamed(work: Callable[[Callable[[Event], None], Callable[[], bool]], None]) -> Iterator[Event]:
    """Yield the events of work that is done in a thread; the work ends soon after the reader has stopped."""
    events: queue.Queue[Event | BaseException | None] = queue.Queue(10_000)
    unread = threading.Event()

    def tell(event: Event | BaseException | None) -> None:
        while not unread.is_set():
            with suppress(queue.Full):
                events.put(event, timeout=0.5)
                break

    def run() -> None:
        try:
            work(tell, unread.is_set)
            tell(None)
        except BaseException as failed:
            tell(failed)

    threading.Thread(target=run, daemon=True, name="muster-follow").start()
    try:
        while (event := events.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        unread.set()
