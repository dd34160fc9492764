"""The whole of one `muster deploy`: look, plan, start, follow.

Until the run has started, any failure cleans up every host (run/start.py). After that the run no longer needs this
process (hosts/look/attach.py).
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ...core.errors import UsageError
from ...core.names import RunId, node_of
from ...core.text import duration
from ...door.session import Session, on_all, open_all
from ...host import run_user
from ...job import secrets as secret_settings
from ...job.cluster import Cluster
from ...job.load import (
    environment_of,
    fill_from_file,
    folder_to_send,
    load_cluster,
    read_command,
    read_run,
    read_what_runs,
    script_words,
    trainer_words,
    value_of,
)
from ...job.options import Options
from ...job.secrets import refuse_open_secrets, secrets_of
from ...job.together import refuse_pairs
from ...report.console import Console
from ...report.interrupts import Interrupts
from ...report.script_lines import shown_ranks
from ...run import environment, roles
from ...run.files import folders, record, resumable
from ...run.lost_host import patience_s
from ...run.start import Start, asked_ends, start_run
from ...run.state.times import CLOCKS_DIFFER_S
from ...send.folder import repository
from ...send.folder.credentials import send_choice_of
from ...send.folder.folder_look import FolderLook, looks_at_data
from ...send.image.model import tag_of
from ...send.image.push import Pushed
from .. import which_run
from ..backend import RunHandle
from ..look import attach
from ..node import bare, container, group, overlay, overlay_plan, packages, sent_folders
from ..node.container import Work
from . import meeting, observe, plan, resume
from . import push as deploy_push
from .gpu_claims import GpuClaims, planned_choices, sessions_with_gpus, with_choice
from .new_run import DeployRequest, NewRun

_OWN_FILES = (
    "--restarts: no folder is sent, so the script runs in the image's own folder, which the hosts do not share: "
    "send a folder with the script, or --mount one that the hosts share"
)


def deploy(options: Options, console: Console) -> int:
    """Start the run on all hosts; returns the exit code. Raises DeployError with every host that failed."""
    with Interrupts(console, "reading the options", "nothing was changed") as interrupts:
        return start_run(_OnHosts(options, console, interrupts), interrupts.hold)


class _OnHosts(Start[NewRun]):
    """A run on real hosts. `_load` reads what the user asked for; `_look` makes the request from that and the facts."""

    def __init__(self, options: Options, console: Console, interrupts: Interrupts) -> None:
        self._options, self._console, self._interrupts = options, console, interrupts
        self._name = read_run(options.run)
        self.dry_run, self.detach = options.dry_run, options.detach

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Open a connection to each host, and look at what it has."""
        cluster, work = self._load()
        self._interrupts.at("connecting")
        with open_all(cluster.hosts) as opened:
            self._interrupts.at("looking at the hosts")
            self._request = self._look(cluster, work, list(opened.all().values()))
            yield

    def _load(self) -> tuple[Cluster, Work]:
        """Read the options, the command and its folder."""
        console, self._resumes = self._console, bool(self._options.resume)
        options, self._continues = resume.run_to_continue(read_what_runs(fill_from_file(self._options)))
        before = record.path_of(self._continues) if self._continues else None
        if before and not options.role:
            options = replace(options, role=tuple(record.own_fields(before).get("roles") or ()))
        options, self._command = read_command(options, self._options)
        for note in self._command.notes:
            console.note(note)
        if before and (other := resumable.describe_other_script(before, self._command.words, options.folder)):
            console.warn(other)
        cluster, self._ranks = load_cluster(options), shown_ranks(options.rank)
        refuse_pairs("deploy", options, cluster.job)
        if cluster.job.grace:  # a stop reads it from the record, wherever the user set it
            options = replace(options, grace=f"{cluster.job.grace:g}s")
        for variable, value in environment.asked_style(options.style).items():
            options = replace(options, style="", env=(*options.env, f"{variable}={value}"))
        self._command.refuse_nodes(len(cluster.hosts), "leave out --nnodes: the run has one node on each host")
        deploy_push.refuse_mixed(cluster)
        # A number of ranks given on the command line or in cluster.toml asks for torchrun.
        bare = self._command.bare and cluster.job.processes == "auto"
        work, folder = replace(_work(options, cluster), bare=bare), folder_to_send(options, cluster)
        work = replace(work, roles=roles.read(options, [host.name for host in cluster.hosts], cluster.job.processes))
        cluster = replace(cluster, hosts=roles.with_gpus(cluster.hosts, work.roles))
        for acted in work.roles:
            with roles.named(acted.role.name):
                folder_to_send(replace(options, script=shlex.join(acted.words)), cluster)
        cluster = overlay_plan.asked(cluster, work.token)
        choice = send_choice_of(cluster)
        look, self._data = FolderLook(folder, choice) if folder else None, looks_at_data(cluster.job.data, choice)
        targets = (*(mount.target for mount in cluster.mounts), *(data.target for data in cluster.job.data))
        deploy_push.look_through(look, work.script, console, targets)
        self._needs = packages.asked(cluster, look, console, work.script) if work.script else None
        self.code = repository.look(folder, choice, look.result()) if folder and look else None
        if work.restarts and not folder and len(cluster.hosts) > 1 and not cluster.job.mounts:
            console.warn(_OWN_FILES)
        self._options, self._folder, self._choice = options, folder, choice
        return cluster, work

    def _look(self, cluster: Cluster, work: Work, sessions: Sequence[Session]) -> DeployRequest:
        """Make the request from the hosts' facts. Raises DeployError if the hosts cannot run it."""
        options, console = self._options, self._console
        hosts = observe.reached(cluster, sessions, options.dry_run)
        facts = hosts.facts
        bare.look(hosts, console)
        observe.refuse_missing(sessions, cluster.job)
        base = deploy_push.base_of(options, hosts, console, not work.script)
        tag = tag_of(base, self._folder)
        if self._continues:
            work = replace(work, start=resume.next_start(self._continues, hosts, self._resumes, console.warn))
        hosts, who = run_user.choose_uid(hosts, self._continues or "")
        ports = plan.choose_ports(list(facts.values()), group.PORTS, 2) if work.least else ()
        work = replace(work, image=tag, sent=self._folder is not None, observe=not options.no_observe, ports=ports)
        about = (hosts.cluster, sessions, facts, base, tag, self._folder, self._choice, self._needs, self._data)
        request = DeployRequest(*about, work=work, force=options.force, wait=options.wait)
        if cluster.job.overlay:
            network = overlay_plan.planned(work.token, overlay.look(sessions), facts)
            work = replace(work, overlay=network.socket)
            request = replace(request, overlay=network, facts=network.on(facts), work=work)
        # Report the user of the run's processes, unless one and the same ordinary user logs in on all hosts.
        uids = {fact.uid for fact in facts.values() if not fact.bare}
        if len(uids) > 1 or 0 in uids:
            console.note(f"the run's processes run {who}")
        console.data({"kind": "user", "text": who})
        return request

    def show_plan(self) -> None:
        """Print the steps, the reasons and the commands for each host."""
        _dry_run(self._request, self._name or self._continues or "RUN", self._console)

    def choose_folder(self) -> Path:
        """Choose the local run folder; also make the folders on the hosts that the run's nodes mount."""
        request, work = self._request, self._request.work
        made = observe.make_folders(request, bool(work.script)).all()
        for host, paths in made.items():
            for path in paths:
                self._console.note(f"{host}: made {path}")
        which_run.refuse_foreign(self._name, request.containers_by_host)
        if self._continues:
            self.resumed = True
            return record.folder_of(self._continues)
        taken = frozenset[str]().union(*(fact.runs for fact in request.facts.values()))
        if self._name:
            record.folder_of(RunId(self._name))  # the local folder may belong to another machine's run
        words = work.script or work.arguments
        return record.new_folder(self._name, words, bool(work.script), taken, secrets.token_hex(2))

    @contextmanager
    def open_backend(self, run_dir: Path) -> Iterator[NewRun]:
        """Yield the nodes, with the places on the hosts' GPUs that are held for them."""
        request, work = self._request, self._request.work
        running = self._name or (run_dir.name if self.resumed else environment.script_name(work.script))
        names = {host.name: node_of(host.name) for host in request.cluster.hosts}
        hidden = (lambda: work.secrets) if work.secrets else None
        since = time.time() - CLOCKS_DIFFER_S if self.resumed else 0.0
        wait_lost_s, command = patience_s(request.job.wait_lost), work.script or work.arguments
        about = (run_dir, names, bool(work.script), command, self.resumed, hidden, since, wait_lost_s)
        role_of = {str(names[host]): each.role.name for each in work.roles for host in each.role.hosts}
        handle = RunHandle(*about, least=work.least, roles=role_of)
        with GpuClaims(request, running, work.token, request.wait) as gpu_claims:
            yield NewRun(request, handle, gpu_claims, self._console, self._interrupts)

    def record_start(self, backend: NewRun) -> dict[str, bytes]:
        """Write this start into the run's folder, with the options that the next start repeats."""
        handle, options, command = backend.run, self._options, self._command
        script = {"sent_from": resumable.sent_from(options.folder, folders.RUNS), "bare": command.bare}
        fields = {
            **resume.resume_fields(options),
            **(script if command.words else {}),
            "gpus": backend.gpus,
            "wait_lost_s": handle.wait_lost_s,
            "least": handle.least,
            **({"roles": list(options.role), "role_of": dict(handle.roles)} if options.role else {}),
        }
        return attach.open_record(handle, [host.destination for host in self._request.cluster.hosts], fields)

    def tell_started(self, backend: NewRun) -> None:
        """Report that the run runs, or waits, on its hosts; with --detach, also print the command that follows it."""
        run, where = backend.run.run_dir.name, ", ".join(backend.run.nodes)
        waiting = f"{run} waits on {where}: its nodes start by themselves; this machine may sleep"
        image = f", with image {self._request.image}" * (not bare.are_all_bare(self._request.facts))
        self._console.note(waiting if backend.waits else f"{run} runs on {where}{image}")
        self._console.data({"kind": "started", "run": run, "nodes": dict(backend.run.nodes), "waits": backend.waits})
        if self.detach:
            self._console.note(f"follow it: muster attach {backend.run_options}")
            self._console.line(run)

    def follow(self, backend: NewRun) -> int:
        """Follow the run until it ends, or the user leaves it."""
        sent = (self._folder, self._choice) if self._folder else None
        return attach.follow_until_done(backend, self._console, self._interrupts, self._ranks, sent)


