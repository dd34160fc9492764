"""Runs and GPUs of hosts, as table cells for people and as values for programs. Pure; console.py prints them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..core.errors import DONE, STOPPED, DeployError
from ..core.facts import RunFacts, exit_code
from ..core.printable import console_line, one_line
from ..core.text import MINUTE, amount, clock, duration, gpu_memory, gpu_share, in_seconds, percent, step_words
from ..host import status as host_status
from ..host.commands import WAITS
from ..host.gpus import DEPLOYS, HOLDS, RESTS, RUNS, Claim, Gpus, GpuUse
from ..host.gpus import WAITS as WAITS_THERE
from ..host.status import HostRun, HostStatus, NodeStatus
from ..run.files.standing import RUNNING, UNFINISHED, Standing

# An object of JSON.
Value = dict[str, Any]
# The status of each host, by its name.
Statuses = Mapping[str, HostStatus]
# The cells of each row.
Rows = list[tuple[str, ...]]
STATUS_HEAD = ("host", "run", "state", "step", "rate", "GPU", "last line")
RUNS_HEAD = ("run", "state", "hosts", "checkpoint", "size", "last change")
FOLDERS_HEAD = ("run", "state", "accuracy", "step", "time", "size")
GPUS_HEAD = ("host", "GPU", "name", "memory", "busy", "held by")
# A step or a line that is older than this is shown with its age, because the run may hang.
QUIET_S = 30
_WORST_FIRST = (RUNNING, "refused", "failed", "stopped", UNFINISHED, "done")
ENDED = frozenset(_WORST_FIRST[1:])


def status_rows(statuses: Statuses, run: str = "") -> Rows:
    """A row for each node (of `run`, if given), or one for a host that has none; and one for each starting run."""
    batches, rows = _batches(statuses), Rows()
    for host, status, nodes, claims in _of(statuses, run):
        gpu = gpu_words(status.gpus)
        if not nodes and not claims:
            rows.append((host, "", "no run" if not run else "not of this run", "", "", gpu, ""))
        for node in nodes:
            name, state, *cells = _node_cells(node, batches.get(node.run))
            waits = _waits(node, status.gpus.claims)
            last = waits or _last_line(node)
            rows.append((host, name, "waits" if waits else state, *cells, _own_gpus(node, status.gpus) + gpu, last))
        rows += [(host, one_line(claim.shown), "is starting", "", "", "", "") for claim in claims]
    return rows


def _waits(node: NodeStatus, claims: Sequence[Claim]) -> str:
    """Why a node waits, since when, its place in the queue: `run r1 has GPU 0; since ..., place 1`. Empty: no wait."""
    own = (claim for claim in claims if claim.run == node.run and claim.state in (RESTS, WAITS_THERE, HOLDS))
    if not node.runs or (claim := next(own, None)) is None:
        return ""
    before = sum(other.waits and other.number < claim.number for other in claims)
    why = "has its place here" if claim.state == HOLDS else one_line(claim.why) or "begins to wait"
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(claim.number / 1e9))
    place = f", place {before + 1}" if claim.waits else ""
    return f"{why}; since {began}{place}"


def _of(statuses: Statuses, run: str) -> Iterator[tuple[str, HostStatus, list[NodeStatus], list[Claim]]]:
    """Each host with the nodes of `run`; if `run` is empty, with all nodes and the claims of commands at work."""
    for host, status in statuses.items():
        nodes = [node for node in status.nodes if run in ("", node.run)]
        yield host, status, nodes, [claim for claim in status.gpus.claims if claim.state == DEPLOYS and not run]


def _batches(statuses: Statuses) -> dict[str, int]:
    return {node.run: node.batch for host in statuses.values() for node in host.nodes if node.batch}


def _own_gpus(node: NodeStatus, gpus: Gpus) -> str:
    """The numbers of the GPUs that a node was given, if these are not all GPUs of the host."""
    later = (claim.gpus for claim in gpus.claims if claim.run == node.run and claim.state == RUNS)
    given = node.gpus or next(later, ())
    own = [str(gpu.index) for gpu in gpus.gpus if gpu.uuid in given] if node.runs else []
    return f"{', '.join(own)} of " if own and len(own) < len(gpus.gpus) else ""


def status_values(statuses: Statuses, run: str = "") -> list[Value]:
    """The statuses for programs: one object for each node, idle host and starting run."""
    batches, values = _batches(statuses), []
    for host, status, nodes, claims in _of(statuses, run):
        gpus = gpu_value(status.gpus)
        for node in nodes:
            per_second = host_status.rate(node, batches.get(node.run)) if node.runs else None
            value = {**asdict(node), "word": state_word(node), "samples_per_s": per_second and round(per_second, 1)}
            if waits := _waits(node, status.gpus.claims):
                value |= {"word": "waits", "waits": waits}
            values.append({"host": host, **value, **gpus})
        if not nodes:
            values.append({"host": host, "run": None, **gpus})
        values += [{"host": host, "claim": asdict(claim)} for claim in claims]
    return values


def folder_rows(runs: Iterable[RunFacts]) -> Rows:
    """A row for each run on this machine."""
    return [
        (
            run.id,
            Standing(run.verdict, run.since).shown,
            percent(run.accuracy) if run.accuracy is not None else "",
            f"step {run.step}" if run.step is not None else "",
            duration(run.seconds) if run.seconds is not None else "",
            amount(run.bytes),
        )
        for run in runs
    ]


def folder_values(runs: Iterable[RunFacts]) -> list[Value]:
    """The runs on this machine, for programs: `since` and `ask` only of a run of which only its hosts know more."""
    return [{name: value for name, value in vars(run).items() if value or name not in ("since", "ask")} for run in runs]


def run_rows(runs: Mapping[str, Sequence[HostRun]]) -> Rows:
    """A row for each run, the newest last."""
    rows: Rows = []
    for value in run_values(runs):
        step = "" if value["checkpoint"] is None else f"step {value['checkpoint']}"
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(value["changed"])) if value["changed"] else ""
        rows.append((value["run"], value["state"], ", ".join(value["hosts"]), step, amount(value["bytes"]), day))
    return rows


def run_values(by_host: Mapping[str, Sequence[HostRun]]) -> list[Value]:
    """The runs on all hosts, each once, newest last, with the state of its worst node."""
    runs: dict[str, dict[str, HostRun]] = {}
    for host, host_runs in by_host.items():
        for run in host_runs:
            runs.setdefault(run.run, {})[host] = run
    values = [_run_value(run_id, [*parts], [*parts.values()]) for run_id, parts in runs.items()]
    return sorted(values, key=lambda value: (value["changed"] or 0.0, value["run"]))


def _run_value(run_id: str, hosts: list[str], parts: Sequence[HostRun]) -> Value:
    states = [state_word(part.node) if part.node else part.verdict or UNFINISHED for part in parts]
    return {
        "run": run_id,
        "state": next((word for word in _WORST_FIRST if word in states), states[0]),
        "hosts": hosts,
        "checkpoint": max((part.checkpoint for part in parts if part.checkpoint is not None), default=None),
        "bytes": sum(part.bytes for part in parts),
        "changed": max(part.changed or 0.0 for part in parts) or None,
    }


def fault_rows(faults: Mapping[str, DeployError]) -> list[tuple[str, str]]:
    """A row for each host that did not answer: its name and the cause."""
    return [(host, " ".join(fault.message.split()).removeprefix(f"{host}: ")) for host, fault in faults.items()]


def fault_values(faults: Mapping[str, DeployError]) -> list[Value]:
    """The faults for programs: one object for each host that did not answer."""
    return [{"host": host, "error": words, "hint": faults[host].hint} for host, words in fault_rows(faults)]


def state_word(node: NodeStatus) -> str:
    """The state of a node in one word: running, done, stopped, failed, ..."""
    if node.code is None:
        return WAITS if node.runs and node.last_line.startswith(WAITS) else node.state
    by_code = {DONE: "done", STOPPED: "stopped"}.get(node.code, "failed")
    return node.verdict if by_code == "failed" and node.verdict not in ("", "done") else by_code


def gpu_words(gpus: Gpus) -> str:
    """A host's GPUs in a few words: mean use, and memory in total."""
    if not gpus.gpus:
        return f"could not tell: {console_line(gpus.fault)}" if gpus.fault else "no GPU"
    busy = [gpu.busy for gpu in gpus.gpus if gpu.busy is not None]
    used, total = sum(gpu.used_mib or 0 for gpu in gpus.gpus), sum(gpu.total_mib or 0 for gpu in gpus.gpus)
    words = [f"{len(gpus.gpus)} x" if len(gpus.gpus) > 1 else "", f"{sum(busy) / len(busy):.0f} %" if busy else ""]
    words += [gpu_share(used, total) if total else ""]
    return " ".join(filter(None, words)) + (", and one that fails" if gpus.fault else "")


