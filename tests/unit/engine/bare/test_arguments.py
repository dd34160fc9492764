"""On a host without an engine, options of `docker` and times mean what they mean to Docker."""

import time

import pytest

from deploy.engine.bare import arguments, store

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
def test_each_notation_of_a_time_is_read_as_the_same_time(text):
    assert arguments.moment(text) == AT


def test_a_time_in_the_logs_own_notation_stays_exact():
    assert arguments.moment("2026-11-21T03:00:00.123456789Z") == "2026-11-21T03:00:00.123456789Z"


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600), ("30m", 1800), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400)]
)
def test_a_duration_means_that_long_ago(text, seconds):
    before = store.written(time.time() - seconds - 60)
    after = store.written(time.time() - seconds + 60)
    assert before < arguments.moment(text) < after


@pytest.mark.parametrize(
    "text", ["10x", "2026-13-41", "2026-11-21T99:00:00Z", "m", "tomorrow", "10m tomorrow", f"{10**15}h", f"{10**300}s"]
)
def test_an_invalid_time_is_refused_in_the_words_of_an_engine(text):
    with pytest.raises(store.Refused, match="invalid value"):
        arguments.moment(text)


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        ("exec -i NAME python3 -", ["interactive"], "NAME python3 -"),
        ("exec --interactive NAME sh -c x", ["interactive"], "NAME sh -c x"),
        ("logs -f --tail 5 NAME", ["follow", "tail"], "NAME"),
        ("ps -a -q", ["all", "quiet"], ""),
        ("rm -f NAME", ["force"], "NAME"),
        ("run -d --restart no IMAGE", ["detach", "restart"], "IMAGE"),
    ],
)
def test_options_and_short_options_are_read_as_docker_reads_them(words, options, rest):
    got, behind = arguments.split(words.split()[1:])
    assert set(options) <= got.keys()
    assert behind == rest.split()


@pytest.mark.parametrize("words", ["--interactiv NAME sh", "-it NAME sh", "--tail", "--filter"])
def test_a_mistyped_option_or_a_missing_value_is_named(words):
    with pytest.raises(store.Refused, match=words.split()[0]):
        arguments.split(words.split())


@pytest.mark.parametrize(("restart", "times"), [("no", 0), ("always", 0), ("on-failure:3", 3)])
def test_a_container_is_restarted_as_often_as_asked(monkeypatch, restart, times):
    monkeypatch.setattr(store, "image", lambda name: {"Id": "i", "Base": "/usr", "Config": {"Env": []}})
    options, rest = arguments.split(["--restart", restart, "mine:1"])
    assert arguments.container(options, rest)["Restarts"] == times
    with pytest.raises(store.Refused, match="requires"):
        arguments.container(options, [])
