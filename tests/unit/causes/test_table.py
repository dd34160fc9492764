"""The table of causes is whole: the page is made from it, what its rows name is there, and each is for something."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from deploy.causes import docker_faults, table
from deploy.causes.ends import Cause
from deploy.causes.row import Row
from deploy.causes.table import ROWS, SECTIONS
from deploy.preflight import confidence
from deploy.preflight.answers import WORDS
from deploy.preflight.verdict import GROUPS
from tests.causes_page import PAGE, causes_page
from tests.sources import nodes

HOME = Path(__file__).resolve().parents[3]
# What a check of several kinds makes of parts, so that no file has it whole.
COMPOSED = {"torch-differs", "cuda-differs", "python-differs", "all-ports-rejected"}


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text() == causes_page(), "python -m tests.causes_page writes it"


def test_a_slug_stands_once_and_each_row_has_its_meaning() -> None:
    slugs = [row.slug for section in SECTIONS for row in section.rows]
    assert len(slugs) == len(set(slugs)) == len(ROWS)
    assert not [row.slug for row in ROWS.values() if not row.meaning]


def test_what_a_row_names_is_there() -> None:
    for row in ROWS.values():
        assert table.EXPLAINS[row.slug] <= ROWS.keys() - {row.slug}, row.slug
        assert row.group in ("", *GROUPS), row.slug
        assert row.fails is None or row.fails <= WORDS.keys(), row.slug
        assert row.settled_by in ("", *confidence.SETTLES), row.slug
    assert {row.settled_by for row in ROWS.values()} == {"", *confidence.SETTLES}


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.command], ids=lambda row: row.slug)
def test_a_command_names_nothing_but_its_host(row: Row) -> None:
    assert "{" not in row.hint("gpu-b").replace("{print", "")
    assert "{" not in row.hint_here().replace("{print", "")


def test_a_row_is_printed_without_a_page() -> None:
    lines = list(table.lines_of(ROWS["ssh-key"]))
    assert lines[0].startswith("cause     ssh-key: `Permission denied (publickey)`")
    assert any(line.startswith("may be    AllowUsers") for line in lines)


def places() -> dict[str, set[str]]:
    """By slug, the places beside its row that name it: a file, or the tables of signs together."""
    named = defaultdict(set)
    for path in [*(HOME / "deploy").rglob("*.py"), *(HOME / "explain").rglob("*.py")]:
        place = str(path.relative_to(HOME))
        if place.startswith("deploy/causes/"):
            continue
        place = "signs" if path.parent.name == "signs" else place
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ROWS:
                named[node.value].add(place)
    return named


def test_each_row_is_named_by_what_finds_it() -> None:
    of_ends, of_docker = {cause.entry for cause in Cause}, {cause.name for cause in docker_faults.CAUSES}
    assert ROWS.keys() - places().keys() - of_ends - of_docker == COMPOSED
