"""What a drill makes of what it sees: who spoke first of a fault, and whether training went on. Pure.

hosts/drill.py injects the faults and brings the lines of the story and the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.text import duration, in_seconds
from .events import Event
from .progress import State
from .story import Happening

# So long a node is paused; its host ends the pause by itself after GUARD_S, if the drill cannot.
PAUSE_S, GUARD_S = 10.0, 20.0
# So long a fault may last. After training has gone on for SETTLE_S, the next words belong to the next fault.
LIMIT_S, SETTLE_S = 180.0, 5.0
# So long the run may take until all ranks train for the first time.
BEGIN_S = 300.0


@dataclass(frozen=True)
class Fault:
    """A harmless fault. `says`: what the first words about it should contain."""

    name: str
    says: str
    pauses: bool = False


RANK = Fault("a rank is killed", r"killed by SIGKILL")
PAUSE = Fault(f"a node is paused for {in_seconds(PAUSE_S)}", r"is paused|is stopped", pauses=True)
AGENT = Fault("a node's agent is killed", r"killed by SIGKILL|restarts|is lost")
FAULTS = (RANK, PAUSE, AGENT)


@dataclass(frozen=True)
class Trial:
    """One fault on one host; `rank` is the first rank of its `node`. Times are seconds since the fault.

    `lines_before`: so many lines the story had before. `undone_s`: when a pause ended, `step`: where the rank was then.
    `again`: the rank has started again, or is no longer paused. `end`: how the run ended, if it did.
    """

    fault: Fault
    host: str
    node: str
    rank: int = 0
    lines_before: int = 0
    report: str = ""
    report_s: float | None = None
    again: bool = False
    step: int = -1
    back_s: float | None = None
    end: str = ""

    @property
    def back(self) -> bool:
        """Whether training went on."""
        return self.back_s is not None

    @property
    def expected(self) -> bool:
        """Whether the first words named the node, and what had been done to it."""
        return self.node in self.report and re.search(self.fault.says, self.report) is not None

    def over(self, after_s: float) -> bool:
        """Whether nothing more is to be expected of this fault."""
        return bool(self.end) or after_s >= (LIMIT_S if self.back_s is None else self.back_s + SETTLE_S)

    def values(self) -> dict[str, Any]:
        """The trial as `--json` prints it."""
        return {
            "kind": "fault",
            "fault": self.fault.name,
            "host": self.host,
            "said": self.report,
            "said_s": self.report_s,
            "expected": self.expected,
            "back": self.back,
            "back_s": self.back_s,
        }


def assign(hosts: Sequence[str]) -> list[tuple[Fault, str]]:
    """Which fault meets which host: the last one first, and each the next one."""
    return [(fault, hosts[-1 - number % len(hosts)]) for number, fault in enumerate(FAULTS)]


def ready(state: State) -> bool:
    """Whether a rank of each node trains, and there is a checkpoint to go on from."""
    views = [state.rank_of(node) for node in state.names]
    return bool(state.checkpoint) and all(view is not None and view.training for view in views)


def undone(trial: Trial, state: State) -> Trial:
    """The trial after its pause has ended: steps beyond the present one are new."""
    view = state.rank_of(trial.node)
    return replace(trial, again=True, step=view.step if view else -1)


def heard(trial: Trial, after_s: float, story: Sequence[Happening], events: Iterable[Event]) -> Trial:
    """The trial with what came in since: new lines of the story, and events in the order of time.

    A rank that was killed goes on once it has started again and reports a step. A step of a rank that is alone there
    says that all train: each waits for the others in every step.
    """
    if not trial.report:
        lines = (line.text for line in story[trial.lines_before :] if line.grave or trial.node in line.text)
        if text := next(lines, ""):
            trial = replace(trial, report=text, report_s=round(after_s, 1))
    for event in events:
        if event.get("rank") != trial.rank or event.get("node") != trial.node:
            continue
        if event["kind"] == "started" and not trial.fault.pauses:
            trial = replace(trial, again=True)
        if event["kind"] == "step" and trial.again and not trial.back and event["step"] > trial.step:
            trial = replace(trial, back_s=round(after_s, 1))
    return trial


def passed(trials: Sequence[Trial]) -> bool:
    """Whether every fault was tried, and training went on after each."""
    return len(trials) == len(FAULTS) and all(trial.back for trial in trials)


def rows(trials: Sequence[Trial], planned: Sequence[tuple[Fault, str]]) -> list[list[str]]:
    """The table: fault, host, what was said first and when, and when training went on."""
    table = [
        [
            trial.fault.name,
            trial.host,
            f"back after {duration(trial.back_s)}" if trial.back_s is not None else f"NOT BACK {trial.end}".rstrip(),
            f"after {duration(trial.report_s)}" if trial.report_s is not None else "",
            (trial.report if trial.expected else f"other words than expected: {trial.report}")
            if trial.report
            else "nothing was said",
        ]
        for trial in trials
    ]
    return table + [[fault.name, host, "not tried", "", ""] for fault, host in planned[len(trials) :]]


HEAD = ("fault", "host", "training", "said", "first words")
