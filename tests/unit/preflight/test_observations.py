"""Tell apart observations that look alike from outside, and find the suspects."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from deploy.causes.finding import UNKNOWN, WARNING, Finding
from deploy.door.session import Done
from deploy.host.facts import Address, parse_addresses
from deploy.host.reached import ReachedHosts
from deploy.hosts.start import preflight as hosts_preflight
from deploy.hosts.start import probes
from deploy.job.cluster import Cluster
from deploy.preflight import PreflightRequest, judge, targets
from deploy.preflight.answers import Answers, Link
from deploy.preflight.checks import hosts as host_checks
from deploy.preflight.checks import interfaces, link_quality, payloads, ports
from deploy.preflight.confidence import is_left_to_rehearsal
from lab.answers import HOSTS, answers, facts
from tests.hosts import FACTS

TWO = HOSTS[:2]
DROPS = "filter: -A INPUT -p tcp --dport 29500 -j DROP"


def of_two(seen):
    """The same answers, limited to the first two hosts."""
    links = tuple(link for link in seen.links if {link.source, link.target} <= set(TWO))
    return dataclasses.replace(
        seen, hosts=TWO, facts={host: seen.facts[host] for host in TWO}, links=links,
        clocks={host: seen.clocks[host] for host in TWO},
    )  # fmt: skip


def closed(how):
    """An outcome function: calls from `b` to the rendezvous port of `a` end like this."""
    return lambda s, t, k: how if (s, t, k) == ("b", "a", "meet") else "ok"


def firewall(rules=(), grown=()):
    return {"firewall": {"read": True, "rules": list(rules), "hits": [3] * len(rules), "grown": list(grown)}}


def test_between_two_hosts_both_ends_are_named_with_a_command_for_each():
    verdict = judge(of_two(answers(outcome=closed("dropped"))))
    assert (verdict.cause, verdict.hosts, verdict.first.link) == ("rendezvous-dropped", TWO, ("b", "a"))
    assert "on a: " in verdict.fix
    assert "on b: " in verdict.fix


@pytest.mark.parametrize(
    ("control", "hosts"),
    [
        ({"a": firewall([DROPS], [DROPS]), "b": firewall()}, ("a",)),
        ({"a": firewall(), "b": firewall([DROPS], [DROPS])}, ("b",)),
        ({"a": firewall([DROPS]), "b": firewall()}, TWO),
    ],
)
def test_only_a_rule_whose_count_grew_decides(control, hosts):
    seen = of_two(answers(outcome=closed("dropped"), control=control))
    assert judge(seen).hosts == hosts


def test_a_host_that_cannot_reach_its_own_ports_either_is_the_only_one_named():
    seen = of_two(answers(outcome=lambda s, t, k: "dropped" if (t, k) == ("a", "data") else "ok"))
    own = Link("a", "a", "10.0.0.1", 40000, ("self",), "dropped")
    verdict = judge(dataclasses.replace(seen, links=(*seen.links, own)))
    assert (verdict.cause, verdict.hosts, verdict.faults[1:]) == ("data-ports-dropped", ("a",), [])


@pytest.mark.parametrize(
    ("how", "cause", "hosts"), [("no-arp", "arp-unanswered", ("b", "c")), ("wrong-card", "arp-wrong", ("b",))]
)
def test_unanswered_or_wrong_arp_is_a_separate_cause(how, cause, hosts):
    verdict = judge(answers(outcome=lambda s, t, k: how if (s, t) == ("b", "c") else "ok"))
    finding = next(finding for finding in verdict.findings if finding.cause in (cause, "one-way"))
    assert set(finding.hosts) == set(hosts)
    back = judge(answers(outcome=lambda s, t, k: how if (s, t) == ("c", "b") else "ok"))
    assert back.cause == cause


def test_a_host_that_answers_no_arp_is_named():
    verdict = judge(answers(outcome=lambda s, t, k: "no-arp" if t == "b" else "dropped" if s == "b" else "ok"))
    assert (verdict.cause, verdict.hosts) == ("arp-unanswered", ("b",))


def test_an_unknown_mac_address_is_wrong_only_if_arp_is_not_proxied():
    cards = {host: {"interfaces": {"eth0": {**facts(place)["interfaces"]["eth0"], "mac": f"02:00:00:00:00:0{place}"}}}
             for place, host in enumerate(HOSTS)}  # fmt: skip
    seen = answers(change=cards, outcome=lambda s, t, k: "dropped" if (s, t) == ("b", "a") else "ok")
    strange = tuple(
        dataclasses.replace(link, card="02:00:00:00:00:99") if (link.source, link.target) == ("b", "a") else link
        for link in seen.links
    )
    outcomes = {
        link.outcome for link in targets.with_final_outcomes(dataclasses.replace(seen, links=strange)) if not link.ok
    }
    assert outcomes == {"wrong-card"}
    proxied = tuple(dataclasses.replace(link, card="02:00:00:00:00:99") for link in seen.links)
    assert {link.outcome for link in targets.with_final_outcomes(dataclasses.replace(seen, links=proxied))} == {
        "ok",
        "dropped",
    }


def test_loopback_that_does_not_answer_is_a_fault_only_on_the_rendezvous_host():
    def mute(host):
        seen = answers()
        return dataclasses.replace(
            seen, links=(*seen.links, Link(host, host, "127.0.0.1", 40000, ("self",), "dropped"))
        )

    verdict = judge(mute("a"))
    assert (verdict.cause, verdict.hosts) == ("loopback-silent", ("a",))
    assert [finding.cause for finding in judge(mute("c")).warnings] == ["loopback-silent"]


def test_a_route_into_a_container_network_explains_the_failed_calls():
    bridge = {**facts(1)["interfaces"]["eth0"], "bridge": True, "addresses": [["10.0.0.17", 28]]}
    change = {"b": {"interfaces": {**facts(1)["interfaces"], "br-12ab": bridge}}}
    seen = answers(change=change, outcome=lambda s, t, k: "dropped" if "b" in (s, t) else "ok")
    ways = {"b": {**seen.listens["b"], "ways": {"10.0.0.1": "10.0.0.17", "10.0.0.3": "10.0.0.17"}}}
    seen = dataclasses.replace(seen, listens={**seen.listens, **ways})
    verdict = judge(seen)
    assert (verdict.cause, verdict.hosts, verdict.faults[1:]) == ("address-overlap", ("b",), [])
    assert verdict.first.explains == "explains 4 of 4 pairs of hosts with failed connections"
    well = dataclasses.replace(seen, links=answers(change=change).links)
    assert judge(well).ok


@pytest.mark.parametrize(("boots", "cause"), [(("x", "x"), "machine-twice"), (("x", "y"), "duplicate-address")])
def test_one_machine_under_two_names_is_told_from_a_duplicate_address(boots, cause):
    same = {host: {"interfaces": facts(0)["interfaces"], "boot": boot, "namespace": "net:[1]"}
            for host, boot in zip(TWO, boots, strict=True)}  # fmt: skip
    verdict = judge(answers(change=same))
    assert (verdict.cause, set(verdict.hosts)) == (cause, set(TWO))


def test_an_address_in_dockers_range_does_not_make_a_bridge():
    eth0 = {**facts(0)["interfaces"]["eth0"], "addresses": [["172.20.5.10", 24]], "mac": "52:54:00:00:00:01"}
    other = {**eth0, "mac": "52:54:00:00:00:02"}
    change = {
        host: {"interfaces": {"lo": facts(0)["interfaces"]["lo"], "eth0": card}, "boot": host}
        for host, card in (("a", eth0), ("b", other))
    }
    assert judge(answers(PreflightRequest(), change=change)).cause == "duplicate-address"


def test_a_delay_is_neither_a_drop_nor_a_loss():
    seen = answers(outcome=lambda s, t, k: "late" if "c" in (s, t) else "ok")
    links = tuple(dataclasses.replace(link, ms=2900.0) if link.outcome == "late" else link for link in seen.links)
    verdict = judge(dataclasses.replace(seen, links=links))
    assert (verdict.cause, verdict.hosts) == ("link-delay", ("c",))


@pytest.mark.parametrize(("again", "outcome"), [(0, "silent"), (2, "at-times")])
def test_a_silent_port_is_another_program_only_if_no_packet_was_lost(again, outcome):
    seen = answers(outcome=lambda s, t, k: "silent" if (s, t, k) == ("b", "a", "data") else "ok")
    links = tuple(
        dataclasses.replace(link, again=again) if (link.source, link.target) == ("a", "b") else link
        for link in seen.links
    )
    bad = [link.outcome for link in targets.with_final_outcomes(dataclasses.replace(seen, links=links)) if not link.ok]
    assert bad == [outcome]


@pytest.mark.parametrize(("answered", "outcome"), [(4, "at-times"), (16, "refused")])
def test_an_occasional_refusal_is_not_a_closed_port(answered, outcome):
    seen = answers(outcome=lambda s, t, k: "refused" if (s, t, k) == ("b", "a", "data") else "ok")
    assert targets.repeated_calls(seen), "a call was answered, and another was not"
    bad = [
        link.outcome
        for link in targets.with_final_outcomes(dataclasses.replace(seen, often=(("b", "a", answered, 16),)))
        if not link.ok
    ]
    assert bad == [outcome]


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"outcome": "stall-send", "acked": 100}, "stall-send"),
        ({"outcome": "stall-receive", "acked": 70_000, "received": 90}, "stall-receive"),
        ({"outcome": "stall-receive", "received": 40_000, "idle_ms": 2000}, "cut"),
        ({"outcome": "stall-receive", "received": 40_000, "idle_ms": 40}, "slow"),
        # The other end's window is small, and nothing is lost: lost large packets would be sent again.
        ({"outcome": "stall-send", "acked": 1055, "sent": 20, "again": 0}, "slow"),
        ({"outcome": "stall-send", "acked": 68, "sent": 20, "again": 4}, "stall-send"),
        ({"outcome": "stall-send", "acked": 68, "sent": 20, "again": 0, "idle_ms": 2000}, "stall-send"),
        ({"outcome": "reset", "ms": 1.0, "acked": 40_000}, "cut"),
        ({"outcome": "reset", "ms": 1.0, "acked": 60}, "reset"),
    ],
)
def test_a_payload_that_stops_is_told_from_one_that_never_passed_or_is_slow(more, outcome):
    call = {"host": "b", "address": "10.0.0.2", "port": 1, "kinds": ["data"], "size": 1 << 16}
    assert targets.link_of("a", call, {"id": 0, **more}).outcome == outcome


def test_calls_that_fail_in_an_unknown_way_are_described_without_a_cause():
    verdict = judge(answers(outcome=lambda s, t, k: "Protocol wrong type" if (s, t) == ("c", "a") else "ok"))
    assert (verdict.cause, verdict.first.level, verdict.hosts) == ("not-known", "could not tell", ("a", "c"))
    assert verdict.first.evidence


def test_settings_of_another_backend_may_differ():
    def verdict(backend):
        request = PreflightRequest(style="torchrun", endpoint="10.0.0.1", backend=backend)
        change = {"b": {"environment": {"NCCL_ALGO": "Ring", "MASTER_ADDR": "10.9.9.9"}}}
        return judge(answers(request, change=change))

    assert verdict("gloo").ok
    assert verdict("nccl").cause == "settings-differ"


@pytest.mark.parametrize(
    ("limits", "cause"),
    [({"as": 900 << 20}, "process-limits"), ({"as": 2 << 30}, ""), ({"stack": 16 << 10}, "process-limits"),
     ({"cpu": 1}, "process-limits"), ({"cpu": 60}, ""), ({"data": 100 << 20}, "process-limits")],
)  # fmt: skip
def test_limits_that_stop_a_rank_are_faults_and_tolerable_ones_are_not(limits, cause):
    has = facts(1)["resources"] | {name: [value, value] for name, value in limits.items()}
    assert judge(answers(change={"b": {"resources": has}})).cause == cause


def test_few_local_ports_are_a_fault_only_on_the_rendezvous_host():
    def verdict(host):
        return judge(answers(change={host: {"port_range": [50000, 50002]}}))

    assert (verdict("a").cause, verdict("a").hosts) == ("few-ports", ("a",))
    assert [finding.cause for finding in verdict("c").findings] == ["few-ports"]
    assert verdict("c").ok


def test_new_observations_survive_being_recorded():
    seen = answers(outcome=lambda s, t, k: "no-arp" if t == "b" else "ok")
    assert judge(Answers.of(seen.json())) == judge(seen)


def test_large_packets_lost_on_a_link_outside_the_ring_are_a_warning():
    def verdict(source, target, backend="gloo"):
        seen = answers(
            PreflightRequest(backend=backend),
            outcome=lambda s, t, k: "stall-send" if (s, t, k) == (source, target, "data") else "ok",
        )
        return judge(seen)

    # The ring: rank 2 sends to rank 1, rank 1 to rank 0, rank 0 to rank 2; a broadcast goes from rank 0 to both.
    assert verdict("b", "a").cause == "mtu-blackhole"
    assert verdict("a", "b").cause == "mtu-blackhole"
    assert verdict("c", "a").ok
    assert [finding.cause for finding in verdict("c", "a").warnings] == ["mtu-blackhole"]
    assert verdict("c", "a", "nccl").cause == "mtu-blackhole"


def test_failed_calls_that_no_rank_would_make_are_not_a_fault():
    # gloo calls from the larger address to the smaller one: so b never calls c.
    seen = answers(
        PreflightRequest(), outcome=lambda s, t, k: "Protocol wrong type" if (s, t, k) == ("b", "c", "data") else "ok"
    )
    assert judge(seen).ok
    seen = answers(
        PreflightRequest(), outcome=lambda s, t, k: "Protocol wrong type" if (s, t, k) == ("c", "b", "data") else "ok"
    )
    assert judge(seen).cause == "not-known"


def test_a_lack_of_local_ports_is_not_a_missing_route():
    seen = answers(outcome=lambda s, t, k: targets.NO_PORT if s == "b" else "ok")
    verdict = judge(seen)
    assert (verdict.cause, verdict.hosts, verdict.faults[1:]) == ("local-ports-used", ("b",), [])
    assert "ip_local_port_range" in verdict.fix


def test_a_call_repeated_on_its_own_replaces_those_that_had_no_local_port():
    seen = answers(outcome=lambda s, t, k: targets.NO_PORT if s == "b" else "ok")
    rounds = targets.calls_without_port(seen, seen.links)
    assert [(call["b"][0]["host"], call["b"][0]["kinds"][0]) for call in rounds[:1]] == [("a", "rendezvous")]
    assert all(set(calls) == {"b"} for calls in rounds)
    alone = [dataclasses.replace(link, outcome="dropped") for link in seen.links if link.outcome == targets.NO_PORT][:1]
    left = targets.replace_portless(seen.links, alone)
    assert [link.outcome for link in left if link.source == "b"] == ["dropped"]


def test_a_long_round_trip_does_not_make_a_link_slow():
    near = Link("a", "b", "10.0.0.2", 1, ("rate",), "ok", size=1 << 20, both_s=0.55, trip_ms=0.4)
    assert link_quality.mbit_of(near) < link_quality.SLOW_MBIT
    assert link_quality.mbit_of(dataclasses.replace(near, trip_ms=40.0)) > link_quality.SLOWISH_MBIT


def test_a_host_without_a_route_to_its_caller_is_at_fault():
    outcomes = {("b", "c"): "no-scope", ("c", "b"): "dropped"}
    seen = answers(PreflightRequest(), outcome=lambda s, t, k: outcomes.get((s, t), "ok"))
    verdict = judge(seen)
    assert (verdict.cause, verdict.hosts) == ("no-route", ("b",))
    assert verdict.first.explains == "explains 2 of 2 pairs of hosts with failed connections"


@pytest.mark.parametrize(("grown", "cause"), [([DROPS], "all-ports-dropped"), ([], "host-unreachable")])
def test_hosts_that_reach_nobody_have_a_firewall_if_its_counters_grew(grown, cause):
    control = {host: firewall([DROPS], grown) for host in HOSTS}
    verdict = judge(answers(outcome=lambda s, t, k: "dropped", control=control))
    assert (verdict.cause, verdict.hosts) == (cause, HOSTS)


def test_hosts_behind_separate_routers_are_advised_to_use_an_overlay():
    """With 1:1 address translation each host is alone in its network; SSH reaches it at an address of the router."""
    entries = [facts(place)["interfaces"]["eth0"] for place in range(len(HOSTS))]
    alone = [{**entry, "addresses": [[address, 32] for address, _ in entry["addresses"]]} for entry in entries]
    change = {host: {"interfaces": {"eth0": entry}} for host, entry in zip(HOSTS, alone, strict=True)}
    called = {host: {"called": f"203.0.113.{number}"} for number, host in enumerate(HOSTS)}

    def verdict(control, change=change):
        return judge(answers(outcome=lambda s, t, k: "dropped", control=control, change=change))

    assert verdict(called).cause == "host-unreachable"
    assert "this machine reaches a at 203.0.113.0, b at 203.0.113.1 and c at 203.0.113.2" in verdict(called).first.text
    assert "deploy --overlay --hosts a,b,c" in verdict(called).fix
    assert "--overlay" not in verdict(called, {}).fix, "they share a network"
    assert "--overlay" not in verdict({host: {"called": f"10.0.0.{n + 1}"} for n, host in enumerate(HOSTS)}).fix


def test_the_end_of_a_lossy_link_that_has_no_clean_link_is_the_only_one_named():
    def lossy(ends):
        seen = answers()
        return judge(dataclasses.replace(seen, links=tuple(
            dataclasses.replace(link, sent=100, again=30 if {link.source, link.target} == {"b", "c"} else 0,
                                outcome="slow" if {link.source, link.target} in ends and "data" in link.kinds else "ok")
            for link in seen.links)))  # fmt: skip

    assert lossy([]).hosts == ("b", "c")
    assert lossy([{"a", "c"}]).hosts == ("c",)


def test_a_slow_link_on_which_the_run_sends_little_is_a_warning():
    def slow(source, target):
        request = PreflightRequest(style="muster")
        call = Link(source, target, f"10.0.0.{HOSTS.index(target) + 1}", 40000, ("rate",), "ok", ms=1.0, host=target,
                    send_s=1.4, both_s=1.41, size=1 << 20, rate=700_000)  # fmt: skip
        seen = answers(request)
        return judge(dataclasses.replace(seen, links=(*seen.links, call)))

    # gloo's ring sends from each rank to the one before it.
    assert [(one.cause, one.level) for one in slow("b", "c").findings] == [("link-slow", "warning")]
    assert (slow("c", "b").cause, slow("c", "b").hosts) == ("link-slow", ("b", "c"))


def test_processes_of_a_muster_run_are_named_with_the_run_and_the_command_to_end_it():
    own, other = "MUSTER_RUN_ID=train-1 python -m muster.trainer.node agent", "python -m torch.distributed.run x.py"
    seen = answers(change={"a": {"leftovers": [[7, 60.0, own]]}, "b": {"leftovers": [[8, 60.0, own]]}})
    first, _ = (finding for finding in ports.check(seen) if finding.cause == "leftovers")
    assert "Muster's run train-1: python -m muster.trainer.node agent (pid 7, 60 s)" in first.text
    assert "stop --hosts a,b --run train-1" in first.fix
    seen = answers(change={"a": {"leftovers": [[7, 60.0, other], [9, 1.0, own]]}})
    (only,) = (finding for finding in ports.check(seen) if finding.cause == "leftovers")
    assert "a process of another distributed run: python -m torch.distributed.run x.py (pid 7, 60 s)" in only.text
    assert only.fix.startswith("on a: kill 7")
    seen = answers(change={"a": {"leftovers": [[7, 60.0, "MUSTER_RUN_ID=--now python -m muster.trainer.node agent"]]}})
    (option,) = (finding for finding in ports.check(seen) if finding.cause == "leftovers")
    assert option.fix.startswith("on a: kill 7"), "a host chooses the name: it is no option of a command to copy"


def test_if_each_call_connects_and_no_data_arrives_something_drops_the_packets():
    def mute(moved):
        seen = of_two(answers(outcome=lambda s, t, k: "silent"))
        links = tuple(dataclasses.replace(link, again=4, sent=8, moved=moved) for link in seen.links)
        seen = dataclasses.replace(seen, links=links)
        return judge(dataclasses.replace(seen, links=targets.with_final_outcomes(seen)))

    verdict = mute(0)
    assert (verdict.cause, verdict.hosts) == ("connection-cut", TWO)
    assert "open, but nothing sent after that arrives" in verdict.first.text
    assert mute(60).cause != "connection-cut", "something arrives: packets are lost"


@pytest.mark.parametrize(("answered", "named"), [(9, True), (16, False)])
def test_if_half_of_many_calls_are_answered_one_of_two_paths_is_dead(answered, named):
    seen = of_two(answers(outcome=lambda s, t, k: "dropped" if (s, k) == ("b", "data") else "ok"))
    assert {call["port"] for call in targets.repeated_calls(seen)["b"]} == {29500}, "a port that has answered"
    seen = dataclasses.replace(seen, often=(("b", "a", answered, 16),))
    seen = dataclasses.replace(seen, links=targets.with_final_outcomes(seen))
    verdict = judge(seen)
    assert (verdict.cause == "link-loss") == named
    assert not named or is_left_to_rehearsal(verdict.first, seen), "the few calls of a run may pass"
    assert ("9 of 16 connections from b to a were answered" in verdict.first.text) == named
    if not named:
        assert verdict.cause == "data-ports-dropped"


def test_a_host_whose_own_firewall_rule_dropped_some_of_many_calls_is_named():
    seen = answers(outcome=lambda s, t, k: "dropped" if (s, t, k) == ("b", "a", "data") else "ok")
    rule = "filter: -A INPUT -i eth0 -p tcp -m hashlimit --hashlimit-above 4/min --hashlimit-name few -j DROP"
    grown = {"a": {"firewall": {"rules": [rule], "grown": [rule]}}}
    seen = dataclasses.replace(seen, often=(("b", "a", 2, 16),), control=grown)
    seen = dataclasses.replace(seen, links=targets.with_final_outcomes(seen))
    verdict = judge(seen)
    assert (verdict.cause, verdict.hosts) == ("link-loss", ("a",))
    assert is_left_to_rehearsal(verdict.first, seen)


def test_calls_that_all_fail_after_a_cut_connection_are_not_one_of_several_paths():
    seen = of_two(answers(outcome=lambda s, t, k: "cut" if (s, k) == ("b", "data") else "ok"))
    links = tuple(link if link.ok else dataclasses.replace(link, moved=1 << 20) for link in seen.links)
    verdict = judge(dataclasses.replace(seen, links=links, often=(("b", "a", 0, 16),)))
    assert verdict.cause == "connection-cut"
    assert not [finding for finding in verdict.findings if finding.cause == "link-loss"]


@pytest.mark.parametrize(
    ("rule", "cut"), [("-m connbytes --connbytes 500000", True), ("-m limit --limit 4/min", False)]
)
def test_a_byte_counting_rule_is_blamed_for_a_cut_even_if_packets_are_lost(rule, cut):
    seen = of_two(answers(outcome=lambda s, t, k: "cut" if (s, k) == ("b", "data") else "ok"))
    links = tuple(dataclasses.replace(link, tries=2, sent=20) for link in seen.links)
    grown = {"a": {"firewall": {"rules": [], "grown": [f"filter: -A INPUT -i eth0 {rule} -j DROP"]}}}
    found = payloads.check_long_calls(dataclasses.replace(seen, links=links, control=grown))
    assert ("connection-cut" in {finding.cause for finding in found}) == cut


def test_hosts_that_answer_every_call_are_not_called_repeatedly():
    assert targets.repeated_calls(answers()) == {}


def test_an_engine_in_another_network_than_the_login_is_reported_for_its_host():
    seen = answers(change={"a": {"namespace": "net:[1]"}, "b": {"namespace": "net:[2]"}})
    addresses = (Address("eth0", "10.0.0.1", 24),)
    every = {host: dataclasses.replace(FACTS, network="net:[1]", addresses=addresses) for host in TWO}
    (finding,) = host_checks.networks(every, seen)
    assert (finding.cause, finding.hosts) == ("bridge-network", ("b",))
    assert "its own network: with --network host, a container sees eth0" in finding.text


def test_a_login_without_a_network_is_at_fault_if_its_engine_has_one():
    seen = answers(change={"a": {"namespace": "net:[1]"}, "b": {"namespace": "net:[2]"}})
    (finding,) = host_checks.networks({"b": dataclasses.replace(FACTS, network="net:[1]", addresses=())}, seen)
    assert (finding.cause, finding.hosts) == ("ssh-shell", ("b",))
    assert "the login sees no network card, the container engine sees eth0" in finding.text


def test_different_images_under_one_name_are_a_warning():
    held = {"a": ("x", "y"), "b": ("x",)}
    (finding,) = host_checks.differing("lab:1", held, TWO, {})
    assert (finding.cause, finding.level) == ("image-differs", WARNING)
    assert "import" not in finding.text
    (finding,) = host_checks.differing("lab:1", held, TWO, {"b": "RuntimeError: no habana"})
    assert (finding.cause, finding.level) == ("image-differs", WARNING)
    words = "; `import torch` fails in the image on b: RuntimeError: no habana; `muster deploy` does not use that one"
    assert words in finding.text


@pytest.mark.parametrize(
    ("code", "err", "words"),
    [
        (1, "Traceback (most recent call last):\n  File\nRuntimeError: no habana\n", {"b": "RuntimeError: no habana"}),
        (0, "Traceback (most recent call last): a warning of something\n", {}),
        (1, "unable to upgrade to tcp, received 400\n", {}),
        (125, "docker: Error response from daemon: no such image\n", {}),
    ],
)
def test_an_image_lacks_torch_only_if_python_says_so(code, err, words):
    host = SimpleNamespace(name="b", mounts=(), interface="", environment={})
    session = SimpleNamespace(name="b", host=host, run=lambda argv, **more: Done(code, "", err))
    assert probes.without_torch(ReachedHosts(Cluster(()), [session], {"b": FACTS}), "lab:1") == words


def test_a_container_without_netlink_is_not_reported_as_behind_nat():
    verdict = judge(of_two(answers(change={"b": {"interfaces": {}}})))
    assert (verdict.cause, verdict.hosts) == ("interface-missing", ("b",))
    assert "address translation" not in " ".join(finding.text for finding in verdict.findings)


def test_slow_name_lookup_is_a_warning_and_the_likely_cause_if_the_rehearsal_fails():
    name = answers().facts["b"]["hostname"]
    seen = of_two(answers(change={"b": {"names": {name: {"error": "timeout"}}}}))
    seen = dataclasses.replace(seen, request=PreflightRequest(interfaces=dict.fromkeys(TWO, "eth0")))
    (warning,) = [finding for finding in judge(seen).findings if finding.cause == "name-unresolvable"]
    assert warning.level == WARNING
    failed = Finding("proof-failed", "proof", TWO, "b does not come", (), "", "", UNKNOWN)
    verdict = judge(seen, [failed])
    assert (verdict.cause, verdict.hosts, verdict.first.level) == ("name-unresolvable", ("b",), UNKNOWN)


def test_a_claims_folder_without_write_access_stops_a_run():
    closed = dataclasses.replace(FACTS, claims_closed="drwxr-xr-x 2 root root 40 Nov 24 14:54 /var/tmp")
    (finding,) = host_checks.homes({"a": FACTS, "b": closed})
    assert (finding.cause, finding.hosts) == ("folder-readonly", ("b",))
    assert "/var/tmp" in finding.text


def test_a_full_claims_folder_stops_a_run():
    (finding,) = host_checks.homes({"a": FACTS, "b": dataclasses.replace(FACTS, claims_full=True)})
    assert (finding.cause, finding.hosts) == ("disk-full", ("b",))
    assert "/var/tmp" in finding.text


def test_a_login_that_cannot_create_timers_cannot_lock_a_run():
    (finding,) = host_checks.homes({"a": FACTS, "b": dataclasses.replace(FACTS, no_timer="flock: cannot set up timer")})
    assert (finding.cause, finding.hosts) == ("process-limits", ("b",))
    assert "flock: cannot set up timer" in finding.text


def test_a_host_that_is_silent_only_since_the_rehearsal_is_not_a_sure_fault():
    seen = of_two(answers(outcome=lambda s, t, k: "dropped"))
    sure = judge(seen)
    (late, *_) = hosts_preflight.since_rehearsal(sure).findings
    assert (sure.cause, late.cause, late.level) == ("host-unreachable", "host-unreachable", UNKNOWN)
    assert "they answered before the rehearsal" in late.text
    assert "limit on bytes" in late.text


@pytest.mark.parametrize(("lasts", "address", "told"), [
    (24, "10.0.0.2", True), (119, "10.0.0.2", True), (120, "10.0.0.2", False), (4294967295, "10.0.0.2", False),
    (24, "10.9.9.9", False),
])  # fmt: skip
def test_an_address_whose_lease_ends_soon_is_a_warning(lasts, address, told):
    entry = {"family": "inet", "local": address, "prefixlen": 24, "scope": "global", "valid_life_time": lasts}
    addresses = parse_addresses(json.dumps([{"ifname": "eth0", "addr_info": [entry]}]))
    facts = {"b": dataclasses.replace(FACTS, addresses=addresses)}
    findings = list(interfaces.leases(facts, answers()))
    assert [(each.cause, each.level, each.hosts) for each in findings] == told * [
        ("interface-no-address", WARNING, ("b",))
    ]
    if told:
        assert f"b: the address 10.0.0.2 of eth0 expires in {lasts} s" in findings[0].text
