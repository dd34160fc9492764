"""How long a run has run, by its nodes' clocks, no matter who follows it and since when."""

import pytest

from deploy.run.state.times import CLOCKS_DIFFER_S, Span, started

T = 1_000.0


def at(t, kind, rank=0, **more):
    return {"kind": kind, "t": T + t, "rank": rank, **more}


UP = [at(0, "node_up", None), at(4, "node_up", None)]


def span_of(events, since):
    """The span of these events."""
    span = Span(since)
    for event in events:
        span.take(event)
    return span


@pytest.mark.parametrize(
    ("events", "first", "seconds"),
    [
        ([], 0.0, 0.0),
        (UP, 0.0, 0.0),
        ([*UP, at(5, "began"), at(6, "began", 1), at(30, "step")], T, 30.0),
        ([*UP, at(1, "waits"), at(25, "began"), at(30, "step")], T + 25, 5.0),
        ([at(5, "began"), at(30, "step"), at(20, "step", 1)], T + 5, 25.0),
        ([*UP, at(5, "began"), at(30, "step"), *(at(90, kind) for kind in ("left", "verdict", "on_end"))], T, 30.0),
        ([*UP, at(5, "began"), at(90, "node", None)], T, 5.0),
        ([at(5, "began")], T + 5, 0.0),
    ],
)
def test_a_run_lasts_from_its_first_node_to_its_last_rank_event_without_the_wait_for_gpus(events, first, seconds):
    span = span_of(events, 0.0)
    assert (span.first, span.seconds) == (first, seconds)


def test_events_of_earlier_starts_do_not_count():
    span = span_of([at(-500, "began"), *UP, at(5, "began"), at(30, "step")], T)
    assert (span.first, span.seconds) == (T, 30.0)


@pytest.mark.parametrize(
    ("record", "since"),
    [
        ({}, 0.0),
        ({"starts": []}, 0.0),
        ({"starts": [{"t": 5_000.0}]}, 0.0),  # no older start exists, so the hosts' clocks do not matter
        ({"starts": [{"t": 10.0}, {"t": 20.0}]}, 0.0),
        ({"starts": [{"t": 200.0}, {"t": 5_000.0}]}, 5_000.0 - CLOCKS_DIFFER_S),
        ({"starts": [{"t": 200.0}, {"t": 5_000.0}], "foreign": ["script"]}, 0.0),
        ({"starts": [{"t": 200.0}, {"t": 5_000.0}], "foreign": ["image"]}, 5_000.0 - CLOCKS_DIFFER_S),
    ],
)
def test_the_start_is_the_records_last_unless_an_attach_wrote_the_record(record, since):
    assert started(record) == since
