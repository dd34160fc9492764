"""Tell apart: a bad card, a limit, a long distance or a counting filter between healthy hosts."""

from dataclasses import replace

import pytest

from deploy.preflight import judge, prediction, targets
from deploy.preflight.answers import Link, pairs
from lab.answers import HOSTS, answers, facts


def on(host, **interfaces):
    """The facts of this host, with changed entries for some of its interfaces."""
    own = facts(HOSTS.index(host))["interfaces"]
    return {host: {"interfaces": {name: {**entry, **interfaces.get(name, {})} for name, entry in own.items()}}}


@pytest.mark.parametrize(
    ("rows", "cause"),
    [
        ([["::1", False, ""], ["127.0.0.1", True, ""]], ""),
        ([["::1", False, ""]], "loopback-silent"),
        ({"error": "Name or service not known"}, "loopback-silent"),
        ({"error": "timeout"}, ""),
    ],
)
def test_localhost_that_leads_nowhere_is_a_warning_on_the_first_host_only(rows, cause):
    known = {host: {"names": {**answers().facts[host]["names"], "localhost": rows}} for host in "ab"}
    said = judge(answers(change=known))
    assert said.ok
    assert [(finding.cause, finding.hosts) for finding in said.warnings] == ([(cause, ("a",))] if cause else [])
    assert not judge(answers(change={"b": known["b"]})).warnings


def test_two_cards_with_the_same_hardware_address_are_named():
    cards = {"eth0": {"mac": "02:00:00:00:00:01"}}
    twins = {host: {**on(host, **cards)[host], "namespace": host} for host in ("b", "c")}
    verdict = judge(answers(change=twins, outcome=lambda s, t, k: "dropped" if {s, t} == {"b", "c"} else "ok"))
    assert (verdict.cause, verdict.hosts, len(verdict.faults)) == ("duplicate-mac", ("b", "c"), 1)


def test_loopback_that_is_down_is_a_fault_only_on_the_rendezvous_host():
    verdict = judge(answers(change=on("a", lo={"up": False})))
    assert (verdict.cause, verdict.hosts) == ("interface-down", ("a",))
    verdict = judge(answers(change=on("b", lo={"up": False})))
    assert [(finding.cause, finding.level) for finding in verdict.findings] == [("interface-down", "warning")]
    assert "ip link set lo up" in verdict.findings[0].fix


@pytest.mark.parametrize(("size", "seconds", "cause", "findings"), [(0, -1, "process-limits", 1), (-1, 3, "", 1),
                                                                    (-1, -1, "", 0)])  # fmt: skip
def test_limits_on_file_size_and_cpu_time_are_judged(size, seconds, cause, findings):
    has = {**facts(2)["resources"], "fsize": [size, size], "cpu": [seconds, seconds]}
    verdict = judge(answers(change={"c": {"resources": has}}))
    assert (verdict.cause, len(verdict.findings)) == (cause, findings)


@pytest.mark.parametrize(("ports", "out"), [(["eno1", "vnet0"], True), (["vnet0"], False), ([], False)])
def test_a_bridge_with_a_network_card_reaches_other_hosts(ports, out):
    bridged = facts(1, **on("b", eth0={"bridge": True, "ports": ports})["b"])
    assert bool(list(prediction.reachable(bridged))) == out


def far(seen, host, ms, **more):
    """The same answers, but every call from or to this host takes this long."""
    links = (replace(link, ms=ms, **more) if host in (link.source, link.target) else link for link in seen.links)
    return replace(seen, links=tuple(links))


def test_a_long_delay_is_not_mistaken_for_lost_packets():
    verdict = judge(far(answers(), "c", 600.0, outcome="stall-send"))
    assert (verdict.cause, verdict.hosts, len(verdict.faults)) == ("link-delay", ("c",), 1)
    assert "600 ms" in verdict.first.text
    assert judge(far(answers(), "c", 40.0)).warnings[0].cause == "link-delay"
    assert not judge(far(answers(), "c", 5.0)).warnings


def test_one_late_call_is_not_a_long_delay():
    assert judge(far(answers(), "c", 900.0, both_s=0.002)).ok


def test_a_connection_that_carries_little_and_cuts_megabytes_is_named():
    seen = answers()
    assert targets.slow_calls(seen) == {}
    assert [call["host"] for pair in pairs(HOSTS) for call in [targets.long_call(seen, pair)]] == list("bcacab")
    cut = Link("a", "b", "10.0.0.2", 40000, ("long",), "stall-receive", host="b", size=2 << 20)
    verdict = judge(replace(seen, links=(*seen.links, cut)))
    assert (verdict.cause, set(verdict.hosts)) == ("connection-cut", {"a", "b"})


@pytest.mark.parametrize(("twice", "causes"), [(0, ["link-loss"]), (40, [])])
def test_packets_that_overtake_each_other_are_not_lost(twice, causes):
    seen = answers()
    links = (replace(link, again=60, twice=twice, sent=600) if "c" in (link.source, link.target) else link
             for link in seen.links)  # fmt: skip
    assert [finding.cause for finding in judge(replace(seen, links=tuple(links))).findings] == causes


@pytest.mark.parametrize(("host", "files", "cause"), [("a", 24, "open-files"), ("a", 25, ""), ("c", 20, "open-files"),
                                                      ("c", 21, "")])  # fmt: skip
def test_the_first_host_needs_more_open_files_than_the_others(host, files, cause):
    has = {**facts(HOSTS.index(host))["resources"], "nofile": [files, files]}
    assert judge(answers(change={host: {"resources": has}})).cause == cause


def test_if_two_cards_have_one_address_the_one_that_is_up_counts():
    own = answers().facts["b"]
    both = {"kube-ipvs0": {**own["interfaces"]["eth0"], "up": False, "running": False}, **own["interfaces"]}
    address = own["interfaces"]["eth0"]["addresses"][0][0]
    assert prediction.interface_of({**own, "interfaces": both}, address) == "eth0"
    down = {"kube-ipvs0": both["kube-ipvs0"]}
    assert prediction.interface_of({**own, "interfaces": down}, address) == "kube-ipvs0"
