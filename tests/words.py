"""Counts the hand-written words of docs/: python -m tests.words

Not counted: decisions, which have their own limit; pages and tables that python -m tests.reference makes; code blocks,
link addresses, and names of tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.reference.pages import HOME, MAKERS

DOCS = HOME / "docs"
_MADE_TABLE = "<!-- from the table of "
_LEFT_OUT = (
    re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL),
    re.compile(rf"{_MADE_TABLE}.*?<!-- end of the table -->", re.DOTALL),
    re.compile(r"`tests/[^`]*`|\[test_\w+\]\([^)\s]*\)"),
    re.compile(r"(?<=\])\([^)\s]*\)"),
)


def by_hand() -> Iterator[tuple[str, int]]:
    """Each hand-written page, with its number of words."""
    for page in sorted(DOCS.rglob("*.md")):
        name, text = page.relative_to(DOCS).as_posix(), page.read_text()
        if not name.startswith("decisions/") and (page not in MAKERS or _MADE_TABLE in text):
            yield name, count(text)


def count(text: str) -> int:
    """The number of words of a page: blank-separated texts with a letter or a digit."""
    for pattern in _LEFT_OUT:
        text = pattern.sub(" ", text)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def main() -> None:
    """Print a line for each page, the longest last, and the sum."""
    pages = sorted(by_hand(), key=lambda page: page[1])
    for name, words in pages:
        print(f"{words:6} {name}")
    print(f"{sum(words for _, words in pages):6} in {len(pages)} pages")


if __name__ == "__main__":
    main()