def _dry_run(request: DeployRequest, run_id: str, console: Console) -> None:
    """Print the plan: the steps, the reasons and the commands for each host."""
    asked = sessions_with_gpus(request)
    for session in request.sessions:
        for mount in container.mounts(session.host, request.job):
            if mount.create:
                console.note(f"{session.name}: would make {mount.source} if it is missing")
    choices = planned_choices(asked, on_all(asked, observe.gpus_of).all())
    for host, choice in choices.items():
        if choice.taken:
            then = "its nodes would wait" if request.wait else "a deploy would be refused now; with --wait, it waits"
            console.warn(f"{host}: {choice.taken}: {then}")
    if request.wait and any(choice.taken for choice in choices.values()):
        request, choices = request.for_waiting_nodes(), {}
    free = {host: with_choice(request.facts[host], choice) for host, choice in choices.items() if not choice.taken}
    request = replace(request, facts={**request.facts, **free})
    containers = request.containers(run_id, try_links=not request.force)
    if meeting.shares_several_networks(request.in_order) and not any(host.interface for host in request.cluster.hosts):
        console.note(
            "the hosts share several networks: the deploy measures them, and uses the interfaces of the best one"
        )
    pushes = deploy_push.plan_push(request, request.code(), console)
    containers = sent_folders.mount_folders(containers, pushes)
    if request.requirements:
        pushed = {host: Pushed(0, push.why, push.folders) for host, push in pushes.items()}
        packages.print_plan(request, pushed, console)
        containers = packages.with_planned_packages(containers)
    steps = plan.steps(containers, pushes, request.image)
    if bare.are_all_bare(request.facts):  # no engine there takes Docker's commands
        steps = tuple(replace(step, argv=()) for step in steps)
    for step in steps:
        console.data({"kind": "step", "host": step.host, "text": step.text, "reason": step.reason, "argv": step.argv})
    for node in containers:
        variables = {"kind": "variables", "host": node.host, "environment": dict(node.environment)}
        console.data({**variables, "secrets": sorted(node.secrets)})
    console.text("\n".join(plan.plan_lines(steps, containers)))
    deploy_push.print_road_plan(pushes, console)
    console.note(
        f"waits up to {duration(patience_s(request.job.wait_lost))} for a host that does not answer (--wait-lost)"
    )


