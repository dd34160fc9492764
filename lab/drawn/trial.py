"""Try one draw: what real torchrun does, and what preflight says, quick and with its proof."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from deploy.local.probe import LocalProbe
from deploy.preflight import Answers, Verdict, confidence, judge
from deploy.preflight.probe import rehearsal
from deploy.preflight.rehearsal import Scene, findings, summary
from lab import job, trial
from lab.drawn import score
from lab.drawn.draw import Draw
from lab.fault import truths
from lab.network import PORT

STEPS = Path(__file__).resolve().parent / "steps.py"


@dataclass(frozen=True)
class Said:
    """Preflight's answer, and its mark."""

    mark: str
    cause: str
    level: str
    hosts: tuple[str, ...]
    text: str
    seconds: float


@dataclass(frozen=True)
class Tried:
    """One draw with its truth. `parts`: the right answers about each part."""

    id: str
    words: str
    kinds: tuple[str, ...]
    parts: tuple[tuple[list[str], list[list[str]], list[str]], ...]
    truth: str
    quick: Said
    full: Said
    answers: dict[str, Any]

    @property
    def fails(self) -> bool:
        """Whether the run fails, or is several times slower."""
        return self.truth != job.FINE


def attempt(draw: Draw) -> Tried:
    """Try a draw: preflight in one laboratory, torchrun in another, so that neither uses up what a rule limits."""
    with draw.lab() as lab:
        draw.break_hosts(lab)
        began = time.monotonic()
        answers = trial.answers(lab, draw.cast.run, choose=False)  # the run below does not choose either
        quick = judge(answers)
        quick_s = time.monotonic() - began
        full = _full(draw, lab, answers, quick)
        full_s = time.monotonic() - began
    ran = truth(draw)
    if ran != job.FINE and not any(part.harmful for part in draw.parts):
        # No part is meant to break it: it may have failed because this machine was busy, so it runs again.
        ran = truth(draw)
    said = {}
    for name, verdict, seconds in (("quick", quick, quick_s), ("full", full, full_s)):
        marked = _checked(draw, score.mark(draw.parts, ran, verdict))
        first = verdict.first or next(iter(verdict.warnings), None)
        said[name] = Said(
            marked,
            first.cause if first else "",
            first.level if first else "",
            first.hosts if first else (),
            first.text if first else "",
            round(seconds, 1),
        )
    kinds = tuple(part.kind for part in draw.parts)
    parts = tuple(part.right for part in draw.parts)
    return Tried(draw.id, draw.words, kinds, parts, ran, said["quick"], said["full"], _slim(answers))


@cache
def _healthy(count: int) -> float:
    return truths()[f"healthy/{count}/0"]["round_s"]


def truth(draw: Draw) -> str:
    """What real torchrun does under this draw, started as `muster deploy` or as a user would start it."""
    with draw.lab() as lab, tempfile.TemporaryDirectory() as folder:
        draw.break_hosts(lab)
        round_s = _healthy(draw.cast.count)
        ran = job.run(lab, draw.cast.run, Path(folder), round_s, last_words_s=0, script=STEPS)
        return ran.outcome


def _checked(draw: Draw, marked: score.Mark) -> str:
    """The mark; wrong if the named part is a bystander: alone it does no harm, but another part does."""
    harmful = [number for number, part in enumerate(draw.parts) if part.harmful]
    if not marked.parts or len(harmful) < 2 or set(harmful) <= set(marked.parts):
        return marked.word
    if any(_alone(draw, number) != job.FINE for number in marked.parts):
        return marked.word
    others = [number for number in harmful if number not in marked.parts]
    return score.WRONG if any(_alone(draw, number) != job.FINE for number in others) else marked.word


_known: dict[tuple[str, int], str] = {}


def _alone(draw: Draw, number: int) -> str:
    key = (draw.id, number)
    if key not in _known:
        _known[key] = truth(draw.only(draw.parts[number]))
    return _known[key]


def _full(draw: Draw, lab, answers: Answers, quick: Verdict) -> Verdict:
    """The full verdict: a rehearsal is added if it is green, or if a rehearsal decides about its problems."""
    if quick.ok:
        return _proved(draw, lab, answers)
    if doubted := confidence.doubts(quick, answers):
        tried = _proved(draw, lab, answers)
        return confidence.after_rehearsal(tried, doubted)
    return quick


def _proved(draw: Draw, lab, answers: Answers) -> Verdict:
    """The verdict with the rehearsal that preflight makes when all is green, started in the same way as the run."""
    cast, questions, shells = draw.cast, {}, []
    with ExitStack() as stack:
        for place, host in enumerate(lab.hosts):
            _, variables = job.command(lab, cast.run, place, STEPS)
            meet = variables.get("PET_RDZV_ENDPOINT") or f"{answers.plan.endpoint}:{PORT}"
            given = {"PET_NNODES": str(cast.count), "PET_NODE_RANK": str(place), "PET_RDZV_ENDPOINT": meet}
            chosen = {name: value for name, value in variables.items() if name.endswith("SOCKET_IFNAME")}
            own = {"environment": {**chosen, **given, "MUSTER_RUN_DIR": "/tmp"}, "backend": "gloo"}
            questions[host.name] = own
            argv = [*host.prefix(), trial.PYTHON]
            shells.append(stack.enter_context(LocalProbe(host.name, argv, host.variables(), rehearsal.program())))
        outcomes = rehearsal.rehearse(shells, questions)
    names = [host.name for host in lab.hosts]
    addresses = {host.name: frozenset(host.addresses.values()) for host in lab.hosts}
    endpoint = questions[names[0]]["environment"]["PET_RDZV_ENDPOINT"]
    scene = Scene(names, "gloo", endpoint, addresses=addresses)
    return replace(judge(answers, findings(outcomes, scene)), rehearsed=summary(outcomes, rehearsal.LONG))


def _slim(answers: Answers) -> dict[str, Any]:
    """The answers without the parts that are the same for all hosts here."""
    facts = {host: {**fact, "leftovers": [], "listening": []} for host, fact in answers.facts.items()}
    return replace(answers, facts=facts).json()
