"""What a late follower shows: what was before, the line that says so, what is new."""

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
    """All lines in the order in which a person sees them: of each part first the output, then the story's."""
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


def test_old_output_stands_above_the_line_and_new_output_below_however_they_arrive() -> None:
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


def test_a_host_whose_clock_is_behind_does_not_hold_the_line_back_for_ever() -> None:
    looks = [(NOW + second, [output(NOW - 60.0 + second, str(second))]) for second in range(32)]
    lines = shown(late(), *looks)
    assert lines.index(LINE) == 32, "the story's line, 31 seconds, and then this"


def test_who_follows_from_the_start_has_no_such_line_and_waits_for_nothing() -> None:
    assert shown(Story(), (NOW + 0.1, [output(NOW + 0.05, "step 1")])) == ["step 1"]


def test_output_that_waits_is_shown_when_the_run_ends() -> None:
    assert shown(late(), (NOW + 0.2, [output(NOW + 0.1, "bye")])) == ["a is lost", "bye"]


def test_what_another_follower_has_found_is_not_told_again() -> None:
    story, stuck = late(), Finding(Cause.LOCKED_UP, "rank 1 (b) is stuck in train.py:5", "b", 1)
    story.recall([Happening(401.0, stuck.message, grave=True)])
    story.tell_finding(stuck, Evidence(Ranks()), NOW)
    assert [line.text for line in story] == ["a is lost", stuck.message]
    other = Finding(Cause.LOCKED_UP, "rank 0 (a) is stuck in train.py:7", "a", 0)
    story.tell_finding(other, Evidence(Ranks()), NOW)
    assert [line.text for line in story][-1] == other.message