def _work(options: Options, cluster: Cluster) -> Work:
    """The work, without its image and run id, which are chosen later. Raises UsageError for wrong options."""
    hidden = secrets_of(cluster)
    refuse_open_secrets(options, secret_settings.values_to_hide(cluster.job.secrets, hidden))
    script = script_words(options)
    arguments = () if script else trainer_words(options)
    variables = environment_of(options)
    restarts = value_of(options, "restarts")
    if restarts is not None and environment.MAX_RESTARTS_NAME in variables:
        raise UsageError(f"--env {environment.MAX_RESTARTS_NAME}: you gave --restarts as well", "leave out one of them")
    spares, arbiter = len(cluster.job.spares), bool(cluster.job.arbiter)
    nodes = len(cluster.hosts) - spares - arbiter
    least = environment.asked_least(cluster.job.min_nodes, nodes, arguments, bool(script), spares > 0, arbiter)
    return Work(
        "",
        "",
        script,
        arguments,
        environment=variables,
        secrets=hidden,
        token=secrets.token_hex(8),
        share_key=secrets.token_hex(16),
        restarts=restarts,
        max_hours=cluster.job.max_hours,
        ends=asked_ends(cluster.job.grace, cluster.job.restart_with),
        on_end=cluster.job.on_end,
        least=least,
        resumed=resume.resume_words(options, cluster),
    )
