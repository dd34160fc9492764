"""Look at hosts without changing them, in two round trips: their facts, and whether any has an engine; their routes."""

from __future__ import annotations

import posixpath
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ...causes import docker_faults
from ...causes.docker_faults import DockerFault
from ...core import fields
from ...core.errors import DeployError
from ...core.names import RunId, run_ids
from ...core.results import Results
from ...core.text import last_line
from ...door.session import Session, SshFault, on_all
from ...engine import reach
from ...engine.engine import Engine, label_of
from ...host import commands, gpu_choice
from ...host import facts as host_facts
from ...host import gpus as host_gpus
from ...host import logs as host_logs
from ...host import status as host_status
from ...host.facts import Container, HostFacts, Route
from ...host.gpus import Gpus
from ...host.logs import HostLogs
from ...host.reached import ReachedHosts
from ...host.status import HostRun, HostStatus
from ...job.cluster import Cluster
from ...job.options import Job
from ..node import bare_engine, container

_MOST_TEXT = 500
_PATIENCE_S = 30.0
_LAST_LINES, _MOST_CONSOLE = 5, 1 << 16


def facts(sessions: Iterable[Session], bring: bool = False, may_write: bool = True) -> Results[HostFacts]:
    """Return each host's facts, without GPUs that the job leaves out. A host whose engine does not answer is a fault.

    `bring`: if no host has an engine, each gets Muster's bare engine, whose containers are processes; if some have one,
    a host without one is a fault. `may_write`: false in a dry run, which sends nothing to hosts.
    """
    asked = {session.name: session for session in sessions}
    answers = on_all(asked.values(), _look)
    if bring and any(not host_facts.is_bare(answer) for answer in answers.values.values()):
        answers = answers.then(_require_engine)
    elif bring:
        answers = bare_engine.bring(asked, answers, _look, may_write)
    return Results({host: _read(answers, asked[host]) for host in asked})


def reached(cluster: Cluster, sessions: Sequence[Session], dry_run: bool) -> ReachedHosts:
    """The hosts of a push or a deploy, with their facts. Raises HostsFailed with every host whose facts are missing."""
    return ReachedHosts(cluster, sessions, facts(sessions, bring=True, may_write=not dry_run).all())


def _look(session: Session) -> str:
    try:
        return session.run(commands.look()).out
    except SshFault as failed:
        raise session.add_hung_folder(failed) from failed


def _require_engine(answer: str) -> str:
    """The answer of a host, when other hosts have an engine. Raises DockerFault if this host has none."""
    if host_facts.is_bare(answer):
        missing = docker_faults.NO_DOCKER
        raise DockerFault(missing, f"{missing.what}, but other hosts of this run have an engine", missing.row.hint(""))
    return answer


def _read(answers: Results[str], session: Session) -> HostFacts | DeployError:
    """Return the host's facts, or its fault."""
    host, gpus = session.name, session.host.gpus
    if host in answers.faults:
        return answers.faults[host]
    answer = answers.values[host]
    try:
        seen = replace(host_facts.parse(answer, time.time()), called_at=session.called_at)
    except DeployError as fault:
        return fault
    if session.host.visible is not None:
        seen = replace(gpu_choice.visible_to_cuda(session.host.visible, seen), picked=True)
    if gpus == "auto" or (isinstance(gpus, int) and gpus):
        return seen  # gpu_claims.py asks later which of them are free
    named = tuple(gpu for gpu in seen.gpus if isinstance(gpus, tuple) and gpu.index in gpus)
    return replace(seen, gpus=named, picked=True)


def gpus_of(session: Session) -> Gpus:
    """The GPUs of a host, and who uses them."""
    return host_gpus.parse(session.run(commands.gpus(), timeout_s=_PATIENCE_S).out.split("\n"))


def routes(sessions: Iterable[Session], peers: dict[str, str]) -> Results[Route]:
    """Return each host's route to the address in `peers`, by host name. A host without a route is a fault."""

    def ask(session: Session) -> Route:
        peer = peers[session.name]
        answer = session.run(commands.script("routes", peer)).out.strip()
        route = host_facts.parse_route(answer)
        if route is None:
            words = answer[:_MOST_TEXT] if answer and not answer.startswith("[") else "no route"
            raise DeployError(f"`ip route get {peer}` shows no route: {words}", f"on that host: ip route get {peer}")
        return route

    return on_all(sessions, ask)


