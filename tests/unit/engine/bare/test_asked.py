"""Times of `muster logs --since` on a host without an engine mean what they mean to Docker."""

import time

import pytest

from deploy.engine.bare import asked, store

AT = "2026-11-21T03:00:00.000000000Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T03:00:00Z",
        "2026-11-21T03:00Z",
        "2026-11-21T03:00:00.000Z",
        "2026-11-21T05:00:00+02:00",
        "1795230000",
        "1795230000.0",
        AT,
    ],
)
def test_each_form_of_a_time_is_the_same_time(text):
    assert asked.moment(text) == AT


def test_a_time_of_the_log_itself_stays_exact():
    assert asked.moment("2026-11-21T03:00:00.123456789Z") == "2026-11-21T03:00:00.123456789Z"


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600), ("30m", 1800), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400)]
)
def test_a_span_is_that_long_ago(text, seconds):
    before = store.written(int((time.time() - seconds - 60) * 1e9))
    after = store.written(int((time.time() - seconds + 60) * 1e9))
    assert before < asked.moment(text) < after


@pytest.mark.parametrize(
    "text", ["10x", "2026-13-41", "2026-11-21T99:00:00Z", "m", "tomorrow", "10m tomorrow", f"{10**15}h", f"{10**300}s"]
)
def test_what_is_no_time_is_refused_in_the_words_of_an_engine(text):
    with pytest.raises(store.Refused, match="invalid value"):
        asked.moment(text)
