"""The words of `muster port`."""

import pytest

from deploy.core.errors import UsageError
from deploy.hosts.look import port


@pytest.mark.parametrize(("asked", "here", "there"), [("6006", 6006, 6006), ("7000:6006", 7000, 6006)])
def test_a_port_here_and_there(asked, here, there):
    assert port._numbers(asked) == (here, there)


@pytest.mark.parametrize("asked", ["", "0", "65536", "a", "1:2:3", "6006:", "-1"])
def test_other_words_are_no_port(asked):
    with pytest.raises(UsageError, match="not a port"):
        port._numbers(asked)
