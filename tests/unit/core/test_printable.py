"""Others' text is made harmless: it moves no cursor, reverses no letters and fills no more lines than one."""

import unicodedata

import pytest

from deploy.core.printable import console_line, is_redrawn, one_line, plain, visible, visible_values, without_redraws


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("Grüße, 日本, می‌خواهم, 👩‍💻", "Grüße, 日本, می‌خواهم, 👩‍💻"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\rb\x7f\x9b", r"a\rb\x7f\x9b"),
        ("gpj\u202etxt", r"gpj\u202etxt"),
        ("a\u200bb\ufeff\U000e0041", r"a\u200bb\ufeff\U000e0041"),
        ("\ud800", r"\ud800"),
        # Format characters of any block, private use, unassigned; marks and letters without a shape.
        ("a\u061c\u180e\u2061\u2065\ufff9\U000110bd\U0001d173\U000e0001", None),
        ("a\ue000\U00100000\u0378\U0003ffff", None),
        ("a\u034f\u115f\u3164\uffa0\ufe00\ufe0f\U000e0100", None),
        # Joiners and styles where no real text has them: names that differ look the same.
        ("r\u200dm\u200c", r"r\u200dm\u200c"),
        ("а\u200d\u200d\u200dа", r"а\u200d\u200d\u200dа"),
        ("👩\u200d", r"👩\u200d"),
        ("☃\ufe0f\ufe0f", "☃\ufe0f" + r"\ufe0f"),
        ("é\ufe0f1\ufe0f", r"é\ufe0f1\ufe0f"),
        # Real text stays as it is.
        ("❤️‍🔥 👍🏽 ©️ 1️⃣ 葛󠄀城 क्‍ष a\u00a0b\u202fc\u3000d", "❤️‍🔥 👍🏽 ©️ 1️⃣ 葛󠄀城 क्‍ष a\u00a0b\u202fc\u3000d"),
    ],
)
def test_characters_that_a_terminal_would_obey_are_escaped(text, shown):
    shown = text[0] + text[1:].encode("unicode_escape").decode() if shown is None else shown
    assert visible(text) == shown
    assert one_line(text) == shown.replace("\n", "\\n").replace("\t", " ")


def test_no_character_without_a_shape_is_printed_by_itself():
    """Over all of Unicode: only what has a shape, blanks, the tab and the newline stay as they are."""
    stays = [letter for letter in map(chr, range(0x110000)) if visible(f"a{letter}b") == f"a{letter}b"]
    assert {unicodedata.category(letter)[0] for letter in stays} == set("CLMNPSZ")
    assert [letter for letter in stays if unicodedata.category(letter)[0] == "C"] == ["\t", "\n"]
    assert {unicodedata.category(letter) for letter in stays if unicodedata.category(letter)[0] == "Z"} == {"Zs"}
    assert [visible(letter) for letter in stays] == stays


def test_values_for_a_page_are_made_visible_at_any_depth():
    value = {"a\u202e": ["\x07", ("\ud800", 1)], "b": None}
    assert visible_values(value) == {r"a\u202e": [r"\x07", [r"\ud800", 1]], "b": None}


def test_a_progress_bar_is_shown_in_its_last_state_without_colours():
    assert plain("\x1b[31mred\x1b[0m \x1b[2K") == "red "
    assert console_line("10 %\r\x1b[32m90 %\x1b[0m\r  ") == "90 %"
    assert console_line("a\r\n") == "a"
    assert console_line(" [==>.] Loss: 2.3        \b\b\b\b\b\b\b 10/10 \r") == " [==>.] Loss: 2.3         10/10 "
    assert console_line(" \r ") == ""
    assert console_line("a\x07b") == r"a\x07b"


def test_redrawn_bars_become_one_line_of_the_same_length():
    bars = "1\n2\x1b[A\n1\n\x1b[1A\x1b[A\r\nend\n"
    one = without_redraws(bars)
    assert len(one) == len(bars)
    assert one.count("\n") == bars.count("\n") - 2
    assert [is_redrawn(line) for line in ("2\x1b[A", "2\x1b[1A\r", "2\x1b[A x", "2")] == [True, True, False, False]
