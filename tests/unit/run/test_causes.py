"""The closed list of causes is whole: each has words, and a slug that a program can compare."""

from __future__ import annotations

import re

from deploy.run.causes import Cause


def test_every_cause_has_a_slug_and_words() -> None:
    for cause in Cause:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cause.value)
        assert cause.words
