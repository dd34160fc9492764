"""The rules of a host's firewall, whichever tool made them."""

import subprocess

from deploy.preflight.probe import sockets
from deploy.preflight.probe.sockets import nft_rules

# `nft list ruleset` on a host with firewalld, whose iptables is the nft variant.
RULESET = """\
# Warning: table ip filter is managed by iptables-nft, do not touch!
table ip filter {
	chain INPUT {
		type filter hook input priority filter; policy accept;
		ip saddr 10.0.0.9 counter packets 3 bytes 180 drop
	}
}
table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state established,related accept
		ct state invalid counter packets 12 bytes 900 drop
		reject with icmpx admin-prohibited
	}
}
table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
	}
}
"""
FIREWALLD = [("ct state invalid counter drop", 12), ("reject with icmpx admin-prohibited", 0)]
POLICY = ("type filter hook input priority filter; policy drop;", 0)


def test_rules_that_iptables_does_not_show_are_read_with_their_counts():
    assert nft_rules(RULESET, known=True) == [*FIREWALLD, POLICY]


def test_if_iptables_shows_nothing_its_tables_are_read_from_nft_too():
    assert nft_rules(RULESET, known=False) == [("ip saddr 10.0.0.9 counter drop", 3), *FIREWALLD, POLICY]


def test_an_empty_list_has_no_rules():
    assert nft_rules("", known=True) == []


def test_a_rule_with_thousands_of_addresses_is_cut(monkeypatch):
    many = ", ".join(f"10.0.{number // 250}.{number % 250}" for number in range(5000))
    text = f"table inet t {{\n\tchain input {{\n\t\tip saddr {{ {many} }} drop\n\t}}\n}}\n"

    def run(argv, **_):
        return subprocess.CompletedProcess(argv, 0, text.encode() if argv[0] == "nft" else b"")

    monkeypatch.setattr(sockets.subprocess, "run", run)
    (rule,) = sockets.firewall()["rules"]
    assert rule.startswith("ip saddr { 10.0.0.0, 10.0.0.1, ")
    assert len(rule) <= sockets.MOST_LETTERS