def gpu_value(gpus: Gpus) -> Value:
    """A host's GPUs for programs; `gpu_fault` if the list is incomplete."""
    return {"gpus": [asdict(gpu) for gpu in gpus.gpus], "gpu_fault": gpus.fault or None}


def gpu_rows(by_host: Mapping[str, Gpus]) -> Rows:
    """A row for each process on a GPU, each free GPU, and each host without GPUs or with a fault."""
    rows: Rows = []
    for host, gpus in by_host.items():
        for gpu in gpus.gpus:
            busy, (first, *others) = "" if gpu.busy is None else f"{gpu.busy} %", _held(gpu)
            rows.append((host, str(gpu.index), gpu.name, _memory(gpu), busy, first))
            rows += [(host, str(gpu.index), "", "", "", words) for words in others]
        if gpus.fault:
            rows.append((host, "", f"could not tell: {console_line(gpus.fault)}", "", "", ""))
        elif not gpus.gpus:
            rows.append((host, "no GPU", "", "", "", ""))
    return rows


def _held(gpu: GpuUse) -> list[str]:
    words = []
    for holder in gpu.holders:
        run = f" (run {holder.run})" if holder.run else ""
        parts = (
            gpu_memory(holder.memory_mib) if holder.memory_mib is not None else "",
            f"pid {holder.pid}",
            holder.user,
            f"container {holder.container}{run}" if holder.container else "",
            console_line(holder.process),
        )
        words.append("  ".join(filter(None, parts)))
    computing = tuple(f"run {holder.run} " for holder in gpu.holders if holder.run)
    words += [f"reserved for {one_line(who)}" for who in gpu.given if not f"{who} ".startswith(computing)]
    return words or ["somebody who is not visible from here" if gpu.unseen else "free"]


