"""Results of many hosts: every failing host is named, in the order in which the hosts were given."""

import pytest

from deploy.core.errors import FAILED, USAGE, DeployError, UsageError
from deploy.core.results import HostsFailed, Results


def test_values_are_in_the_order_of_the_hosts():
    results = Results({"b": 1, "a": 2})
    assert list(results.all().items()) == [("b", 1), ("a", 2)]
    assert not results.faults


def test_every_failing_host_gets_its_own_line_with_its_hint():
    results = Results({"c": DeployError("c: refused", "start sshd"), "b": 1, "a": DeployError("no such name", "look")})
    assert list(results) == ["c", "b", "a"]
    assert results.values == {"b": 1}
    with pytest.raises(HostsFailed) as caught:
        results.all()
    assert caught.value.message.splitlines() == [
        "2 of 3 hosts failed",
        "  c: refused (start sshd)",
        "  a: no such name (look)",
    ]
    assert caught.value.hint == ""
    assert list(caught.value.faults) == ["c", "a"]


def test_a_hint_that_all_hosts_share_is_given_once():
    results = Results({name: DeployError(f"{name}: unknown key", "muster trust --hosts a,b") for name in "ab"})
    with pytest.raises(HostsFailed) as caught:
        results.all()
    assert caught.value.hint == "muster trust --hosts a,b"
    assert "trust" not in caught.value.message


def test_the_fault_of_one_failing_host_is_passed_on():
    with pytest.raises(HostsFailed) as caught:
        Results({"a": 1, "b": DeployError("b: gone", "look")}).all()
    assert (caught.value.message, caught.value.hint) == ("b: gone", "look")


def test_a_message_of_several_lines_stays_one_line_per_host():
    with pytest.raises(HostsFailed) as caught:
        Results({"a": DeployError("a: said\nthis"), "b": DeployError("gone")}).all()
    assert caught.value.message.splitlines()[1:] == ["  a: said this", "  b: gone"]


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ({"a": UsageError("x"), "b": UsageError("y")}, USAGE),
        ({"a": UsageError("x"), "b": DeployError("y")}, FAILED),
    ],
)
def test_the_exit_code_is_the_one_that_all_share_or_failed(faults, code):
    with pytest.raises(HostsFailed) as caught:
        Results(faults).all()
    assert caught.value.code == code


def test_a_next_step_runs_where_the_last_one_succeeded_and_keeps_the_faults():
    def half(value):
        if value % 2:
            raise DeployError(f"{value} is odd")
        return value // 2

    gone = DeployError("gone")
    results = Results({"a": 4, "b": gone, "c": 3}).then(half)
    assert results.values == {"a": 2}
    assert results.faults["b"] is gone
    assert results.faults["c"].message == "3 is odd"
    assert list(results) == ["a", "b", "c"]
