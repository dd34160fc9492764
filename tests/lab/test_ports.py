"""A port that a test was given is reserved until the test uses it."""

import random

from lab.ports import free_port


def test_an_unused_port_is_not_given_out_twice(monkeypatch):
    given = [free_port(), free_port()]
    monkeypatch.setattr(random.SystemRandom, "sample", lambda *_: [*given, *range(15000, 28000)])
    assert free_port() not in given