def refuse_unreached(sessions: Iterable[Session], peers: Mapping[str, Sequence[str]], port: int) -> None:
    """Connect from each host to this port of its peers; `peers`: the peers' addresses, by host name.

    Raises HostsFailed with every host that cannot reach a peer.
    """

    def ask(session: Session) -> None:
        addresses = peers[session.name]
        rows = [
            line.partition(" ")
            for line in session.run(commands.script("unreached", str(port), *addresses)).out.split("\n")
        ]
        if unreached := [(peer, why[:_MOST_TEXT]) for peer, _, why in rows if peer in addresses]:
            first, why = unreached[0]
            more = f", nor {len(unreached) - 1} others" if len(unreached) > 1 else ""
            raise DeployError(
                f"cannot reach {first}:{port} from here: {why}{more}",
                f"allow TCP {port} and the ports above 1023 between the hosts (firewall, security group)",
            )

    on_all([session for session in sessions if peers.get(session.name)], ask).all()


def refuse_missing(sessions: Iterable[Session], job: Job) -> None:
    """Raise HostsFailed with every host that lacks a folder to mount. Asks no host that mounts nothing."""

    def ask(session: Session) -> None:
        targets = {mount.source: mount.target for mount in container.mounts(session.host, job) if not mount.create}
        sources = sorted(targets)
        missing = session.run(commands.script("missing", *sources)).out.split("\n")
        if absent := [path for path in sources if path in missing]:
            empty = f"--mount {absent[0]}:{targets[absent[0]]}:create"
            hint = f"copy the folder there; or, to write into an empty one, use {empty}"
            raise DeployError(f"cannot mount {', '.join(absent)}: there is no such folder", hint)

    on_all([session for session in sessions if container.mounts(session.host, job)], ask).all()


def make_folders(hosts: ReachedHosts, for_script: bool) -> Results[list[str]]:
    """Make the folders that the run mounts and that may be missing: those with `:create`, and a script's cache.

    Returns the user's folders that were made.
    """

    def ask(session: Session) -> list[str]:
        fact, job = hosts.facts[session.name], hosts.job
        asked = [mount.source for mount in container.mounts(session.host, job) if mount.create]
        cache = container.cache_folder(fact, job) if for_script else ""
        paths = [*asked, *([cache] if cache else [])]
        if not paths:
            return []
        done = session.run(commands.script("make-folders", container.owner_of(fact, job), *paths), check=False)
        if done.code:
            why = last_line(done.err)[:_MOST_TEXT]
            first = next((path for path in paths if f"{path}'" in why or f"{path}\u2019" in why), paths[0])
            hint = f"on {session.name}: sudo install -d -o $(id -u) {shlex.quote(first)}"
            raise DeployError(f"cannot make {first}: {why}", hint)
        made = {line.removeprefix("made ") for line in done.out.split("\n")}
        return [path for path in asked if path in made]

    return on_all(hosts.sessions, ask)


def containers(sessions: Iterable[Session], run: str = "") -> Results[tuple[Container, ...]]:
    """The containers of one run, or of all runs, on each host: ours and other users'."""
    return on_all(sessions, lambda session: containers_of(session, run))


def containers_of(session: Session, run: str = "") -> tuple[Container, ...]:
    """The same on one host. Each container is inspected: not every engine lists the mounts of containers."""
    seen = reach.on_host(session).inspected(label_of(run))
    of_runs = host_facts.containers(seen, posixpath.dirname(session.home))
    return tuple(container for container in of_runs if container.node)


def logs(session: Session) -> HostLogs:
    """The consoles and the ranks' own logs of our runs on a host."""
    return host_logs.parse(containers_of(session), session.run(commands.script("rank-logs")).out)


def status(session: Session) -> HostStatus:
    """What runs on a host, each run's step, and the host's GPUs."""
    engine, home = reach.on_host(session), posixpath.dirname(session.home)
    seen = engine.containers(label_of())
    own = [run for each in seen if host_facts.is_ours(each, home, run := each.labels.get("muster.run", ""))]
    answer = session.run(commands.status(own), timeout_s=_PATIENCE_S).out
    consoles = {each.name: _console(engine, each.id) for each in seen}
    return host_status.parse(answer, seen, home, consoles)


def runs(session: Session) -> tuple[HostRun, ...]:
    """The runs that have a folder or a container on a host."""
    seen = reach.on_host(session).containers(label_of())
    answer = session.run(commands.script("runs"), timeout_s=_PATIENCE_S).out
    return host_status.parse_runs(answer, seen, posixpath.dirname(session.home))


def run_folders(session: Session) -> frozenset[RunId]:
    """The runs that have a folder on a host; this needs no engine."""
    return run_ids(fields.rows(_look(session)).get("run", ()))


def _console(engine: Engine, name: str) -> bytes:
    """The end of a container's console; empty if the container is gone or its engine keeps no log of it."""
    text = b""
    with suppress(DockerFault):
        for piece in engine.logs(name, tail=_LAST_LINES, times=True):
            text = (text + piece)[-_MOST_CONSOLE:]
    return text
