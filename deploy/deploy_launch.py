"""One `fab deploy`, whole, and what follows it: look, plan, push, start, follow, record; attach, stop, fetch, down.

The run does not need us. What ends it is asked for: a Ctrl-C, a SIGTERM, `fab stop`. A terminal that goes away, or a
kill -9 of this process, leaves it going, and `attach` finds it by its label.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from deploy import (
    deploy_actions,
    deploy_plan,
    deploy_spec,
    deploy_watch,
    host_lock,
    host_observe,
    inventory,
    launch,
    lines,
    record,
    spec,
    transfer,
    watch,
)
from deploy.deploy_spec import HostSpec, Work
from deploy.ending import Result
from deploy.errors import DONE, UsageError
from deploy.host_facts import Container, HostFacts
from deploy.inventory import Cluster
from deploy.progress import State
from deploy.report import Report
from deploy.results import Results
from deploy.session import Session, open_all

GROUND = "hosts"


@dataclass(frozen=True)
class Options:
    """What the user asked for, as text; empty means not said."""

    hosts: str = ""
    cluster: str = ""
    run: str = ""
    arguments: str = ""
    folder: str = ""
    image: str = ""
    name: str = ""
    detach: bool = False
    dry_run: bool = False

    def load(self) -> Cluster:
        """The hosts and their job. Without --hosts and --cluster, cluster.toml of the current folder."""
        path = Path(self.cluster) if self.cluster else Path("cluster.toml")
        return inventory.load(self.hosts, path if self.cluster or (not self.hosts and path.is_file()) else None)


class Detached(Exception):
    """The terminal is gone: the run goes on without us."""


def deploy(options: Options, report: Report) -> int:
    """Run as asked on all hosts; returns the exit code. Raises DeployError with every host that failed."""
    cluster = options.load()
    _refuse_mixed(cluster)
    script = _split("--run", options.run)
    with open_all(cluster.hosts) as opened:
        sessions = list(opened.all().values())
        facts = host_observe.facts(sessions).all()
        base = options.image or cluster.job.image or deploy_plan.choose_image(list(facts.values()))
        folder = _folder(options, cluster, script)
        arguments = script or _split("--args", options.arguments)
        tag = f"muster-{_slug(folder.resolve().name if folder else base)}:latest"
        taken = frozenset[str]().union(*(fact.runs for fact in facts.values()))
        if options.dry_run:
            work = _work("RUN", tag, script, arguments, cluster)
            specs = _specs(cluster, facts, sessions, work)
            pushes = transfer.foresee(sessions, base, folder, tag).all()
            made = deploy_plan.steps(specs, {host: (sent.there, sent.why) for host, sent in pushes.items()})
            print("\n".join(deploy_plan.told(made, specs)))
            return DONE
        run_dir = _run_folder(options.name, script, arguments, taken)
        try:
            specs = _specs(cluster, facts, sessions, _work(run_dir.name, tag, script, arguments, cluster))
            _open_record(run_dir, arguments, specs, cluster)
            with host_lock.take(sessions, run_dir.name):
                _push(sessions, base, folder, tag, report)
                deploy_actions.start(sessions, specs)
        except BaseException:
            with suppress(OSError):
                record.undo_start(run_dir, {})
            raise
        report.note(f"{run_dir.name} runs on {', '.join(facts)}")
        if options.detach:
            report.note(f"fab attach --hosts {options.hosts or ','.join(facts)} --run {run_dir.name} follows it")
            print(run_dir.name)
            return DONE
        names = {one.host: one.node for one in specs}
        return _follow(run_dir, sessions, names, bool(script), arguments, report)


def attach(options: Options, report: Report) -> int:
    """Follow a run that goes on; returns its exit code."""
    with _run_on_hosts(options) as (sessions, run, nodes):
        run_dir = launch.RUNS / run
        first = min(nodes.values(), key=lambda node: node.place)
        record_there = record.read_json(run_dir / "record.json")
        arguments = tuple(record_there.get("arguments") or _split("label", first.command))
        script = first.command.split(" ")[0].endswith(".py") if not record_there else bool(record_there.get("script"))
        run_dir.mkdir(parents=True, exist_ok=True)
        names = {host: node.node for host, node in sorted(nodes.items(), key=lambda pair: pair[1].place)}
        if not record_there:
            _open(run_dir, arguments, list(names.values()), list(names), script)
        lost = first.nodes - len(nodes)
        if lost:
            report.warn(f"{run} has {first.nodes} nodes, {lost} of them not on these hosts")
        members = [session for session in sessions if session.host.name in names]
        return _follow(run_dir, members, names, script, arguments, report)


def stop(options: Options, report: Report) -> int:
    """Ask every node of a run to stop with a checkpoint; returns at once."""
    with _run_on_hosts(options) as (sessions, run, _):
        deploy_actions.signal(sessions, run, "SIGTERM").all()
        report.note(f"{run}: every node was asked to stop; fab attach shows how it ends")
        return DONE


def down(options: Options, report: Report) -> int:
    """Remove the containers of all runs (or of one) from the hosts; their run folders stay."""
    with open_all(options.load().hosts) as opened:
        removed = deploy_actions.remove(list(opened.values.values()), options.run)
        for host, count in removed.values.items():
            report.note(f"{host}: {f'removed {count} containers' if count else 'nothing was there'}")
        _all_faults(opened, removed)
        return DONE


def runs_there(options: Options) -> dict[str, dict[str, Container]]:
    """Runs on the hosts, by id and host. Raises DeployError with every host that does not answer."""
    with open_all(options.load().hosts) as opened:
        found = host_observe.containers(opened.values.values())
        _all_faults(opened, found)
        return deploy_plan.runs_of(found.values)


@contextmanager
def _run_on_hosts(options: Options) -> Any:
    """Sessions to all hosts, the run that is meant, and its containers by host."""
    with open_all(options.load().hosts) as opened:
        sessions = list(opened.all().values())
        runs = deploy_plan.runs_of(host_observe.containers(sessions).all())
        run = deploy_plan.choose_run(runs, options.run)
        yield sessions, run, runs[run]


def _follow(
    run_dir: Path, sessions: Sequence[Session], names: dict[str, str], script: bool, said: Sequence[str], report: Report
) -> int:
    """Follow to the end, clean up there, write the outcome here. A terminal that goes away ends only the following."""
    state, began = State(tuple(names.values())), time.monotonic()
    follower = watch.Follower(run_dir, from_start=True)
    ground = deploy_watch.HostsGround(sessions, names, run_dir, script, report.warn)
    what = f"{said[0]}" if script else spec.recipe_name(said)
    try:
        with _stop_requests(report) as requests, report.following(state, what, f"{len(names)} hosts") as tell:
            result = watch.follow(ground, follower, state, tell, requests)
        deploy_actions.remove(ground.sessions, run_dir.name)
    except Detached:
        return DONE
    finally:
        ground.close()
    result = _named(result, run_dir)
    outcome = record.close(run_dir, result, state, time.monotonic() - began)
    path = launch.write_page(run_dir)
    report.result(result, state, outcome, launch.shown(path), launch.shown(run_dir))
    return result.code


def _named(result: Result, run_dir: Path) -> Result:
    message = result.message.replace(deploy_spec.RUN_IN_CONTAINER, launch.shown(run_dir))
    hint = (
        result.hint.replace("logs/", f"{launch.shown(run_dir)}/logs/")
        if result.hint.startswith("logs/")
        else result.hint
    )
    return replace(result, message=message, hint=hint)


@contextmanager
def _stop_requests(report: Report) -> Any:
    """Counts Ctrl-C and SIGTERM, and says what each does; raises Detached once the terminal is gone."""
    count, said, gone = 0, 0, False

    def heard(number: int, _: FrameType | None) -> None:
        nonlocal count, gone
        if number == signal.SIGHUP:
            gone = True
            report.mute()
        else:
            count += 1

    def requests() -> int:
        nonlocal said
        if gone or report.gone:
            raise Detached
        if count > said:
            said = count
            report.warn("killing every node" if count > 1 else "stopping on all hosts (Ctrl-C again kills)")
        return count

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _specs(
    cluster: Cluster, facts: dict[str, HostFacts], sessions: Sequence[Session], work: Work
) -> tuple[HostSpec, ...]:
    hosts, known = cluster.hosts, [facts[host.name] for host in cluster.hosts]
    address = deploy_plan.choose_address(known, hosts[0].interface)
    # The first host looks the other way: to a peer, or to itself when it is alone.
    back = known[1].reached_at if len(known) > 1 and known[1].addresses else address
    own = [found.address for found in known[1].addresses] if len(known) > 1 else []
    peers = {host.name: address for host in hosts}
    peers[hosts[0].name] = back if back in own or not own else own[0]
    routes = host_observe.routes(sessions, peers).all()
    ways = [routes[host.name] for host in hosts]
    if ways[0].interface == "lo":
        ways[0] = replace(ways[0], interface=next(a.interface for a in known[0].addresses if a.address == address))
    meeting = deploy_spec.meeting_of(hosts, address, deploy_plan.choose_port(known[0]), ways)
    return deploy_spec.host_specs(hosts, known, cluster.job, work, meeting)


def _work(run_id: str, tag: str, script: Sequence[str], arguments: Sequence[str], cluster: Cluster) -> Work:
    return Work(run_id, tag, tuple(script), () if script else tuple(arguments), secrets=_secrets(cluster))


def _secrets(cluster: Cluster) -> dict[str, str]:
    """The values of the job's secrets. Raises UsageError by name for those that are nowhere."""
    found = {}
    for secret in cluster.job.secrets:
        try:
            found[secret.name] = secret.file.read_text().strip() if secret.file else os.environ[secret.name]
        except (OSError, KeyError) as fault:
            where = f"cannot read {secret.file}" if secret.file else "not in this shell's environment"
            raise UsageError(f"secret {secret.name}: {where}", f"export {secret.name}=..., or name a file") from fault
    return found


