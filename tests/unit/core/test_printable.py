"""Others' text is made harmless: it moves no cursor, reverses no letters and fills no more lines than one."""

import pytest

from deploy.core.printable import console_line, is_redrawn, one_line, plain, visible, without_redraws


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
    ],
)
def test_characters_that_a_terminal_would_obey_are_escaped(text, shown):
    assert visible(text) == shown
    assert one_line(text) == shown.replace("\n", "\\n").replace("\t", " ")


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
