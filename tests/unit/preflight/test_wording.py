"""The last words of a finding: one host or many, which interface, who starts the run."""

import dataclasses

import pytest

from deploy.preflight import Finding, judge
from deploy.preflight.findings import listed
from deploy.preflight.wording import worded
from lab.answers import HOSTS, answers


def told(text="", fix="", hosts=HOSTS[:1], style="muster"):
    seen = answers()
    seen = dataclasses.replace(seen, request=dataclasses.replace(seen.request, style=style))
    return worded(Finding("all-ports-dropped", "links", tuple(hosts), text, fix=fix), seen)


@pytest.mark.parametrize(
    ("of_one", "of_many"),
    [
        ("drops TCP 29500", "drop TCP 29500"),
        ("has no route to any of the others", "have no route to any of the others"),
        ("reaches no other host, and no host reaches it", "reach no other host, and no host reaches them"),
        ("would use IPv6", "would use IPv6"),
    ],
)
def test_the_verb_agrees_with_one_host_and_with_many(of_one, of_many):
    for hosts, verb in ((HOSTS[:1], of_one), (HOSTS[:2], of_many)):
        assert told(f"{listed(hosts)} {of_one}", hosts=hosts).text == f"{listed(hosts)} {verb}"


def test_a_fix_names_the_interface_of_its_hosts():
    ufw = "on a: sudo ufw allow proto tcp from 10.0.0.0/24 to any port 29500"
    assert told(fix=ufw).fix == "on a: sudo ufw allow in on eth0 proto tcp from 10.0.0.0/24 to any port 29500"
    assert told(fix="on a: ethtool <interface>").fix == "on a: ethtool eth0"


def test_an_interface_is_named_where_the_launcher_reads_it():
    export = "on a: export GLOO_SOCKET_IFNAME=eth1 NCCL_SOCKET_IFNAME==eth1"
    assert told(fix=export).fix == 'interface = "eth1" for a in cluster.toml'
    assert told(fix=export, style="torchrun").fix == export


def test_every_verdict_has_its_last_words():
    finding = Finding("all-ports-dropped", "links", HOSTS[:2], f"{listed(HOSTS[:2])} drops TCP 1-65535")
    assert judge(answers(), [finding]).first.text == f"{listed(HOSTS[:2])} drop TCP 1-65535"