def _push(sessions: Sequence[Session], base: str, folder: Path | None, tag: str, report: Report) -> None:
    pushed = transfer.push(sessions, base, folder, tag, lambda host, sent, total: None).all()
    for host, what in pushed.items():
        size = lines.size(what.sent_bytes) if what.sent_bytes else "nothing"
        report.note(f"{host}: {size} sent ({what.why})")


def _run_folder(name: str, script: Sequence[str], arguments: Sequence[str], taken: frozenset[str]) -> Path:
    if name:
        folder = launch.RUNS / name
        if deploy_spec.node_name(name) != name or folder.exists() or name in taken:
            there = "is there already" if deploy_spec.node_name(name) == name else "cannot name a container"
            raise UsageError(f"--name {name}: {there}", "letters, digits, . _ and -, and a new one for each run")
        folder.mkdir(parents=True)
        return folder
    named = next((word for word in script if not word.startswith("-")), "") if script else ""
    return record.make_folder(launch.RUNS, ("--recipe", named) if named else arguments, time.time(), taken)


def _open_record(run_dir: Path, arguments: Sequence[str], specs: Sequence[HostSpec], cluster: Cluster) -> None:
    hosts = [host.destination for host in cluster.hosts]
    script = "--script" in specs[0].argv
    _open(run_dir, arguments, [one.node for one in specs], hosts, script)


