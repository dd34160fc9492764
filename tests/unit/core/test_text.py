"""Numbers, sizes and times for readers, and what a command printed last."""

import re
from pathlib import Path

import pytest

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
def test_the_line_that_says_most_is_the_last_one_or_the_first_of_an_error_of_dockers(printed, line):
    assert last_line(printed.encode()) == line


def test_a_unit_is_true():
    sizes = [0, 1000, 1 << 10, 1_000_000, 1 << 20, 20_000_000, 20 << 20, 64 << 20]
    assert [amount(size) for size in sizes] == ["0 B", "1 kB", "1 kB", "1.0 MB", "1.0 MB", "20 MB", "21 MB", "67 MB"]
    assert [binary(size) for size in sizes[2:]] == ["1 KiB", "977 KiB", "1 MiB", "19 MiB", "20 MiB", "64 MiB"]
    assert [in_seconds(wait) for wait in (0, 0.5, 3.04, 9.97, 45.2)] == ["0 s", "0.5 s", "3 s", "10 s", "45 s"]


def test_sizes_and_seconds_are_formatted_in_one_file():
    files = [path for path in DEPLOY.rglob("*.py") if path != DEPLOY / "core/text.py"]
    by_hand = {str(path): BY_HAND.findall(path.read_text()) for path in files}
    assert not {path: shown for path, shown in by_hand.items() if shown}
