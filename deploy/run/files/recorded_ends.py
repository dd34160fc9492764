"""How a run ended, in its outcome.json: written here, and read, because ranks may have written it, too."""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core import formats
from ...core.facts import RunFacts
from ...core.fields import digits, flag, optional, real, row, table, text, whole, words
from ...core.fields import record as shaped
from ..outcome import Result
from ..progress import State
from . import record, standing, timeline
from .standing import RUNNING, Standing

_NUMBER = optional(real(least=-1e300))
_NODE = text(300)
# What is recorded of a node's event `kept`.
_REMAINS = ("files", "bytes", "top")
_OUTCOME = shaped(
    {},
    {
        "verdict": optional(text(20)),
        **dict.fromkeys(("message", "hint", "cause", "node"), optional(words(1 << 16))),
        **dict.fromkeys(("rank", "step", "furthest", "code", "samples", "restarts"), optional(whole())),
        **dict.fromkeys(("t", "accuracy", "seconds", "samples_per_s"), _NUMBER),
        "repeats": optional(flag),
        "values": optional(table(text(200), _NUMBER, 100)),
        "kept": optional(table(_NODE, shaped({"files": whole(), "bytes": whole()}, {"top": text(20)}), 10_000)),
        "downloads": optional(table(_NODE, row(whole(), text(4096)), 10_000)),
    },
)


def end_of(run_dir: Path) -> dict[str, Any]:
    """The readable fields of outcome.json, which ranks may have written; {} if there is none.

    Without the hint if this user has not recorded the run: somebody else's hint would look like advice from Muster on
    what to type.
    """
    fields = _OUTCOME(record.read_json(run_dir / "outcome.json"), "")
    return {
        name: value
        for name, value in fields.items()
        if value is not None and (name != "hint" or record.own_fields(run_dir))
    }


def close(run_dir: Path, result: Result, state: State, seconds: float) -> dict[str, Any]:
    """Write outcome.json and timeline.jsonl, if the disk has room; returns the outcome. `seconds`: since this start.

    The code that shows the end (report/) also writes the run's page, and reports what cannot be written.
    """
    outcome = outcome_of(result, state, seconds)
    timeline.keep(run_dir, state.story)
    with suppress(OSError):
        record.write_json(run_dir / "outcome.json", outcome)
    return outcome


def outcome_of(result: Result, state: State, seconds: float) -> dict[str, Any]:
    """How a run ended, as outcome.json has it and as the end is shown."""
    values, remains = state.training.evaluated.get("values", {}), state.nodes.remains.items()
    furthest = max((view.step for view in state.ranks.views.values()), default=0)
    more = {
        "kept": {node: {name: event[name] for name in _REMAINS if name in event} for node, event in remains},
        "furthest": furthest if furthest > state.step else 0,
        "repeats": state.ranks.repeats,
        "downloads": {
            node: (event["downloads"], event.get("place", "")) for node, event in remains if event.get("downloads")
        },
        "unread": state.story.unread,
        "hosts_left": list(result.hosts_left),
    }
    return {
        "t": round(time.time(), 3),
        "verdict": result.verdict,
        "code": result.code,
        **{name: getattr(result, name) for name in ("node", "rank", "message", "hint", "cause")},
        # A stop's message has the step of the ranks' verdict; everywhere else, users see the step of the slowest rank.
        "step": (result.verdict == "stopped" and result.step) or state.step or result.step,
        "seconds": round(seconds, 1),
        "samples_per_s": round(statistics.median(state.training.rates), 1) if state.training.rates else None,
        "accuracy": values.get("accuracy"),
        "values": values,
        "samples": state.training.evaluated.get("samples"),
        "restarts": state.ranks.restarts,
        **{name: value for name, value in more.items() if value},
    }


def listing(runs: Path, live: Collection[str], named: Collection[str] = ()) -> list[RunFacts]:
    """All runs, or those that are `named`, newest last. `live`: those with nodes on this machine."""
    paths = (path for path in record.run_dirs(runs) if not named or path.name in named)
    return [_listed(path, live) for path in sorted(paths, key=begun)]


def begun(run_dir: Path) -> tuple[float, str]:
    """A key to sort runs by their start. A run that is starting has no record yet: the time of its folder counts."""
    t, name = record.started(run_dir)
    with suppress(OSError):
        t = t or run_dir.stat().st_mtime
    return t, name


def _listed(run_dir: Path, live: Collection[str]) -> RunFacts:
    outcome = end_of(run_dir)
    now = Standing(RUNNING) if run_dir.name in live else standing.of(run_dir, outcome.get("verdict") or "")
    if (record.facts(run_dir).get("format") or 0) > formats.RUN_FOLDER:
        now = Standing("of a newer Muster")
    names = (path.name.removeprefix("step-") for path in run_dir.glob("checkpoints/step-*"))
    steps = [number for name in names if (number := optional(digits())(name, "")) is not None]
    step = outcome.get("step") or max(steps, default=None)
    size = record.contents(run_dir)[1]
    reached = outcome.get("accuracy"), step, outcome.get("seconds")
    return RunFacts(run_dir.name, now.word, *reached, size, now.since, now.ask)
