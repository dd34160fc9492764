"""A cause is sure if it explains what failed, and no other cause explains it as well."""

import pytest

from deploy.causes.finding import FAULT, UNKNOWN, WARNING, Finding
from deploy.preflight import Verdict, judge
from deploy.preflight.confidence import is_left_to_rehearsal, ranked, seen_in_words
from lab.answers import answers

ENDS = ("c", "b")


def finding(cause, level=FAULT, cells=(ENDS,), group="links"):
    return Finding(cause, group, ("b", "c"), f"words of {cause}", (f"seen: {cause}",), "", f"fix of {cause}", level,
                   cells=cells)  # fmt: skip


DROPS = {"b": {"firewall": {"read": True, "rules": [], "grown": ["filter: -A INPUT -p tcp -j DROP"]}}}


def first(findings, how, control=DROPS):
    """The first finding if data calls from c to b end like this.

    `control` holds the firewall counters.
    """
    seen = answers(outcome=lambda s, t, k: how if (s, t, k) == (*ENDS, "data") else "ok", control=control)
    return Verdict(tuple(ranked(findings, seen))).first


def test_a_cause_that_explains_what_failed_is_sure_and_says_how_much_it_explains():
    said = first([finding("data-ports-dropped")], "dropped")
    assert (said.cause, said.level) == ("data-ports-dropped", FAULT)
    assert said.explains == "explains 1 of 1 pairs of hosts with failed connections"


@pytest.mark.parametrize(
    "control",
    [
        {},
        {"b": {"firewall": {"read": True, "grown": ["filter: -A INPUT -p udp -j DROP"]}}},
        {"b": {"firewall": {"read": True, "grown": ["filter: -A INPUT -p tcp --dport 22 -j DROP"]}}},
        {"a": {"firewall": {"read": True, "grown": ["filter: -A INPUT -p tcp -j DROP"]}}},
    ],
)
def test_without_a_second_piece_of_evidence_a_cause_is_only_likely(control):
    said = first([finding("data-ports-dropped")], "dropped", control)
    assert (said.cause, said.level) == ("data-ports-dropped", UNKNOWN)
    assert said.text.startswith("connections from c to b on ports ")
    assert "get no answer" in said.text.partition("; this looks like: ")[0]
    assert said.text.endswith("; this looks like: words of data-ports-dropped")
    assert said.or_else


def test_if_two_causes_explain_equally_none_is_sure_and_both_are_named():
    said = first([finding("data-ports-dropped"), finding("link-loss", WARNING)], "dropped")
    assert (said.cause, said.level, said.odd) == ("not-known", UNKNOWN, ("data-ports-dropped", "link-loss"))
    assert said.fix == "fix of data-ports-dropped; or fix of link-loss"
    assert "words of link-loss" in said.text
    assert "equally well" in said.explains
    assert said.text.startswith("connections from c to b on ports ")


def test_a_cause_that_would_make_calls_fail_differently_is_no_rival():
    said = first([finding("data-ports-rejected"), finding("mtu-blackhole")], "refused")
    assert (said.cause, said.level) == ("data-ports-rejected", FAULT)


def test_only_calls_that_are_answered_sometimes_are_left_to_the_rehearsal():
    for how, left in (("at-times", True), ("dropped", False)):
        seen = answers(outcome=lambda s, t, k, how=how: how if (s, t, k) == (*ENDS, "data") else "ok")
        said = Verdict(tuple(ranked([finding("link-loss")], seen))).first
        assert is_left_to_rehearsal(said, seen) == left


def test_a_doubt_that_may_spare_a_runs_few_calls_is_left_to_the_rehearsal():
    unanswered = answers(outcome=lambda s, t, k: "dropped" if (s, t, k) == (*ENDS, "data") else "ok")
    assert is_left_to_rehearsal(finding("few-ports", UNKNOWN), unanswered), "few local ports may be enough"
    assert not is_left_to_rehearsal(finding("few-ports"), unanswered), "what is sure needs no rehearsal"
    often = answers(often=((*ENDS, 17, 20),))
    assert is_left_to_rehearsal(finding("link-loss", UNKNOWN), often), "of many calls some are answered"
    assert not is_left_to_rehearsal(finding("link-loss", UNKNOWN, cells=(("a", "b"),)), often)
    assert not is_left_to_rehearsal(finding("mtu-blackhole", UNKNOWN), often)


def test_the_fault_that_explains_more_comes_first():
    how = {("a", "b"): "refused", ("c", "b"): "dropped", ("c", "a"): "dropped"}
    seen = answers(outcome=lambda s, t, k: how.get((s, t), "ok") if k == "data" else "ok", control=DROPS)
    less = finding("data-ports-rejected", cells=(("a", "b"),))
    more = finding("data-ports-dropped", cells=(("c", "b"), ("c", "a")))
    assert [said.cause for said in ranked([less, more], seen)] == [more.cause, less.cause]


def test_the_rendezvous_port_is_named_although_data_ports_surround_it():
    wide = {host: {"port_range": [20_000, 60_999]} for host in ("a", "b", "c")}
    seen = answers(change=wide, outcome=lambda s, t, k: "dropped" if (s, t) == ENDS else "ok")
    assert "on ports 20000-60999 and 29500" in seen_in_words(seen, [ENDS])


def test_a_cause_that_explains_too_little_is_not_sure():
    said = first([finding("mtu-blackhole", group="mtu")], "refused")
    assert (said.cause, said.odd) == ("not-known", ("mtu-blackhole",))


def test_a_fault_that_a_host_reports_about_itself_needs_no_failed_call():
    said = first([finding("port-busy", cells=(), group="ports"), finding("data-ports-dropped")], "dropped")
    assert (said.cause, said.level) == ("port-busy", FAULT)


def test_another_program_on_the_port_is_a_fault_only_if_the_run_calls_that_host():
    to_b = judge(answers(outcome=lambda s, t, k: "stranger" if (s, t, k) == ("b", "c", "data") else "ok"))
    assert [(one.cause, one.level) for one in to_b.findings] == [("wrong-machine", WARNING)]
    to_a = judge(answers(outcome=lambda s, t, k: "stranger" if (s, t, k) == ("b", "a", "meet") else "ok"))
    assert (to_a.cause, to_a.hosts) == ("wrong-machine", ("a",))


def test_if_no_call_of_the_run_decides_the_measured_fault_comes_first():
    said = first([finding("connection-cut", cells=(ENDS,)), finding("link-loss")], "ok")
    assert (said.cause, said.odd) == ("not-known", ("link-loss", "connection-cut"))


def test_not_known_is_tolerated_only_if_every_remaining_cause_is_tolerated():
    seen = answers(outcome=lambda s, t, k: "late" if (s, t, k) == (*ENDS, "data") else "ok")
    verdict = Verdict(tuple(ranked([finding("link-slow"), finding("link-loss", WARNING)], seen)))
    assert (verdict.cause, verdict.first.odd) == ("not-known", ("link-slow", "link-loss"))
    assert verdict.obstacles({"link-slow", "link-loss"}) == []
    assert verdict.obstacles({"link-slow"}) == verdict.unknown