def _memory(gpu: GpuUse) -> str:
    if gpu.used_mib is None or gpu.total_mib is None:
        return ""
    return f"{gpu_memory(gpu.used_mib)} of {gpu_memory(gpu.total_mib)}"


def _node_cells(node: NodeStatus, batch: int | None) -> Sequence[str]:
    step = ""
    if node.step is not None:
        step = step_words(node.step, node.repeats, node.steps) + _age(node, node.step_age_s)
    per_second, rate = host_status.rate(node, batch), ""
    if node.runs and node.stands:
        age_s = round(node.step_age_s or 0.0)
        rate = f"no step for {in_seconds(age_s) if age_s < MINUTE else duration(age_s)}"
    elif node.runs and per_second:
        rate = f"{per_second:,.0f} samples/s"
    elif node.runs and node.step_ms:
        rate = f"{1000 / node.step_ms:,.1f} steps/s"
    return f"{node.run} ({node.user})" if node.user else node.run, _state(node), step, rate


def _state(node: NodeStatus) -> str:
    word = state_word(node)
    if node.code is None:
        return node.uptime.lower() if word == "running" else word
    ago = node.uptime.partition(") ")[2]
    how = f" ({exit_code(node.code)})" if word == "failed" else ""
    return f"{word}{how} {ago}".strip()


def _last_line(node: NodeStatus) -> str:
    return console_line(node.last_line) + _age(node, node.last_line_age_s) if node.last_line else ""


def _age(node: NodeStatus, age_s: float | None) -> str:
    return f" ({clock(age_s)} ago)" if node.runs and age_s is not None and age_s > QUIET_S else ""
