"""What a late follower shows: what happened before it, the line that marks where it began, and what is new."""

from __future__ import annotations

from typing import Any

from deploy.causes.end_causes import Cause
from deploy.run.inquest.causes import Finding
from deploy.run.state.evidence import Evidence
from deploy.run.state.ranks import Ranks
from deploy.run.state.story import CatchingUp, Happening, Story

NOW = 1000.0
LINE = "muster attach follows the run from here on"


def output(t: float, line: str) -> dict[str, Any]:
    return {"kind": "output", "t": t, "node": "a", "rank": 0, "line": line, "moving": False}


def shown(story: Story, *looks: tuple[float, list[dict[str, Any]]]) -> list[str]:
    """All lines in the order in which a user sees them: in each part first the output, then the lines of the story."""
    here, lines, before = CatchingUp(story, NOW), list[str](), 0
    for now, events in looks:
        for part in here.parts(events, now):
            lines += [event["line"] for event in part]
            lines += [line.text for line in story[before:]]
            before = len(story)
    return lines + [event["line"] for event in here.rest()]


def late() -> Story:
    story = Story()
    story.recall([Happening(400.0, "a is lost")])
    return story


def test_old_output_is_shown_above_the_line_and_new_output_below_in_any_order_of_arrival() -> None:
    looks = [
        (NOW + 0.1, []),
        (NOW + 0.9, [output(450.0, "Traceback")]),
        (NOW + 1.8, [output(998.0, "resumed at step 450"), output(NOW + 1.7, "step 620")]),
        (NOW + 2.0, [output(NOW + 1.9, "step 621")]),
        (NOW + 3.4, []),
        (NOW + 4.0, [output(NOW + 3.9, "step 640")]),
    ]
    assert shown(late(), *looks) == [
        *("a is lost", "Traceback", "resumed at step 450", LINE, "step 620", "step 621", "step 640")
    ]


def test_a_host_whose_clock_is_behind_delays_the_line_only_for_a_while() -> None:
    looks = [(NOW + second, [output(NOW - 60.0 + second, str(second))]) for second in range(32)]
    lines = shown(late(), *looks)
    assert lines.index(LINE) == 32, "the story's line, 31 seconds, and then this"


def test_a_follower_from_the_start_sees_no_such_line_and_waits_for_nothing() -> None:
    assert shown(Story(), (NOW + 0.1, [output(NOW + 0.05, "step 1")])) == ["step 1"]


def test_withheld_output_is_shown_when_the_run_ends() -> None:
    assert shown(late(), (NOW + 0.2, [output(NOW + 0.1, "bye")])) == ["a is lost", "bye"]


def test_a_finding_of_another_follower_is_not_reported_again() -> None:
    story, stuck = late(), Finding(Cause.LOCKED_UP, "rank 1 (b) is stuck in train.py:5", "b", 1)
    story.recall([Happening(401.0, stuck.message, grave=True)])
    story.tell_finding(stuck, Evidence(Ranks()), NOW)
    assert [line.text for line in story] == ["a is lost", stuck.message]
    other = Finding(Cause.LOCKED_UP, "rank 0 (a) is stuck in train.py:7", "a", 0)
    story.tell_finding(other, Evidence(Ranks()), NOW)
    assert [line.text for line in story][-1] == other.message
