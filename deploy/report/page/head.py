"""The head of the report: how the run ended, its figures, and the commands to repeat or resume it.

Flow: Run -> `summary` (pure values) -> `section` (markup).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from statistics import median
from typing import Any

from ...run.record import backend_of
from . import units as words
from .data import Fields, Run, number
from .html import Html, join, tag

SEVERITY = ("failed", "refused", "stopped", "done")
SYMBOLS = {"done": "✓", "stopped": "■", "failed": "✕", "refused": "✕"}


@dataclass(frozen=True)
class Summary:
    """The values of the head; None where the folder does not say. Seconds, samples a second, unix seconds."""

    verdict: str
    message: str
    hint: str
    culprit: str
    accuracy: float | None
    loss: float | None
    held_out: bool
    samples: float | None
    seconds: float | None
    speed: float | None
    nodes: list[str]
    start: float | None


def summary(run: Run) -> Summary:
    """The run's end as outcome.json says it; without that, as the ranks' events and the metrics let it be known."""
    end = run.outcome if run.outcome.get("verdict") else _told_by_ranks(run)
    last: Fields = run.evaluations[-1] if run.evaluations else {}
    values = last.get("values", {})
    losses, speeds = _finite(run.metrics, "loss"), _finite(run.metrics, "samples_per_s")
    start = _start(run)
    return Summary(
        verdict=str(end.get("verdict") or ""),
        message=str(end.get("message") or ""),
        hint=str(end.get("hint") or ""),
        culprit=_culprit(end),
        accuracy=_first(end.get("accuracy"), values.get("accuracy")),
        loss=_first(values.get("loss"), *losses[-1:]),
        held_out="loss" in values,
        samples=number(last.get("samples")),
        seconds=_first(end.get("seconds"), _spent(run, start)),
        speed=_first(end.get("samples_per_s"), median(speeds) if speeds else None),
        nodes=_nodes(run),
        start=start,
    )


def _finite(rows: list[Fields], name: str) -> list[float]:
    return [value for row in rows if (value := number(row.get(name))) is not None]


def _first(*values: object) -> float | None:
    return next((found for value in values if (found := number(value)) is not None), None)


def _told_by_ranks(run: Run) -> Fields:
    """The gravest verdict the ranks left after they last started; empty when they left none."""
    began = max((event.t for event in run.events if event.kind == "started"), default=0.0)
    ends = [event.fields for event in run.events if event.kind == "outcome" and event.t >= began]
    ends = [end for end in ends if end.get("verdict") in SEVERITY]
    gravest: Fields = min(ends, key=lambda end: SEVERITY.index(end["verdict"]), default={})
    return {**gravest, "rank": gravest.get("culprit"), "node": gravest.get("culprit_node")}


def _culprit(end: Fields) -> str:
    """`rank 2 on worker-2`; empty when nobody is to blame or the message names the node itself."""
    rank, node = number(end.get("rank")), str(end.get("node") or "")
    if end.get("verdict") not in ("failed", "refused") or (node and node in str(end.get("message"))):
        return ""
    return " on ".join(part for part in ("" if rank is None else f"rank {rank:.0f}", node) if part)


def _spent(run: Run, start: float | None) -> float | None:
    """Seconds from the start to the last sign of life."""
    last = max([event.t for event in run.events] + _finite(run.metrics[-1:], "t"), default=0.0)
    return None if start is None or last <= start else last - start


def _start(run: Run) -> float | None:
    told = number(run.record.get("started"))
    return told or min((event.t for event in run.events if event.t), default=None)


def _nodes(run: Run) -> list[str]:
    listed = run.record.get("nodes")
    if isinstance(listed, list):
        return [str(name) for name in listed]
    return list(dict.fromkeys(event.node for event in run.events if event.node))


def again(record: Fields) -> str:
    """What to type to do the run again on its backend; empty where the record does not say."""
    given = record.get("arguments")
    if not isinstance(given, list):
        return ""
    if hosts := record.get("hosts"):
        what = [] if not given else ["--script" if record.get("script") else "--args", shlex.join(map(str, given))]
        return _deploy(record, hosts, what)
    workers = number(record.get("workers"))
    backend = backend_of(record)
    parts = [f"BACKEND={shlex.quote(str(backend))}"] if backend else []
    parts += [] if workers is None else [f"WORKERS={workers:.0f}"]
    parts += [f"ARGS={shlex.quote(shlex.join(map(str, given)))}"] if given else []
    return " ".join(["make up", *parts])


def _deploy(record: Fields, hosts: list[Any], words: list[str]) -> str:
    """`fab deploy` to where the run was; `again` is what had been said beside it, quoted already."""
    named = ["--cluster", str(record["cluster"])] if record.get("cluster") else ["--hosts", ",".join(map(str, hosts))]
    return " ".join(filter(None, [shlex.join(["fab", "deploy", *named, *words]), str(record.get("again") or "")]))


def onward(run: Run, verdict: str) -> str:
    """What to type to go on from the last checkpoint; empty when all is done or there is none."""
    if verdict == "done" or not run.own or not any(run.folder.glob("checkpoints/step-*/manifest.json")):
        return ""
    if hosts := run.own.get("hosts"):
        return _deploy(run.own, hosts, ["--resume", run.folder.name])
    return f"make up RESUME={shlex.quote(f'runs/{run.folder.name}')}"


def section(run: Run, told: Summary) -> Html:
    """The head as markup, from the verdict to the command."""
    name = str(run.record.get("id") or run.folder.name)
    word = told.verdict or "no outcome"
    grave = told.verdict if told.verdict in SYMBOLS else "unknown"
    symbol = tag("span", SYMBOLS.get(told.verdict, "…"), aria_hidden="true")
    parts = [
        tag("p", "Muster run", class_="eyebrow"),
        tag("h1", name),
        tag("p", symbol, " ", word[:1].upper() + word[1:], class_=f"verdict {grave}"),
        _trouble(told),
        _figures(run, told),
        _facts(run, told),
        _commands(run, told.verdict),
    ]
    return tag("header", *parts)


def _trouble(told: Summary) -> Html:
    if not told.verdict:
        text = "No outcome was recorded: the run is still going on, or its control side was cut off."
        return tag("div", tag("p", text), class_="trouble")
    if told.verdict == "done" or not (told.message or told.hint):
        return Html("")
    where = tag("b", f"{told.culprit}: ") if told.culprit else Html("")
    hint = tag("p", tag("span", "hint "), told.hint, class_="hint") if told.hint else Html("")
    return tag("div", tag("p", where, told.message), hint, class_="trouble")


def _figures(run: Run, told: Summary) -> Html:
    on = "" if told.samples is None else f" of {words.count(told.samples)} samples"
    starts = run.record.get("starts")
    times = len(starts) if isinstance(starts, list) and run.outcome else 1
    took = f"in the last of {times} starts" if times > 1 else "from start to end"
    loss_name = "held-out loss" if told.held_out else "training loss"
    rows = [
        (None if told.accuracy is None else words.percent(told.accuracy), "held-out accuracy" + on),
        (None if told.loss is None else words.figure(told.loss), loss_name),
        (None if told.seconds is None else words.duration(told.seconds), took),
        (None if told.speed is None else words.count(told.speed), "samples per second"),
        (str(len(told.nodes)) if told.nodes else None, "node" if len(told.nodes) == 1 else "nodes"),
    ]
    return tag(
        "dl", *[tag("div", tag("dt", name), tag("dd", value)) for value, name in rows if value], class_="figures"
    )


def _facts(run: Run, told: Summary) -> Html:
    plan: Fields = next((event.fields for event in reversed(run.events) if event.kind == "plan"), {})
    backend, why = str(backend_of(run.record) or ""), str(run.record.get("why") or "")
    rows = [
        ("Backend", why if backend in why else f"{backend}: {why}" if why else backend),
        ("Recipe", run.config.get("recipe") or plan.get("recipe")),
        ("Nodes", ", ".join(told.nodes[:12]) + (f" and {len(told.nodes) - 12} more" if len(told.nodes) > 12 else "")),
        ("Started", words.date(told.start) if told.start else None),
    ]
    return tag(
        "dl", *[tag("div", tag("dt", name), tag("dd", str(value))) for name, value in rows if value], class_="facts"
    )


def _commands(run: Run, verdict: str) -> Html:
    rows = [("Go on from here", onward(run, verdict)), ("Do it again", again(run.own))]
    return join([tag("p", tag("span", name), tag("code", text), class_="command") for name, text in rows if text])
