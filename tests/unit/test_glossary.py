"""docs/develop/glossary.md: the words in its second table are never printed, and no page uses them."""

import ast
import re
from pathlib import Path

import pytest

from tests.sources import nodes

HOME = Path(__file__).resolve().parents[2]
GLOSSARY = HOME / "docs/develop/glossary.md"
_, _, TABLE = GLOSSARY.read_text().partition("| not | but |\n|---|---|\n")
GONE = [words for row in TABLE.splitlines() for words in row.split("|")[1].strip().split(", ")]
# The glossary itself, and the log, which keeps its words of the time.
KEPT = {GLOSSARY, HOME / "docs/decisions/log.md"}


def printed(path):
    """Each string literal of a file that is not a docstring."""
    docs = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]


def test_the_glossary_lists_words_to_avoid():
    assert len(GONE) > 8


@pytest.mark.parametrize("half", ["deploy", "trainer", "muster"])
def test_no_program_prints_a_word_to_avoid(half):
    found = {
        (path.relative_to(HOME).as_posix(), words)
        for path in sorted((HOME / half).rglob("*.py"))
        for text in printed(path)
        for words in GONE
        if words in text
    }
    assert not found


def test_no_page_uses_a_word_to_avoid():
    pages = [path for path in (*HOME.glob("*.md"), *(HOME / "docs").rglob("*.md")) if path not in KEPT]
    assert len(pages) > 50
    found = {
        (path.name, words) for path in pages for words in GONE if re.search(rf"\b{re.escape(words)}", path.read_text())
    }
    assert not found
