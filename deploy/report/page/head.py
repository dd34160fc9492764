"""The head of the report: how the run ended, its figures, and the command that repeats it.

Flow: RunData -> `summary` -> figures, facts, a command -> templates/run.html. Pure.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from statistics import median
from textwrap import dedent

from ...causes.end_causes import Cause
from ...causes.table import READ
from ...core import text as words
from ...core.errors import BadAnswer
from ...job.option_words import command_of
from ...job.options import Options
from ...job.script import as_given, as_typed, last_words
from ...run import events as run_events
from ...run.events import Event
from ...run.files.record import SLURM, backend_of
from ...run.files.standing import RUNNING, STARTING, Standing
from ...run.outcome import final
from ...run.own_run import trouble_before
from ..text import checkpoint_words, culprit
from .data import Fields, RunData, column, number

# A number, or None if the folder lacks it.
Known = float | None
_MARKS = {"done": "✓", "stopped": "■", "failed": "✕", "refused": "✕", RUNNING: "●"}


@dataclass(frozen=True)
class Summary:
    """The values for the head, None if the folder lacks them.

    `seconds`: a duration; `speed`: samples per second; `start`: in Unix seconds. `loss_step`: the step of the last
    finite training loss. `finite`: the newest training loss is finite.
    """

    verdict: str
    message: str
    hint: str
    culprit: str
    accuracy: Known
    loss: Known
    loss_step: int
    finite: bool
    held_out: bool
    samples: Known
    seconds: Known
    speed: Known
    nodes: list[str]
    start: Known


def state_of(now: Standing) -> dict[str, str]:
    """The state of a run, for its page and the list of runs: the word, its mark, and a class in page.css."""
    kind = RUNNING if now.word == STARTING else now.word
    return {"state": now.shown, "mark": _MARKS.get(kind, "…"), "badge": kind if kind in _MARKS else "unknown"}


def summary(run: RunData) -> Summary:
    """The values for the head: from outcome.json, or without it from the ranks' verdicts; and from the metrics."""
    end = run.outcome if run.outcome.get("verdict") else _end_by_ranks(run) or run.outcome
    last: Fields = run.evaluations[-1] if run.evaluations else {}
    values = last.get("values", {})
    losses, speeds = [row for row in run.metrics if "loss" in row], [y for _, y in column(run.metrics, "samples_per_s")]
    finite = [row for row in losses if number(row["loss"]) is not None]
    start = run.record.get("started") or run.state.ranks.span.first or min(_times(run), default=None)
    return Summary(
        verdict=end.get("verdict", ""),
        message=_set_left(end.get("message", "")) + _before(run, end),
        hint=end.get("hint", ""),
        culprit=culprit(end) if end.get("verdict") in ("failed", "refused") else "",
        accuracy=_first(end.get("accuracy"), values.get("accuracy")),
        loss=_first(values.get("loss"), *[row["loss"] for row in finite[-1:]]),
        loss_step=int(number(finite[-1].get("step")) or 0) if finite else 0,
        finite=losses[-1:] == finite[-1:],
        held_out="loss" in values,
        samples=number(last.get("samples")),
        seconds=_first(end.get("seconds"), _spent(run, start)),
        speed=_first(end.get("samples_per_s"), median(speeds) if speeds else None),
        nodes=run.record.get("nodes") or list(dict.fromkeys(run.nodes.values())),
        start=start,
    )


def _end_by_ranks(run: RunData) -> Fields:
    """The end by the verdicts since the last start, once one rank or node gives up or all have reported; else empty.

    A rank's verdict is among its events, too: that one counts if its node's file did not arrive.
    """
    began = max((event["t"] for event in run.events if event["kind"] == "started"), default=0.0)
    state = copy(run.state)
    state.verdicts = [verdict for verdict in run.state.verdicts if not verdict["t"] or verdict["t"] >= began]
    heard = {verdict.get("node") for verdict in state.verdicts}
    for event in run.events:
        if event["kind"] == "outcome" and event["node"] not in heard and event["t"] >= began:
            state.verdicts += _verdicts_in(event)
    spoken = heard | {verdict.get("by", "") for verdict in state.verdicts}
    is_over = state.gives_up or (state.verdicts and spoken.issuperset(state.names))
    return vars(final(state)) if is_over else {}


def _verdicts_in(event: Event) -> list[Event]:
    """The verdict in an event `outcome`: about the rank and node in it, written `by` the event's node."""
    whom = {"rank": event.get("culprit"), "node": event.get("culprit_node") or event["node"], "by": event["node"]}
    with suppress(BadAnswer):
        return [run_events.verdict({**event, **whom}, event["t"])]
    return []


def _times(run: RunData) -> list[float]:
    return [event["t"] for event in run.events if event["t"]]


