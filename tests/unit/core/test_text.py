"""What a command printed last, in one line."""

import pytest

from deploy.core.text import last_line

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
