"""Why a host that accepts a login starts no command: the reason from its output, and the next command."""

import pytest

from deploy.causes.finding import FAULT, UNKNOWN
from deploy.door import framing
from deploy.door.faults import FaultPlace, SshFault
from deploy.preflight.checks import hosts as host_checks

WHERE = FaultPlace("b", "10.0.0.2", 22, "u", "b")


def of_output(code, output):
    with pytest.raises(SshFault) as raised:
        raise framing.no_shell(WHERE, code, output.encode())
    return host_checks.engine("b", raised.value)


@pytest.mark.parametrize(
    ("output", "program", "library"),
    [
        ("bash: error while loading shared libraries: libtinfo.so.6: cannot open it", "bash", "libtinfo.so.6"),
        ("Error loading shared library libreadline.so.8: No file (needed by /bin/sh)", "/bin/sh", "libreadline.so.8"),
        ("sh: /lib/libc.so.6: version `GLIBC_2.38' not found (required by sh)", "sh", "/lib/libc.so.6"),
    ],
)  # fmt: skip
def test_a_shell_that_lacks_a_library_is_reported_with_the_library(output, program, library):
    told = of_output(127, f"Welcome to b\n{output}")
    assert (told.cause, told.level, told.or_else) == ("ssh-shell", FAULT, ())
    assert f"{program} lacks the library {library}" in told.text
    assert f"ldd $(command -v {program})" in told.fix
    assert f"dpkg -S {library}" in told.fix


@pytest.mark.parametrize("output", ["sh: not found", "$(reboot): error while loading shared libraries: `x`", ""])
def test_output_that_is_not_the_loaders_names_no_library(output):
    told = of_output(127, output)
    assert (told.cause, told.level) == ("ssh-shell", UNKNOWN)
    assert "ldd" not in told.fix
