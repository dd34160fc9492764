"""docs/ can be read: it says a thing once. `python -m tests.words` lists its pages."""

from tests.words import by_hand, count

MOST_WORDS, MOST_OF_A_PAGE = 26_000, 1_500
# What two sides have to agree on, and what each promise of security is held by.
LONGER = {"develop/contract.md", "explanation/security.md"}


def test_what_is_written_by_hand_is_short():
    pages = dict(by_hand())
    assert len(pages) > 50
    assert sum(pages.values()) <= MOST_WORDS, "say it once, and link to it from elsewhere"
    assert {name for name, words in pages.items() if words > MOST_OF_A_PAGE} <= LONGER


def test_code_addresses_and_made_tables_are_no_words():
    made = "<!-- from the table of x: y -->\n| a | b |\n<!-- end of the table -->"
    assert count(f"One [two three](a/b.md#c), `four`.\n```\nno word\n```\n{made}\n| `tests/a.py::test_b` |") == 4
