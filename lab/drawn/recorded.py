"""Recorded draws, one JSON line each, compressed: lab/drawn/recorded.jsonl.xz.

Draws to look at include the probes' answers, from which preflight's judgement can be repeated in a moment. Draws of a
score include none, so that no rule is fitted to them.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.preflight import Answers, judge
from lab.drawn import score
from lab.drawn.part import Part
from lab.drawn.trial import Tried

ARCHIVE = Path(__file__).resolve().parent / "recorded.jsonl.xz"


def load() -> list[dict[str, Any]]:
    """All recorded draws."""
    if not ARCHIVE.exists():
        return []
    return [json.loads(line) for line in lzma.decompress(ARCHIVE.read_bytes()).decode().splitlines()]


def add(tried: Iterable[Tried], of_score: bool) -> None:
    """Record draws, each only once."""
    by_id = {entry["id"]: entry for entry in load()}
    for each in tried:
        entry = asdict(each) | {"score": of_score}
        by_id[each.id] = entry if not of_score else {**entry, "answers": {}}
    text = "".join(json.dumps(entry, sort_keys=True) + "\n" for entry in by_id.values())
    made = ARCHIVE.with_suffix(".new")
    made.write_bytes(lzma.compress(text.encode(), preset=9))
    made.replace(ARCHIVE)


def judged(entry: dict[str, Any]) -> tuple[score.Mark, Any]:
    """The answer of today's rules on a recorded draw, without the proof."""
    verdict = judge(Answers.of(entry["answers"]))
    parts = [
        Part("", lambda lab: None, frozenset(causes), frozenset(map(frozenset, subjects)), frozenset(seen))
        for causes, subjects, seen in entry["parts"]
    ]
    return score.mark(parts, entry["truth"], verdict), verdict
