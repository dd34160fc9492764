"""Numbers, sizes and times as text, and the line of a command's output that says most."""

import re
from pathlib import Path

import pytest

from deploy.core import text
from deploy.core.text import amount, binary, in_seconds, last_line

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
BY_HAND = re.compile(r"\{[^{}]*:[^{}+]*[fg]\} s\b|\} ?(?:of [^\"]*)?(?:kB|KB|KiB|MB|MiB|GB|GiB)\b|>> ?20\}")

SHIM = """docker: Error response from daemon: failed to start: runtime/cgo: pthread_create failed: Resource unavailable
SIGABRT: abort
PC=0x7f5 m=3 sigcode=18446744073709551610
: exit status 2: unknown.

Run 'docker run --help' for more information"""


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("a\nb\n\n", "b"),
        ("", "no message"),
        (SHIM, SHIM.splitlines()[0]),
        (
            "pulling\ndocker: Error response from daemon: no such image.\nSee 'docker run --help'.",
            "docker: Error response from daemon: no such image.",
        ),
    ],
    ids=["last", "none", "a stack below", "a hint below"],
)
def test_the_line_that_says_most_is_the_last_or_the_first_of_a_docker_error(printed, line):
    assert last_line(printed) == line


def test_decimal_and_binary_units_are_right():
    sizes = [0, 1000, 1 << 10, 1_000_000, 1 << 20, 20_000_000, 20 << 20, 64 << 20]
    assert [amount(size) for size in sizes] == ["0 B", "1 kB", "1 kB", "1.0 MB", "1.0 MB", "20 MB", "21 MB", "67 MB"]
    assert [binary(size) for size in sizes[2:]] == ["1 KiB", "977 KiB", "1 MiB", "19 MiB", "20 MiB", "64 MiB"]
    assert [in_seconds(wait) for wait in (0, 0.5, 3.04, 9.97, 45.2)] == ["0 s", "0.5 s", "3 s", "10 s", "45 s"]


def test_sizes_and_seconds_are_formatted_in_one_file():
    files = [path for path in DEPLOY.rglob("*.py") if path != DEPLOY / "core/text.py"]
    by_hand = {str(path): BY_HAND.findall(path.read_text()) for path in files}
    assert not {path: shown for path, shown in by_hand.items() if shown}


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        ([text.figure(value) for value in (0, 0.08123, 5410, 1.23e-7, -2.5, 1e15, float("inf"))],
         ["0", "0.0812", "5,410", "1.23e-07", "-2.50", "1.00e+15", "inf"]),
        ([text.count(1796.6), text.several(1, "node"), text.several(2000, "node")], ["1,797", "1 node", "2,000 nodes"]),
        ([text.percent(share) for share in (0.5, 0.99999, 0.999, 1, 1.5)],
         ["50.0 %", "99.9 %", "99.9 %", "100.0 %", "150.0 %"]),
        ([text.milliseconds(value) for value in (0.44, 999.94, 1204)], ["0.4 ms", "999.9 ms", "1,204 ms"]),
        ([text.amount(value) for value in (999, 340_000, 312e6, 1.2e9, 3.5e12)],
         ["999 B", "340 kB", "312 MB", "1.2 GB", "3.5 TB"]),
        ([text.binary(3 << 29), text.binary(100), text.gpu_memory(81559)], ["1.5 GiB", "100 B", "79.6 GiB"]),
        ([text.duration(value) for value in (21.44, 185, 8040, 273_600, 59.9)],
         ["21.4 s", "3 min 05 s", "2 h 14 min", "3 d 04 h", "59.9 s"]),
        ([text.clock(value) for value in (7, 750, 11_232, 184_032, -3)],
         ["0:07", "12:30", "3:07:12", "2 d 3:07:12", "0:00"]),
        ([text.clock(value, tenths=True) for value in (7.3, -1.2, 0, 3599.99, 3600.5)],
         ["0:07.3", "-0:01.2", "0:00.0", "1:00:00", "1:00:00"]),
        ([text.ranks_in_words(numbers) for numbers in ([3], [0, 1, 2, 5, 5], [2, 1], range(0, 20, 2))],
         ["rank 3", "ranks 0-2, 5", "ranks 1-2", "ranks 0, 2, 4, 6, 8, 10, 12, 14, ..."]),
        ([text.shortened("abc", 3), text.shortened("abcd", 3)], ["abc", "abc…"]),
        ([text.listed(names) for names in ("", "a", "ab", "abcd", "abcde")],
         ["", "a", "a and b", "a, b, c and d", "a, b, c and 2 more"]),
        ([text.subject(names, "drops", "drop") for names in ("a", "ab")], ["a drops", "a and b drop"]),
        ([text.date(0), text.date(1e18)], ["1970-01-01 00:00:00 UTC", "1.00e+18"]),
        ([text.in_seconds(2.44, 2)], ["2.44 s"]),
    ],
)  # fmt: skip
def test_a_figure_is_short_and_has_its_unit(shown, wanted):
    assert shown == wanted


def test_the_progress_of_a_transfer_has_its_rate_and_time_left():
    assert text.pace(312_000_000, 456_000_000, 13.0) == "312 MB of 456 MB, 24 MB/s, 6 s left"
    assert text.pace(456_000_000, 456_000_000, 19.0) == "456 MB of 456 MB, 24 MB/s, in 19.0 s"
    assert text.pace(0, 456_000_000, 1.0) == text.pace(0, 456_000_000, 0.0) == "0 B of 456 MB"
    assert text.pace(5, 10, 0.0) == "5 B of 10 B"
