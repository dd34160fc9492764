"""Fixes as the user types them: on the right host, for the right interface, where the launcher reads a setting."""

import dataclasses

import pytest

from deploy.core.text import subject
from deploy.preflight import PreflightRequest, judge, remedies
from lab import fixes
from lab.answers import HOSTS, answers

DROPS = "raw: -A PREROUTING -p tcp --dport 29500 -j DROP"


def test_the_verb_agrees_with_one_host_and_with_many():
    assert subject(HOSTS[:1], "drops", "drop") == "a drops"
    assert subject(HOSTS[:2], "drops", "drop") == "a and b drop"


def test_hosts_with_the_same_command_are_grouped():
    assert (
        remedies.on_hosts(HOSTS, lambda host: "ip addr" if host == "b" else "ip link")
        == "on a and c: ip link; on b: ip addr"
    )


def test_a_fix_names_the_interface_and_the_network():
    verdict = judge(answers(outcome=lambda s, t, k: "dropped" if (t, k) == ("a", "meet") else "ok"))
    line = "sudo iptables -I INPUT -i eth0 -s 10.0.0.0/24 -p tcp --dport 29500 -j ACCEPT"
    assert fixes.steps(verdict.fix) == [fixes.Step("a", (line,))]


def test_a_rule_that_dropped_our_packets_is_overruled_in_its_own_table():
    control = {"a": {"firewall": {"read": True, "rules": [DROPS], "hits": [3], "grown": [DROPS]}}}
    verdict = judge(answers(outcome=lambda s, t, k: "dropped" if (t, k) == ("a", "meet") else "ok", control=control))
    line = "sudo iptables -t raw -I PREROUTING -i eth0 -s 10.0.0.0/24 -p tcp --dport 29500 -j ACCEPT"
    assert fixes.steps(verdict.fix) == [fixes.Step("a", (line,))]


@pytest.mark.parametrize(
    ("style", "fix"),
    [("muster", 'interface = "eth1" for a in cluster.toml'),
     ("torchrun", "on a: export GLOO_SOCKET_IFNAME=eth1 NCCL_SOCKET_IFNAME==eth1")],
)  # fmt: skip
def test_the_interface_is_set_where_the_launcher_reads_it(style, fix):
    seen = dataclasses.replace(answers(), request=PreflightRequest(style=style))
    assert remedies.use_interface(seen, "a", "eth1") == fix


def test_a_name_gets_one_address_and_other_names_keep_theirs():
    line = remedies.set_name_command("gpu-a.lan", "10.0.0.1")
    assert line.startswith(r"sudo sed -Ei 's/\sgpu-a\.lan(\s|$)/\1/g' /etc/hosts && echo '10.0.0.1 gpu-a.lan'")


def test_commands_are_extracted_from_a_fix_but_not_commands_that_only_look():
    fix = (
        "on a and b: sudo ip link set eth0 up   (or the switch; its port); or on c: ip addr; sudo ip neigh del A dev e"
    )
    up = ("sudo ip link set eth0 up",)
    assert fixes.steps(fix) == [
        fixes.Step("a", up), fixes.Step("b", up), fixes.Step("c", ("sudo ip neigh del A dev e",), other=True)
    ]  # fmt: skip
    assert fixes.steps("give each host its own address (see: ip addr)") == []
    assert fixes.settings('interface = "eth0" for b in cluster.toml') == {"interface b": "eth0"}


def test_the_text_of_a_hosts_firewall_rule_never_enters_a_command():
    odd = "filter: -A INPUT -i eth0;reboot -j DROP $(reboot)"
    control = {"a": {"firewall": {"read": True, "rules": [odd], "hits": [3], "grown": [odd]}}}
    verdict = judge(answers(outcome=lambda s, t, k: "dropped" if (t, k) == ("a", "meet") else "ok", control=control))
    assert "reboot" not in verdict.fix
