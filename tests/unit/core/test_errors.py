"""A fault says briefly what was expected and what came; exit codes and formats are described in words."""

import signal
from enum import IntEnum

import pytest

from deploy.core.errors import FAILED, REFUSED, USAGE, BadAnswer, DeployError, Refused, UsageError
from deploy.core.facts import SIGNALS, ended_how
from deploy.core.formats import RUN_FOLDER, refuse_newer


@pytest.mark.parametrize(
    ("got", "shown"),
    [
        ("x\x1b", r"'x\x1b'"),
        ("a" * 60, repr("a" * 60)),
        ("a" * 61, f"{'a' * 60!r}... (61 characters)"),
        (None, "nothing"),
        (1.5, "1.5"),
        (-7, "-7"),
        (10**60, "a number of too many digits"),
        (-(10**60), "a number of too many digits"),
        ({"a": "secret"}, "an object"),
        (["secret"], "a list"),
        (b"secret", "a bytes"),
    ],
)
def test_the_value_that_came_is_shown_briefly(got, shown):
    fault = BadAnswer("state", "true or false", got, "look")
    assert (fault.message, fault.hint) == (f"state: expected true or false, got {shown}", "look")


def test_each_kind_of_fault_has_its_exit_code():
    codes = [fault.code for fault in (DeployError("x"), UsageError("x"), Refused("x"), DeployError("x", code=9))]
    assert codes == [FAILED, USAGE, REFUSED, 9]
    assert DeployError("x").brief == "x"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with code 0"), (1, "ended with code 1"), (128, "ended with code 128"), (255, "ended with code 255"),
        (-9, "was killed by SIGKILL"), (137, "was killed by SIGKILL"), (-200, "was killed by signal 200"),
    ],
)  # fmt: skip
def test_an_exit_code_is_described_in_words(code, words):
    assert ended_how(code) == words


def test_a_hosts_signals_are_named_by_linux_numbers_on_any_system(monkeypatch):
    of_macos = {"SIGEMT": 7, "SIGBUS": 10, "SIGSYS": 12, "SIGUSR1": 30, "SIGUSR2": 31}
    ours = {each.value: each.name for each in signal.Signals if each.value <= 31}
    assert ours == SIGNALS
    monkeypatch.setattr(signal, "Signals", IntEnum("Signals", of_macos))
    assert [ended_how(128 + number) for number in (7, 10)] == ["was killed by SIGBUS", "was killed by SIGUSR1"]


def test_only_a_format_of_a_newer_muster_is_refused():
    for number in (None, 0, 1, RUN_FOLDER, "9"):
        refuse_newer("runs/a", number, RUN_FOLDER)
    with pytest.raises(UsageError, match=f"^runs/a has format 9: .* only reads formats up to {RUN_FOLDER}$") as fault:
        refuse_newer("runs/a", 9, RUN_FOLDER)
    assert fault.value.hint.startswith("update Muster here")
