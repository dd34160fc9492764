"""How a verdict is judged: if there are two faults, it must name both."""

from deploy.causes.finding import Finding
from deploy.preflight.verdict import Verdict
from lab import fault, trial


def test_of_two_faults_both_must_be_named_with_their_hosts():
    two = fault.Expected("x", parts=(fault.Expected("port-busy", ("a",)), fault.Expected("clock-skew", ("c",))))
    port, clock = Finding("port-busy", "ports", ("a",), ""), Finding("clock-skew", "clocks", ("c",), "")
    elsewhere = Finding("clock-skew", "clocks", ("b",), "")
    hosts = ("a", "b", "c")
    assert trial.says_all(Verdict((port, clock), {}, hosts), two)
    assert not trial.says_all(Verdict((port,), {}, hosts), two)
    assert not trial.says_all(Verdict((port, elsewhere), {}, hosts), two)
    assert trial.says_where(Verdict((port,), {}, hosts), two)
    assert not trial.says_where(Verdict((elsewhere,), {}, hosts), two)
