"""The closed list of end causes: each has a slug that programs can compare, and an entry of its own kind."""

from __future__ import annotations

import re

from deploy.causes.end_causes import Cause
from deploy.causes.table import ROWS, end_of


def test_every_cause_has_a_slug() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", cause.value) for cause in Cause)


def test_an_end_cause_and_its_entry_are_of_the_same_kind() -> None:
    same = {Cause.CONTAINER_MEMORY: Cause.HOST_MEMORY}
    with_entry = [cause for cause in Cause if cause.entry]
    assert {cause: end_of(cause.entry) for cause in with_entry} == {each: same.get(each, each) for each in with_entry}
    assert {cause.entry for cause in with_entry} <= ROWS.keys()
