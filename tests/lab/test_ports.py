"""A port that a test was given is nobody else's before it is used."""

import random

from lab.ports import free_port


def test_a_port_that_was_given_and_is_not_used_yet_is_given_to_nobody_else(monkeypatch):
    given = [free_port(), free_port()]
    monkeypatch.setattr(random.SystemRandom, "sample", lambda *_: [*given, *range(15000, 28000)])
    assert free_port() not in given
