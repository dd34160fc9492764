"""One whole `make up`: choose the number of nodes, then look, plan, start, follow and record, in this order.

Whatever happens, it ends the same way: nothing of the run is left running, and the run folder records how it ended.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..core.errors import DeployError, EngineLost, UsageError
from ..core.facts import EngineFacts
from ..core.names import RunId, run_ids
from ..engine import client
from ..job import consent, script_file, secrets
from ..job import script as typed
from ..job.allowed import other_owner
from ..job.cluster import Cluster
from ..job.consent import Wish
from ..job.load import (
    environment_of,
    folder_to_send,
    job_of,
    read_command,
    read_run,
    read_what_runs,
    refuse_nested_data,
    refuse_nested_keeps,
    refuse_no_folder,
    trainer_words,
    value_of,
    with_roles_of_file,
)
from ..job.option_words import words_again
from ..job.options import FLAG, Job, Options
from ..job.together import refuse_pairs
from ..job.values import Gpus, visible_gpus
from ..report import ending, folder_notes
from ..report import packages as packages_shown
from ..report.console import Console
from ..report.interrupts import Interrupts
from ..report.script_lines import shown_ranks
from ..run import environment, follow, roles
from ..run.events import Event
from ..run.files import folders, locks, record, resumable, timeline
from ..run.files.folders import display_path
from ..run.follower import Follower
from ..run.outcome import Result
from ..run.progress import State
from ..run.start import Start, asked_ends, start_run
from ..send.folder import folder_look, repository
from ..send.folder.credentials import send_choice_of
from . import attach, backends, plan, processes, script, witness
from . import gpus as local_gpus
from . import machine as observe

DEFAULT_WORKERS = 2
# A disk with less free space than this (in bytes) counts as full: each node frees a little when it ends.
_FULL = 4 << 20


@dataclass(frozen=True)
class _Request:
    """The parsed options. `own`: those about a script. `notes`: which parts of the typed command are not used."""

    choice: record.Choice
    workers: int
    own: environment.Script
    notes: tuple[str, ...]
    gpus: Gpus
    least: int
    ends: Mapping[str, str]
    planned: tuple[roles.PlannedRole, ...] = ()


def up(options: Options, console: Console) -> int:
    """Train to the end; return the exit code. Raises DeployError for faults before the first node starts."""
    with Interrupts(console, "starting the run", "nothing of the run is left", detaches=False) as interrupts:
        return start_run(_OnThisMachine(options, console, interrupts), interrupts.hold)


class _OnThisMachine(Start[backends.LocalBackend]):
    """A run on this machine. What it holds (the run's lock, its port, its GPUs), it holds until the end."""

    def __init__(self, options: Options, console: Console, interrupts: Interrupts) -> None:
        self._options, self._console, self._interrupts = options, console, interrupts
        self._held = ExitStack()

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Read the options, look at the script's folder, and choose where the nodes run."""
        console = self._console
        self._options, self._asked = _read(self._options)
        options, asked, script_words = self._options, self._asked, self._asked.choice.arguments
        self._ranks, self.resumed = shown_ranks(options.rank), bool(asked.choice.run_dir)
        for note in asked.notes:
            console.note(note)
        job = job_of(options, Job())
        self._hidden, self._sending = secrets.read_values(job.secrets), send_choice_of(Cluster((), job))
        self._in_files = tuple(secret.name for secret in job.secrets if secret.as_file)
        self._folder, look, self._needs = None, None, None
        if asked.choice.script:
            self._folder = folder = folder_to_send(options, Cluster((), Job())) or Path()
            for each in asked.planned:
                with roles.named(each.role.name):
                    folder_to_send(replace(options, script=shlex.join(each.words)), Cluster((), Job(folder=folder)))
            look = folder_look.look_at(folder, self._sending)
            folder_look.refuse_unsent(look, folder, script_file.file_of(script_words))
            folder_notes.tell(look, console)
            about = options.requirements, folder, look, console, script_words
            self._needs = packages_shown.read_requirements(*about)
        self.code = repository.look(self._folder, self._sending, look) if self._folder else None
        nodes = 1 + asked.workers
        self._named = visible_gpus({**os.environ, **asked.own.own})
        self._gpus = local_gpus.count_gpus(asked.gpus, self._named) if self._folder else 0
        plan.check_ranks(asked.own.asked, self._gpus, nodes)
        self._choice, self._engine = choose_backend(options.backend, self._gpus, nodes)
        self._kind = backends.BACKENDS[self._choice.name]
        if not self._kind.in_containers:
            _refuse_strangers(_code(self._folder, script_words))
        elif self._folder:
            targets = [data.target for data in value_of(options, "data")]
            folder_look.refuse_linked(self._folder, script_file.file_of(script_words), targets)
        refuse_pairs("up", replace(options, backend=self._choice.name))
        with self._held:
            yield

    def choose_folder(self) -> Path:
        """Choose the run's folder, and hold its lock; also take the run's port and GPUs."""
        options, asked, here = self._options, self._asked, self._kind.meets_on_machine
        if asked.choice.run_dir:
            self._hold(asked.choice.run_dir)
        self._port = self._choose_port() if here else environment.MASTER_PORT
        self._uuids: tuple[str, ...] = ()
        if self._gpus and here:
            what = options.run or environment.script_name(asked.choice.arguments)
            own = local_gpus.claim_gpus(asked.gpus, what, self._named)
            self._held.callback(own.release)
            if asked.gpus != "auto" or self._named is not None:
                self._console.note(f"GPU {', '.join(str(gpu.index) for gpu in own.gpus)}")
                self._uuids = tuple(gpu.uuid for gpu in own.gpus)
        return asked.choice.run_dir or self._hold(self._make_folder())

    def _hold(self, run_dir: Path) -> Path:
        """Hold the lock of a run's folder, and return the folder. Raises DeployError if the run is still running."""
        taken = locks.hold_run(run_dir)
        if taken:
            self._held.callback(taken.release)
        if taken is None or run_dir.name in backends.running(folders.RUNS, self._engine):
            attach, stop = (f"`muster {task} {run_dir.name}`" for task in ("attach", "stop"))
            hint = f"follow it: {attach}; or stop it with {stop}, then type this command again"
            raise DeployError(f"{run_dir.name} is still running", hint)
        return run_dir

    def _make_folder(self) -> Path:
        name, choice, in_docker = self._options.run, self._asked.choice, self._choice.name == "docker"
        taken = client.run_ids() if self._engine.answers and not name else frozenset()
        # Another command may start a run of this name in another folder right now, and containers are named after their
        # run.
        mark = token_hex(2) if in_docker else ""
        return record.new_folder(name, choice.arguments, choice.script, taken, mark)

    def _choose_port(self) -> int:
        """A free port that no other run has claimed. This run holds it until its end."""
        first = environment.MASTER_PORT
        taken: Collection[int] = observe.busy_ports(range(first, first + plan.PORTS_TO_TRY))
        while True:
            port = plan.choose_port(first, taken)
            if claim := locks.hold_port(port):
                self._held.callback(claim.release)
                if port != first:
                    self._console.note(f"port {first} is in use: the nodes meet on {port}")
                return port
            taken = {*taken, port}

    @contextmanager
    def open_backend(self, run_dir: Path) -> Iterator[backends.LocalBackend]:
        """Make the nodes' backend, after bringing the script's folder and packages into the run's folder."""
        asked, console = self._asked, self._console
        own = None
        if self._folder:
            with _new_folder_undone(run_dir, asked.choice):
                own = self._bring(self._folder, run_dir)
        machine, choice = observe.machine(), asked.choice
        about = (machine.cores, machine.system)
        if asked.planned and own:
            run = self._with_roles(run_dir, own, *about)
        else:
            run = environment.local_spec(
                run_dir, choice.start, asked.workers, choice.arguments, self._port, *about, own
            )
        if hours := value_of(self._options, "max_hours"):
            run = run.with_variables({environment.MAX_HOURS: hours})
        run = run.with_variables(asked.ends)
        if asked.least:
            run = run.grouped(asked.least, observe.free_ports(1 + asked.workers), token_hex(16))
        self._run = run
        if self.resumed:
            console.note(f"resuming in {display_path(run_dir)}, start {asked.choice.start}")
            if other := resumable.describe_other_script(run_dir, asked.choice.arguments, self._options.folder):
                console.warn(other)
        backend = self._kind(run)
        backend.say = console.note
        self._held.callback(backend.clean)
        self._state = State(run.names, script=asked.choice.script, least=asked.least, roles=roles.by_node(run))
        self._follower = Follower(run_dir)
        yield backend

    def _with_roles(self, run_dir: Path, own: environment.Script, cores: int, system: str) -> environment.RunSpec:
        """The nodes of all roles. The GPUs are shared among the nodes."""
        asked = self._asked
        total = sum(each.role.nodes for each in asked.planned)
        ports = observe.free_ports(total + len(asked.planned))
        planned = roles.with_ports(asked.planned, (port for _, port, _ in ports[total:]))

        def make(world: roles.PlannedRole, port: int, ranks: int) -> environment.RunSpec:
            script = replace(own, gpus=0, asked=ranks, restarts=world.restarts, bare=world.bare)
            about = (port, max(1, cores * world.role.nodes // total), system, script)
            return environment.local_spec(run_dir, asked.choice.start, world.role.nodes - 1, world.words, *about)

        shares = environment.shares([each.role.gpus for each in planned for _ in each.nodes], own.gpus)
        nodes = roles.on_this_machine(planned, ports[:total], shares, token_hex(16), make)
        given = tuple(
            replace(node, environment=node.environment | own.given(share, total))
            for node, share in zip(nodes, shares, strict=True)
        )
        about = run_dir.name, run_dir, asked.choice.start, (environment.SCRIPT, *asked.choice.arguments), given
        return environment.RunSpec(*about, replace(own, nodes=total))

    def _bring(self, folder: Path, run_dir: Path) -> environment.Script:
        """Copy the script's folder into the run's folder, and install its packages."""
        kind, asked = self._kind, self._asked
        script.copy_to_run(folder, run_dir, self._sending)
        own = kind.script(asked.own, run_dir, self._gpus, 1 + asked.workers)
        own = own if self._options.no_cache else kind.with_caches(own)
        for target, source in () if kind.in_containers else own.data.items():
            self._console.note(
                f"without a container, {target} is at {source}: the variable {environment.DATA} holds that path"
            )
        packages = kind.install(self._needs, run_dir, self._console) if self._needs else None
        return replace(own, secrets=self._hidden, secret_files=self._in_files, uuids=self._uuids, packages=packages)

    def record_start(self, backend: backends.LocalBackend) -> dict[str, bytes]:
        """Record this start in the run's folder. The time for building the image does not count."""
        asked, run = self._asked, self._run
        again: dict[str, Any] = {"again": shlex.join(words_again(self._options))}
        if asked.planned:
            again |= {"roles": list(self._options.role), "role_of": roles.by_node(run)}
        if asked.choice.script:
            again["sent_from"] = resumable.sent_from(self._options.folder, run.run_dir.parent)
        where, why = self._choice.name, self._choice.why
        self._before = record.open_start(run.run_dir, asked.choice, where, why, run.names, time.time(), again)
        return self._before

    def tell_started(self, backend: backends.LocalBackend) -> None:
        """Start the witness of the run's end."""
        witness.start(self._run, self._options.on_end)

    def follow(self, backend: backends.LocalBackend) -> int:
        """Follow the run to its end, and leave nothing of it but its folder."""
        run, state, console = self._run, self._state, self._console
        result = self._follow_nodes(backend)
        with suppress(DeployError):  # without an engine there are no consoles to read
            backend.collect_logs()
        backend.clean()
        if left := [str(process.pid) for process in processes.labelled(run.run_dir)]:
            console.warn(
                "processes of this run were killed but have not ended: a driver or a file server may hang: ps "
                f"-o pid,stat,wchan:30,args -p {','.join(left[:9])}"
            )
        if shutil.disk_usage(run.run_dir).free < _FULL:
            console.warn(
                f"the disk of {display_path(run.run_dir)} is full: output of ranks may be missing from its logs"
            )
        if result.verdict == "refused" and not state.ranks.views:
            record.undo_start(run.run_dir, self._before)
            raise DeployError(result.message, result.hint, result.code)
        result = attach.local_result(result, state, run.run_dir)
        sent = (self._folder, self._sending) if self._folder else None
        end = ending.write(run.run_dir, result, state, console, sent=sent)
        return ending.show(run.run_dir, end, console)

    def _follow_nodes(self, backend: backends.LocalBackend) -> Result:
        run, state = self._run, self._state
        what = environment.what_runs(run.arguments[bool(run.script) :], bool(run.script))
        try:
            with self._console.following(state, what, self._choice.why, self._ranks) as tell:

                def tell_and_keep(events: list[Event]) -> None:
                    tell(events)
                    timeline.keep(run.run_dir, state.story)

                return follow.follow(
                    backend,
                    self._follower,
                    state,
                    tell_and_keep,
                    self._interrupts.requests,
                    self._interrupts.take_passed,
                )
        except EngineLost as fault:
            # Containers may survive an interruption of their engine. A resume then would be a second start in the same
            # folder.
            hint = f"once Docker is back: `muster down`, then `muster up {FLAG.resume} latest`"
            return Result("failed", fault.message, hint, step=state.step)
        except DeployError as fault:
            return Result("failed", fault.message, fault.hint)


@contextmanager
def _new_folder_undone(run_dir: Path, choice: record.Choice) -> Iterator[None]:
    """If something fails or is interrupted before the start, remove a new run folder; that of a resumed run stays."""
    try:
        yield
    except BaseException:
        if not choice.run_dir:
            with suppress(OSError):
                record.undo_start(run_dir, {})
        raise


def _code(folder: Path | None, arguments: Sequence[str]) -> tuple[Path, ...]:
    """The folders with code that is not Muster's: the script's, or that of the user's own recipe."""
    if folder:
        file = script_file.file_of(arguments)
        return (folder, (folder / file).parent) if file else (folder,)
    named = environment.mounted(arguments, Path.cwd())[1]
    return tuple(path.parent for path in named if path.suffix == ".py")


def choose_backend(wanted: str, gpus: int = 0, nodes: int = 1) -> tuple[plan.BackendChoice, EngineFacts]:
    """Choose where the nodes run; return the choice, and what is known about the engine."""
    facts = _engine(wanted or ("processes" if gpus else "auto"))
    return plan.choose_backend(wanted, facts, backends.BACKENDS, gpus, nodes), facts


def _refuse_strangers(code: Sequence[Path]) -> None:
    """Raise UsageError if code of another user would run as this user, who has not allowed it."""
    for folder in code:
        if owner := other_owner(folder):
            words = f"of {owner}, who owns this folder, runs on this machine as you, and can do what you can"
            consent.require(folder, [Wish("script", words)], "muster up")


def _read(options: Options) -> tuple[Options, _Request]:
    """Parse the options, and add the folder of a recorded script. Raises UsageError."""
    # In the checkout, `make up` without a script shows Muster's own trainer.
    options = read_what_runs(with_roles_of_file(options), demo=folders.IN_CHECKOUT and not options.folder)
    options, command = read_command(options)
    choice = _choice(options, command)
    if choice.run_dir and not options.backend:  # the files that it wrote fit the backend it ran on
        options = replace(options, backend=record.own_fields(choice.run_dir).get("backend", ""))
    if choice.run_dir and choice.script and not options.script and not options.folder:
        options = replace(options, folder=resumable.folder_of(choice.run_dir))
    if choice.run_dir and choice.script and not options.role:
        options = replace(options, role=tuple(record.own_fields(choice.run_dir).get("roles") or ()))
    planned = roles.read(options, ())
    # The run to continue is known now: its record tells whether there is a script.
    options = replace(options, resume="", script=shlex.join(choice.arguments) * choice.script)
    refuse_pairs("up", options)
    paths, data = tuple(dict.fromkeys(value_of(options, "keep"))), value_of(options, "data")
    refuse_nested_keeps(paths, ())
    refuse_nested_data(data, paths)
    refuse_no_folder(data)
    # A user's script gets one node unless the user asks for more: it may not support several nodes.
    usual = (command.nodes or 1) - 1 if choice.script else DEFAULT_WORKERS
    workers = value_of(options, "workers")
    if planned:
        workers = sum(each.role.nodes for each in planned) - 1
    elif workers is None:
        workers = usual if choice.workers is None else choice.workers
    command.refuse_nodes(1 + workers, f"give only one of the two: {FLAG.workers} {workers} means {1 + workers} nodes")
    gpus = plan.check_gpus(options.gpus, options.backend)
    own, ranks = environment.asked_style(options.style), value_of(options, "nproc")
    given = environment_of(options)
    own |= given | ({environment.SEPARATE: "1"} if options.separate else {})
    least = environment.asked_least(options.min_nodes, 1 + workers, choice.arguments, choice.script)
    asked = environment.Script(
        "",
        observe=not options.no_observe,
        asked=None if ranks == "auto" else ranks,
        restarts=value_of(options, "restarts") or 0,
        keep=paths,
        own=own,
        bare=choice.bare and not options.nproc,
        data={each.target: str(each.source.resolve()) for each in data},
    )
    ends = asked_ends(value_of(options, "grace"), value_of(options, "restart_with"))
    return options, _Request(choice, workers, asked, command.notes, gpus, least, ends, planned)


def _engine(wanted: str) -> EngineFacts:
    """The facts about the engine, if the wanted backend may be containers."""
    if wanted == "auto" and not backends.has_build(folders.CHECKOUT):
        return EngineFacts(answers=False, reason="only Muster's checkout has containers for this machine")
    return client.find_engine() if wanted in ("auto", "docker") else EngineFacts(answers=False)


def _choice(options: Options, command: typed.ScriptCommand) -> record.Choice:
    """Choose what to run. --run gives the name of a new run, or of a run of this script to continue."""
    resume = options.resume
    wanted = resumable.WantedRun(command.words, options.folder, trainer_words(options))
    name = read_run(options.run)
    if name and record.path_of(RunId(name)).exists():
        if resume or not options.script:
            raise UsageError(f"--run {name}: a run of this name exists already", f"continue it: --resume {name}")
        resumable.refuse_other(record.path_of(RunId(name)), command.words, options.folder)
        resume = name
    named = next(iter(run_ids([resume])), None)
    if named and resume != "latest" and record.path_of(named).is_dir():
        resume = str(record.path_of(named))
    return resumable.choose(resume, wanted, command.bare)
