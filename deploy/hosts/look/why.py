"""`muster why`: what each rank of a script's run is doing now, and who is missing. The run is not disturbed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import DONE, FAILED, DeployError
from ...core.facts import ended_how
from ...core.fields import document
from ...core.names import NODE_PROGRAMS, RunId
from ...core.results import Results
from ...core.text import in_seconds, last_line
from ...door.session import Session, among, on_all, open_all
from ...host.facts import Container
from ...host.reached import as_typed
from ...job.load import known_cluster, read_run
from ...job.option_words import command_of
from ...job.options import Options
from ...report.console import Console
from ...run.files import folders, record, recorded_ends
from ...run.follower import Follower
from ...run.inquest import hang, slow
from ...run.inquest.hang import RankDoing
from ...run.state.evidence import Evidence
from ...run.state.ranks import Ranks
from .. import nodes as host_nodes
from ..start import observe
from . import ended

_LOOK_S = 30.0
# Steps count as current for this many seconds; and the most bytes read from the end of each file.
_LAST_S, _LAST_BYTES = 60.0, 1 << 17


def why_on_hosts(options: Options, console: Console) -> int:
    """Ask the nodes on all hosts. Returns 1 if one did not answer; the others are shown."""
    wanted = read_run(options.run)
    with open_all(known_cluster(options).hosts) as opened:
        sessions = list(opened.values.values())
        containers = observe.containers(sessions)
        try:
            chosen, nodes = ended.find_run(wanted, opened, containers)
        except ended.RunEnded as end:
            _tell_over(end.run, end.message, end.hint, console)
            return DONE
        members = among(sessions, nodes)
        if _is_over(chosen, nodes, as_typed(members), console):
            return DONE
        answers = on_all(members, lambda session: _ask(session, chosen))
        ranks = [rank for of_host in answers.values.values() for rank in of_host]
        if ranks:
            _show(ranks, options.stacks, console, _slow(record.path_of(chosen), ranks))
        elif answers.values and not answers.faults:
            _tell_starting(chosen, as_typed(members), console)
        return _faults(opened, containers, answers, console)


def why_here(options: Options, console: Console) -> int:
    """Ask the nodes of a run on this machine, through the files in its folder. Returns 1 if one did not answer."""
    run_dir, code = record.find(options.run or "latest"), DONE
    if end := recorded_ends.end_of(run_dir):  # killed ranks leave files that still show what they did last
        words = str(end.get("message") or end.get("verdict", ""))
        _tell_over(run_dir.name, f"{run_dir.name} has ended: {words}", f"more: muster explain {run_dir.name}", console)
        return DONE
    ranks = []
    for node in record.facts(run_dir).get("nodes", ()):
        environment = {"MUSTER_RUN_DIR": str(run_dir), "MUSTER_NODE": node}
        command = [sys.executable, "-P", "-m", NODE_PROGRAMS, "why"]
        environment = folders.with_muster({**environment, "PATH": "/usr/bin:/bin"})
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_LOOK_S, check=False
            )
            ranks += _parse(done.stdout)
        except subprocess.TimeoutExpired:
            what, hint = f"{node}: its node cannot report: no answer for {in_seconds(_LOOK_S)}", "does its disk answer?"
            console.error(DeployError(what, f"{hint} ls {run_dir}"))
            code = FAILED
    if not (ranks or code):
        _tell_starting(run_dir.name, "", console)
    if ranks:
        _show(ranks, options.stacks, console, _slow(run_dir, ranks))
    return code


def _is_over(run: RunId, nodes: Mapping[str, Container], hosts: str, console: Console) -> bool:
    """Whether every node of the run has ended; if so, print that: no rank does anything then."""
    over = all(node.code is not None for node in nodes.values())
    if over:
        ends = ", ".join(f"{host} {ended_how(node.code or 0)}" for host, node in nodes.items())
        attach = command_of("attach", hosts=hosts, run=run)
        _tell_over(run, f"{run} has ended: {ends}", f"to see how it ended: {attach}", console)
    return over


def _tell_starting(run: str, hosts: str, console: Console) -> None:
    """Say that no rank has begun: the nodes of a running run report each rank that has."""
    console.note(f"{run}: its ranks have not started yet")
    console.hint(f"to see them start: {command_of('attach', hosts=hosts, run=run)}")


def _tell_over(run: str, words: str, hint: str, console: Console) -> None:
    console.line(words, {"kind": "ended", "run": run, "message": words, "hint": hint})
    console.hint(hint)


def _ask(session: Session, run: str) -> list[RankDoing]:
    done = host_nodes.ask(session, run, "why", _LOOK_S)
    if done.code:
        words = last_line(done.err, "no answer")
        raise DeployError(f"{session.name}: its node cannot report: {words}", "is it running? muster status")
    return _parse(done.out)


def _parse(answer: str) -> list[RankDoing]:
    """Read the lines of trainer/node/ending/doing_now.py. Raises BadAnswer."""
    return [hang.read(document(line, "what a rank does")) for line in answer.split("\n") if line.strip()]


def _slow(run_dir: Path, ranks: Sequence[RankDoing]) -> str:
    """The message about the rank that slows the others down now, from its last steps; empty if there is none.

    The steps of a run on hosts are on this machine only while somebody follows it.
    """
    evidence = Evidence(Ranks(began={rank.rank: rank.node for rank in ranks}))
    for event in Follower(run_dir, tail=_LAST_BYTES).read():
        if event["kind"] in ("step", "telemetry", "throttled") and time.time() - event["t"] <= _LAST_S:
            evidence.record(event, event["t"])
    return next((finding.message for finding in slow.held_up(evidence)), "")


def _show(ranks: Sequence[RankDoing], stacks: bool, console: Console, holds_up: str = "") -> None:
    ranks = sorted(ranks, key=lambda rank: rank.rank)
    if console.as_json:
        console.values([{**rank.__dict__, "stack": list(rank.stack)} for rank in ranks])
        return
    console.table((), [[f"rank {rank.rank}", rank.node, hang.words_of(rank), *_progress(rank)] for rank in ranks])
    for rank in ranks if stacks else ():
        console.text(f"\nrank {rank.rank} ({rank.node}), the last call first:")
        console.text("\n".join(f"    {line}" for line in rank.stack))
    if missing := hang.missing(ranks):
        console.text(missing)
    elif holds_up:
        console.text(holds_up)
    elif any(map(hang.is_unlooked, ranks)):
        console.text("Muster does not know what these ranks are doing, because it does not observe them")


def _progress(rank: RankDoing) -> list[str]:
    """Where a rank is, and since when."""
    if hang.is_unlooked(rank):
        return ["", "", ""]
    return [rank.place, f"step {rank.step}", in_seconds(rank.since_s)]


def _faults(opened: Results[Session], containers: Results[Any], answers: Results[Any], console: Console) -> int:
    faults = {**opened.faults, **containers.faults, **answers.faults}
    for fault in faults.values():
        console.error(fault)
    return FAILED if faults else DONE
