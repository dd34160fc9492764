"""How the runs of a folder ended, from outcome.json, which ranks may have written, too."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...core import formats
from ...core.facts import RunFacts
from ...core.fields import digits, optional, real, row, table, text, whole, words
from ...core.fields import record as shaped
from . import record

_NUMBER = optional(real(least=-1e300))
_COUNT, _WORDS, _NODE = optional(whole()), optional(words(1 << 16)), text(300)
_OUTCOME = shaped(
    {},
    {
        **{"verdict": optional(text(20)), "message": _WORDS, "hint": _WORDS, "cause": _WORDS, "node": _WORDS},
        **{"rank": _COUNT, "step": _COUNT, "code": _COUNT, "samples": _COUNT, "restarts": _COUNT, "t": _NUMBER},
        **{"accuracy": _NUMBER, "seconds": _NUMBER, "samples_per_s": _NUMBER},
        "values": optional(table(text(200), _NUMBER, 100)),
        "kept": optional(table(_NODE, shaped({"files": whole(), "bytes": whole()}), 10_000)),
        "downloads": optional(table(_NODE, row(whole(), text(4096)), 10_000)),
    },
)


# What lists and pages call a run without a verdict: its nodes still write, or its end was not recorded.
RUNNING, UNFINISHED = "running", "unfinished"


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


def listing(runs: Path, live: Collection[str], named: str = "*") -> list[RunFacts]:
    """All runs whose names match `named`, newest last."""
    return [_listed(path, live) for path in sorted(record.run_dirs(runs, named), key=record.started)]


def _listed(run_dir: Path, live: Collection[str]) -> RunFacts:
    outcome = end_of(run_dir)
    verdict = RUNNING if run_dir.name in live else outcome.get("verdict") or UNFINISHED
    if (record.facts(run_dir).get("format") or 0) > formats.RUN_FOLDER:
        verdict = "of a newer Muster"
    names = (path.name.removeprefix("step-") for path in run_dir.glob("checkpoints/step-*"))
    steps = [number for name in names if (number := optional(digits())(name, "")) is not None]
    step = outcome.get("step") or max(steps, default=None)
    return RunFacts(
        run_dir.name, verdict, outcome.get("accuracy"), step, outcome.get("seconds"), record.contents(run_dir)[1]
    )
