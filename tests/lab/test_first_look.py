"""The first look at a fault is kept as it was, and of two faults at once both have to be named."""

import json

from benchmarks import preflight_later
from deploy.causes.finding import Finding
from deploy.preflight.verdict import Verdict
from lab import fault, trial


def looked(named, right, expected="link-loss"):
    """A trial as benchmarks/preflight.py has it."""
    return {"id": "bad_wire/3/1", "name": "bad wire", "count": 3, "truth": "fails", "expected": expected, "where": "b",
            "said": named, "said_where": "b", "right": right, "right_where": right, "alarm": bool(named),
            "all_named": right}  # fmt: skip


def test_a_first_look_stays_when_the_rules_are_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight_later, "FIRST", tmp_path / "first_look.json")
    preflight_later.keep([looked("link-slow", False)])
    preflight_later.keep([looked("link-loss", True)])
    assert json.loads((tmp_path / "first_look.json").read_text())["bad_wire/3/1"]["said"] == "link-slow"
    page = preflight_later.section(preflight_later.known(), [looked("link-loss", True)])
    assert "| right cause first, right host or link | 0 of 1 | 1 of 1 |" in page
    assert "| bad wire | 3 | fails | link-loss (b) | **link-slow (b)** | link-loss (b) |" in page


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