def _before(run: RunData, end: Fields) -> str:
    """What was wrong when somebody stopped the run, in the words of `muster explain`."""
    before = trouble_before(run.story) if end.get("verdict") == "stopped" else None
    return f"; before that: {before.message}" if before else ""


def _set_left(message: str) -> str:
    """The message, with the common indentation of all lines but the first removed."""
    first, newline, rest = message.partition("\n")
    return first + newline + dedent(rest)


def _first(*values: object) -> Known:
    return next((real for value in values if (real := number(value)) is not None), None)


def _spent(run: RunData, start: Known) -> Known:
    """Seconds from the last start to the last sign of life."""
    lives = run.state.ranks.span
    last = max([lives.last if lives.began else max(_times(run), default=0.0), *(row["t"] for row in run.metrics[-1:])])
    start = (run.record.get("starts") or [{}])[-1].get("t", start)
    return None if start is None or last <= start else last - start


def commands(run: RunData, end: Summary) -> list[tuple[str, str]]:
    """The commands to type next, each after its purpose; empty if this machine did not record the run."""
    rank, cause, rows = run.outcome.get("rank"), Cause.of_slug(run.outcome.get("cause")), []
    if end.verdict == "stopped":
        before = trouble_before(run.story)
        rank, cause = (before.rank, before.cause) if before else (None, None)
    if run.own and rank is not None:
        hosts, number_of_rank = ",".join(run.own.get("hosts", ())), f"{rank:.0f}"
        log = command_of("logs", run=run.folder.name, rank=number_of_rank, hosts=hosts)
        rows.append((f"Log of rank {number_of_rank}", log))
    if run.own and cause and cause.entry:
        rows.append(("What that means", f"{READ} {cause.entry}"))
    return [*rows, *([("Run again", typed)] if (typed := again(run.own)) else [])]


def again(record: Fields) -> str:
    """The command that repeats the run on its backend; empty if the record lacks the arguments."""
    if "arguments" not in record:
        return ""
    if backend_of(record) == SLURM:
        return f"muster {record.get('again', '')}"
    given = as_given(record["arguments"], record.get("bare", False))
    options, typed = last_words(given) if record.get("script") else (Options(args=shlex.join(given)), "")
    more = " ".join(filter(None, [record.get("again"), typed]))
    if hosts := record.get("hosts"):
        cluster = record.get("cluster", "")
        return command_of("deploy", options, more, cluster=cluster, hosts="" if cluster else ",".join(hosts))
    workers = str(record.get("workers", ""))
    return command_of("up", options, more, backend=backend_of(record) or "", workers=workers)


def figures(run: RunData, end: Summary) -> list[tuple[str, str]]:
    """The large numbers on the page, as far as the run has them, each with its caption."""
    on = "" if end.samples is None else f" of {words.count(end.samples)} samples"
    times, until = len(run.record.get("starts", ())), "the end" if end.verdict else "its last sign of life"
    took = f"in the last of {times} starts" if times > 1 else f"from the first rank to {until}"
    reached = max((rows[-1].step for rows in run.times.values()), default=0)
    steps = ("step" if reached == 1 else "steps") + ", including repeated steps" * run.state.ranks.repeats
    rows = (
        (end.accuracy, words.percent, "held-out accuracy" + on),
        (end.loss, words.figure, _loss_name(run, end, reached)),
        (end.seconds, words.duration, took),
        (reached or None if run.script else None, words.count, steps),
        (end.speed, words.count, "samples per second"),
    )
    return [(show(value), name) for value, show, name in rows if value is not None]


def _loss_name(run: RunData, end: Summary, reached: int) -> str:
    """The caption of the loss. The watcher reads only some losses of a fast script, so an older loss has its step."""
    if end.held_out:
        return "held-out loss"
    name = "rank 0’s last" if run.script else "training"
    finite = "" if end.finite else " finite"
    return f"{name}{finite} loss" + (f", at step {end.loss_step:,} of {reached:,}" if end.loss_step < reached else "")


def facts(run: RunData, end: Summary) -> list[tuple[str, object]]:
    """What ran and where: names and values, which are empty if they are not known."""
    plan, saved = run.state.ranks.plan, run.state.training.checkpoint
    backend, why = backend_of(run.record) or "", run.record.get("why", "")
    return [
        ("Script", as_typed(run.record.get("arguments", ())) if run.script else None),
        ("Backend", why if backend in why else f"{backend}: {why}" if why else backend),
        ("Recipe", run.config.get("recipe") or plan.get("recipe")),
        ("Nodes", words.listed(end.nodes, 12)),
        ("Started", words.date(end.start) if end.start else None),
        ("Checkpoint", checkpoint_words(saved["step"], saved.get("pause_ms")) if saved else None),
    ]
