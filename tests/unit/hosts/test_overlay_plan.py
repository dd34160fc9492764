"""The network that a run with --overlay creates: unused addresses, a free port, and who relays for whom."""

from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.core.results import HostsFailed
from deploy.host import networks
from deploy.host.facts import Address
from deploy.hosts.node import container, overlay_plan
from deploy.hosts.node.container import Meeting, Work
from deploy.hosts.node.overlay_plan import candidate_addresses, free_network, planned, relays, turns
from deploy.job.cluster import Cluster
from deploy.job.inventory import Host
from deploy.job.options import Job
from tests.hosts import FACTS

TOKEN = "0123456789abcdef"
OPEN = networks.Networks(True, (IPv4Network("10.0.0.0/24"),), frozenset(), {"eth0": 1500})


def host(*addresses, reached_at=""):
    """A host with these addresses, each `interface address/prefix`."""
    parsed = [(interface, *text.split("/")) for interface, text in (words.split() for words in addresses)]
    entries = tuple(Address(interface, address, int(prefix)) for interface, address, prefix in parsed)
    return replace(FACTS, addresses=entries, reached_at=reached_at)


def pair(*ends):
    return frozenset(ends)


# -- addresses --


@pytest.mark.parametrize("token", [TOKEN, "ffffffff00000000", "0000000011111111"])
def test_the_network_overlaps_with_no_network_of_a_host(token):
    taken = [IPv4Network(text) for text in ("10.0.0.0/9", "10.128.0.0/10", "172.17.0.0/16", "192.168.1.0/24")]
    network = free_network(token, taken)
    assert network.is_private
    assert not any(network.overlaps(other) for other in taken)


def test_two_runs_on_one_host_have_two_networks_and_two_interfaces():
    other = "89abcdef01234567"
    first = free_network(TOKEN, ())
    assert free_network(other, (first,)) != first
    assert overlay_plan.interface_of(TOKEN) != overlay_plan.interface_of(other)
    assert len(overlay_plan.interface_of(TOKEN)) <= 15, "Linux takes no longer name"


