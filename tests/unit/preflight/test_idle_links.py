"""A fast link that is idle although it could be used is always named, from recorded answers."""

from dataclasses import replace

import pytest

from deploy.preflight import PreflightRequest, judge
from lab import gpu_hosts
from lab.answers import HOSTS, answers, facts
from tests.unit.preflight.test_rehearsal import said_with_a_fabric

# Changes on all hosts: a section of the recording of an H100 with InfiniBand, its old and new text, and the cause that
# is found.
RDMA = {
    "its ports are down": ("infiniband", "state:4: ACTIVE", "state:1: DOWN", "rdma-down"),
    "no subnet manager answers": ("infiniband", "state:4: ACTIVE", "state:2: INIT", "rdma-down"),
    "the container has no access": ("host", "devices", "", "rdma-hidden"),
    "a variable names another card": ("environment", "NCCL_DEBUG=WARN", "NCCL_IB_HCA==ibp12s0", "rdma-device"),
}
# Lines of NCCL's own log of the rehearsal.
LOGS = {
    "a variable switches it off": "NCCL_IB_DISABLE set by environment to 1.",
    "a variable asks for sockets": "NCCL_NET set by environment to Socket",
    "the image lacks its library": "Failed to open libibverbs.so[.1]",
    "no device is seen": "NET/IB : No device found.",
}
# The address prefix of the hosts' second interface, which is a hundred times faster; 0: it has no address.
CABLES = {"the user names the slow interface": 24, "nobody gave it an address": 0}


@pytest.mark.parametrize("case", RDMA)
def test_rdma_that_is_idle_on_all_hosts_is_a_warning(case):
    section, old, new, cause = RDMA[case]
    verdict = gpu_hosts.judged([gpu_hosts.changed(gpu_hosts.sections("h100"), section, old, new)] * 2)
    assert verdict.ok
    assert cause in [finding.cause for finding in verdict.warnings]


@pytest.mark.parametrize("case", LOGS)
def test_the_reason_in_the_rehearsals_nccl_log_is_reported(case):
    lines = [f"NCCL INFO {LOGS[case]}", "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"]
    assert said_with_a_fabric(lines) == [("fabric-unused", "warning", True)]


def cabled(prefix=24, **more):
    """Answers of hosts with a 1 Gbit/s card, which the user names, and a 100 Gbit/s card."""
    change = {}
    for place, host in enumerate(HOSTS):
        own = facts(place)["interfaces"]
        slow = {**own["eth0"], "speed": 1000, "mac": f"02:00:00:00:00:0{place}"}
        address = [[f"192.168.5.{place + 1}", prefix]] if prefix else [["fe80::1", 64]]
        fast = {**own["eth0"], "speed": 100_000, "mac": f"02:00:00:00:01:0{place}", "addresses": address, **more}
        change[host] = {"interfaces": {**own, "eth0": slow, "enp1s0": fast}}
    return answers(PreflightRequest(environment={"GLOO_SOCKET_IFNAME": "eth0"}), change=change)


@pytest.mark.parametrize("case", CABLES)
def test_an_unused_cable_is_named_with_the_command_to_type(case):
    verdict = judge(cabled(CABLES[case]))
    assert verdict.ok
    slow = [finding for finding in verdict.warnings if finding.cause == "interface-slow"]
    assert {host for finding in slow for host in finding.hosts} == set(HOSTS)
    assert all("enp1s0" in finding.fix for finding in slow)
    if not CABLES[case]:
        assert "on b: sudo ip addr add 192.168.177.2/24 dev enp1s0" in slow[0].fix


@pytest.mark.parametrize("why", ["no cable", "part of a bond", "RDMA alone", "on one host"])
def test_a_card_without_a_link_or_with_another_use_raises_no_alarm(why):
    seen = cabled(0, running=why != "no cable")
    for place, host in enumerate(HOSTS):
        entries = seen.facts[host]["interfaces"]
        if why == "part of a bond":
            entries["bond0"] = {**entries["eth0"], "mac": entries["enp1s0"]["mac"], "addresses": []}
        if why == "on one host" and place:
            del entries["enp1s0"]
        if why == "RDMA alone":
            seen = replace(seen, facts={**seen.facts, host: {**seen.facts[host], "rdma": {"mlx5_0": {}}}})
    assert judge(seen).warnings == []


def test_a_host_that_reports_less_about_its_cards_is_still_judged():
    cards = facts(0)["interfaces"]
    less = {name: {key: card[key] for key in card if key not in ("mac", "tunnel")} for name, card in cards.items()}
    assert judge(answers(change={"a": {"interfaces": less}})).ok
