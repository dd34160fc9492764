"""The hand-written pages of docs/ stay short enough to read: each fact is written once.

`python -m tests.words` lists the pages.
"""

from tests.words import by_hand, count

MOST_WORDS, MOST_OF_A_PAGE = 26_000, 1_500
# These may be longer: what both sides must agree on, and the tests that hold each promise of security.
LONGER = {"develop/contract.md", "explanation/security.md"}


def test_hand_written_pages_are_short():
    pages = dict(by_hand())
    assert len(pages) > 50
    assert sum(pages.values()) <= MOST_WORDS, "say it once, and link to it from elsewhere"
    assert {name for name, words in pages.items() if words > MOST_OF_A_PAGE} <= LONGER


def test_code_addresses_and_generated_tables_do_not_count_as_words():
    made = "<!-- from the table of x: y -->\n| a | b |\n<!-- end of the table -->"
    assert count(f"One [two three](a/b.md#c), `four`.\n```\nno word\n```\n{made}\n| `tests/a.py::test_b` |") == 4