def test_the_next_private_block_is_used_if_the_hosts_occupy_one():
    assert free_network(TOKEN, [IPv4Network("10.0.0.0/8")]).subnet_of(IPv4Network("172.16.0.0/12"))
    everything = [IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")]
    with pytest.raises(DeployError, match="no private addresses"):
        free_network(TOKEN, everything)


def test_the_port_is_free_on_every_host_and_the_mtu_fits_the_smallest():
    facts = {"a": host("eth0 10.0.0.1/24"), "b": host("eth0 10.0.0.2/24")}
    busy = replace(OPEN, udp=frozenset({51820}), mtus={"eth0": 1400})
    plan = planned(TOKEN, {"a": OPEN, "b": busy}, facts)
    assert plan.port == 51821
    assert plan.mtu == 1400 - 80
    assert plan.relayed_mtu < plan.mtu
    assert len(set(plan.addresses.values())) == 2
    seen = plan.on(facts)["b"].addresses[-1]
    assert (seen.interface, seen.address) == (plan.interface, plan.addresses["b"])


def test_a_network_with_a_very_small_mtu_is_refused_by_name():
    short = replace(OPEN, mtus={"eth0": 600})
    with pytest.raises(DeployError, match="b: eth0 accepts packets of only 600 bytes"):
        planned(TOKEN, {"a": OPEN, "b": short}, {"a": host("eth0 10.0.0.1/24"), "b": host("eth0 10.0.0.2/24")})


def test_a_host_without_tun_is_named_with_the_fix():
    with pytest.raises(HostsFailed) as refused:
        planned(TOKEN, {"a": OPEN, "b": replace(OPEN, tun=False)}, {"a": FACTS, "b": FACTS})
    assert list(refused.value.faults) == ["b"]
    assert "/dev/net/tun" in refused.value.message
    assert "modprobe tun" in refused.value.hint


# -- which host reaches which --


def test_a_peer_is_tried_on_the_shared_network_then_where_ssh_reached_it_never_on_a_bridge():
    facts = {
        "a": host("eth1 10.0.0.1/24", "eth0 192.0.2.1/24", "br0 172.30.0.1/16"),
        "b": host("br0 172.30.0.1/16", "eth0 198.51.100.2/24", "eth1 10.0.0.2/24", reached_at="203.0.113.9"),
    }
    assert candidate_addresses(facts)["a", "b"] == ("10.0.0.2", "203.0.113.9", "198.51.100.2")


def test_behind_1_to_1_nat_the_address_that_was_dialed_is_tried_too():
    # sshd on the host reports the host's own address; this machine dialed another one.
    there = replace(host("eth0 10.99.2.2/24", reached_at="10.99.2.2"), called_at="198.51.100.2")
    found = candidate_addresses({"a": host("eth0 10.99.1.2/24"), "b": there})
    assert set(found["a", "b"]) == {"10.99.2.2", "198.51.100.2"}


def test_a_loopback_address_that_ssh_reached_is_not_offered_to_other_hosts():
    facts = {"a": host("eth0 10.0.0.1/24"), "b": host("eth0 10.0.0.2/24", reached_at="127.0.0.1")}
    assert candidate_addresses(facts)["a", "b"] == ("10.0.0.2",)


def test_a_pair_without_a_direct_link_is_relayed_by_a_host_that_both_reach():
    met = frozenset({pair("a", "b"), pair("a", "c")})
    assert relays(["a", "b", "c"], met, 51820) == {pair("b", "c"): "a"}
    assert relays(["a", "b", "c"], met | {pair("b", "c")}, 51820) == {}


def test_two_relays_share_the_work():
    hubs, leaves = ["a", "b"], ["c", "d", "e", "f"]
    met = frozenset(pair(hub, leaf) for hub in hubs for leaf in leaves) | {pair("a", "b")}
    chosen = relays([*hubs, *leaves], met, 51820)
    assert len(chosen) == 6
    assert sorted(list(chosen.values()).count(hub) for hub in hubs) == [3, 3]


def test_pairs_that_no_host_can_relay_are_named_with_the_port_to_open():
    with pytest.raises(DeployError) as refused:
        relays(["a", "b", "c"], frozenset({pair("a", "b")}), 51833)
    assert "a with c" in refused.value.message
    assert "b with c" in refused.value.message
    assert "UDP 51833" in refused.value.hint


def test_no_two_hosts_call_each_other_in_one_turn_and_each_gets_to_call():
    known = {("a", "b"): ("b1", "b2"), ("b", "a"): ("a1",)}
    tries = list(turns(["a", "b"], known))
    assert tries == [{("a", "b"): "b1"}, {("b", "a"): "a1"}, {("a", "b"): "b2"}]


# -- what is refused, and what the overlay changes --

WANTED = Cluster((Host("a", "a"), Host("b", "b")), Job(overlay=True))


def test_a_single_host_or_a_host_with_its_own_interface_is_refused():
    with pytest.raises(UsageError, match="a single host"):
        overlay_plan.asked(replace(WANTED, hosts=(Host("a", "a"),)), TOKEN)
    with pytest.raises(UsageError, match="b has its own interface"):
        overlay_plan.asked(replace(WANTED, hosts=(Host("a", "a"), Host("b", "b", interface="eth1"))), TOKEN)


def test_all_hosts_use_the_overlay_interface_if_the_job_asks_for_it_and_only_then():
    assert {host.interface for host in overlay_plan.asked(WANTED, TOKEN).hosts} == {"muster01234567"}
    plain = replace(WANTED, job=Job())
    assert overlay_plan.asked(plain, TOKEN) == plain


def test_the_overlay_container_has_one_capability_and_no_secret_in_its_command():
    hosts, facts = WANTED.hosts, (FACTS, FACTS)
    work = Work("r1", "app", token=TOKEN, secrets={"TOKEN": "hush"}, share_key="5ec4e7")
    plan = planned(TOKEN, {"a": OPEN, "b": OPEN}, {"a": FACTS, "b": FACTS})
    made = container.node_containers(hosts, facts, WANTED.job, work, Meeting("10.0.0.1", 29500, ("muster0",) * 2))
    first, _ = overlay_plan.with_overlay_ends(made, facts, WANTED.job, work, plan)
    words = " ".join(first.overlay.argv)
    assert words.count("--cap-add") == 1
    assert "--cap-drop ALL --cap-add NET_ADMIN --security-opt no-new-privileges" in words
    assert "--privileged" not in words
    assert "--volume" not in words
    assert "--mount" not in words
    assert "5ec4e7" not in words
    assert "hush" not in words
    assert "--cap-add" not in first.argv, "the run's own container keeps its rights"


# -- a host's answer --


def test_the_hosts_answer_is_parsed_and_odd_lines_are_skipped():
    answer = """tun
route eth0	00000000	010011AC	0003	0	0	0	00000000	0	0	0
route eth0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
route nonsense
udp   sl  local_address rem_address
udp   12: 00000000:CA6C 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
mtu eth0 1460
mtu odd many
"""
    look = networks.parse(answer)
    assert look == networks.Networks(True, (IPv4Network("172.17.0.0/16"),), frozenset({51820}), {"eth0": 1460})
    assert not networks.parse("mtu eth0 1500").tun