def _open(run_dir: Path, arguments: Sequence[str], names: Sequence[str], hosts: Sequence[str], script: bool) -> None:
    choice = record.Choice(None, tuple(arguments))
    record.open_start(run_dir, choice, GROUND, f"{len(hosts)} hosts", list(names), time.time())
    path = run_dir / "record.json"
    record.write_json(path, {**record.read_json(path), "hosts": list(hosts), "script": script})


def _refuse_mixed(cluster: Cluster) -> None:
    images = {host.image for host in cluster.hosts if host.image}
    if images or cluster.job.dockerfile:
        what = "an image of its own for a host" if images else "a Dockerfile"
        raise UsageError(f"cluster.toml: {what} is not supported yet", "name one image for all hosts: [job] image")


def _folder(options: Options, cluster: Cluster, script: Sequence[str]) -> Path | None:
    named = Path(options.folder) if options.folder else cluster.job.folder
    folder = named or (Path() if script else None)
    first = script[0] if script else ""
    if folder and first and not first.startswith("-") and not (folder / first).is_file():
        raise UsageError(f"--run {first}: no such file in {folder.resolve()}", "name it as seen from --folder")
    return folder


def _all_faults(*results: Results[Any]) -> None:
    """Raise with every host's fault of all the results."""
    faults = {host: fault for found in results for host, fault in found.faults.items()}
    hosts = list(dict.fromkeys(host for found in results for host in found))
    Results({host: faults.get(host, True) for host in hosts}).all()


def _split(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as fault:
        raise UsageError(f"{option} {text}: {fault}", "quote as in a shell") from fault


def _slug(text: str) -> str:
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower()).strip("-")
    return "-".join(filter(None, name.split("-"))) or "run"
