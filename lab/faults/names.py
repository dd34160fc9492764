"""Faults in names: plain torchrun resolves its own and the first host's; `muster deploy` uses addresses instead.

So the same faults must not disturb a run that Muster starts.
"""

from lab.fault import MUSTER, TORCHRUN, fault
from lab.network import HOSTS_FILES


@fault("family-mixed", on="last", style=TORCHRUN, families="46")
def names_of_different_families(lab, host):
    first, last = lab.hosts[0], lab.hosts[-1]
    for each in lab.hosts:
        lines = [f"{other.addresses['4']} {other.name}" for other in lab.hosts if other is not last]
        each.knows(*lines, f"{last.addresses['6']} {last.name}")
    assert first is not last


NAMED = {"style": TORCHRUN, "endpoint": "name"}


def book(lab, *, without=(), instead=()):
    """Lines of /etc/hosts: those in `instead`, then all hosts except `without`."""
    return [*instead, *(f"{at} {host.name}" for host in lab.hosts if host not in without for at in
                        host.addresses.values())]  # fmt: skip


def own_name_is_loopback(lab, host):
    host.knows(*book(lab, without=(host,), instead=(f"127.0.1.1 {host.name}",)))


@fault("name-loopback", on="first", style=TORCHRUN)
def debian_name_is_127_0_1_1_on_the_first(lab, host):
    own_name_is_loopback(lab, host)


@fault("name-loopback", on="other", style=TORCHRUN)
def debian_name_is_127_0_1_1_on_another(lab, host):
    own_name_is_loopback(lab, host)


# Of two nodes, the one with the larger address connects to the other: 127.0.1.1 is larger than 10.77.0.10, and gets
# through.
@fault("name-loopback", on="other", style=TORCHRUN, net4="192.168.7")
def debian_name_is_127_0_1_1_on_another_in_192_168(lab, host):
    own_name_is_loopback(lab, host)


@fault("name-loopback", on="first", net4="192.168.7", **NAMED)
def debian_name_is_127_0_1_1_endpoint_by_name_in_192_168(lab, host):
    own_name_is_loopback(lab, host)


@fault("name-loopback", on="all", style=TORCHRUN, rendezvous="static")
def debian_name_is_127_0_1_1_everywhere_static(lab, host):
    for each in lab.hosts:
        own_name_is_loopback(lab, each)


@fault("name-loopback", on="first", **NAMED)
def debian_name_is_127_0_1_1_endpoint_by_name(lab, host):
    own_name_is_loopback(lab, host)


@fault("name-loopback", on="all", style=MUSTER)
def debian_names_with_addresses_given(lab, host):
    for each in lab.hosts:
        own_name_is_loopback(lab, each)


@fault("name-unresolvable", on="any", style=TORCHRUN)
def own_name_unknown(lab, host):
    host.knows(*book(lab, without=(host,)))


@fault("name-unresolvable", on="all", style=TORCHRUN)
def no_names_anywhere(lab, host):
    lab.everybody_knows([])


@fault("name-unresolvable", on="all", style=TORCHRUN, rendezvous="static")
def no_names_anywhere_static(lab, host):
    lab.everybody_knows([])


@fault("name-unresolvable", on="all", style=MUSTER)
def no_names_with_addresses_given(lab, host):
    lab.everybody_knows([])


@fault("peer-name-unresolvable", on="other", style=TORCHRUN)
def peer_does_not_know_the_first(lab, host):
    host.knows(*book(lab, without=(lab.hosts[0],)))


@fault("endpoint-unresolvable", on="other", **NAMED)
def endpoint_name_unknown_to_one(lab, host):
    host.knows(*book(lab, without=(lab.hosts[0],)))


@fault("same-hostname", on="all", style=TORCHRUN)
def cloned_machines_of_one_name(lab, host):
    for each in lab.hosts:
        each.name, each.setup = each.name, [*each.setup, "hostname clone"]
        each.knows(f"{each.address} clone")


@fault("same-hostname", on="all", style=MUSTER)
def cloned_machines_with_addresses_given(lab, host):
    for each in lab.hosts:
        each.setup.append("hostname clone")
        each.knows(f"{each.address} clone")


@fault("peer-name-wrong", on="other", style=TORCHRUN)
def first_hosts_name_is_outdated_on_a_peer(lab, host):
    first = lab.hosts[0]
    host.knows(*book(lab, without=(first,), instead=(f"10.77.0.99 {first.name}",)))


@fault("endpoint-loopback", on="other", **NAMED)
def endpoint_name_is_loopback_on_a_peer(lab, host):
    first = lab.hosts[0]
    host.knows(*book(lab, without=(first,), instead=(f"127.0.0.1 {first.name}",)))


@fault("other-network", on="first", style=TORCHRUN)
def own_name_is_in_a_network_the_peers_lack(lab, host):
    host.ip("link add storage0 type bridge", "link set storage0 up", "address add 192.168.50.5/24 dev storage0")
    host.knows(*book(lab, without=(host,), instead=(f"192.168.50.5 {host.name}",)))


@fault("endpoint-foreign", on="first", style=TORCHRUN, endpoint="10.77.0.99")
def endpoint_is_nobodys_address(lab, host):
    pass


@fault("peer-name-wrong", on="other", counts=(4,), also=("endpoint-foreign", "wrong-machine"), **NAMED)
def old_entry_leads_to_another_of_the_hosts(lab, host):
    first, wrong = lab.hosts[0], next(each for each in lab.hosts[1:] if each is not host)
    host.knows(*book(lab, without=(first,), instead=(f"{wrong.address} {first.name}",)))


@fault("peer-name-unresolvable", on="all", style=TORCHRUN, counts=(3,))
def full_names_that_only_their_owners_know(lab, host):
    for each in lab.hosts:
        own = f"{each.address} {each.name}.old.lan {each.name}"
        each.knows(*book(lab, without=(each,), instead=(own,)))
    return [each.name for each in lab.hosts[1:]]


@fault("name-loopback", on="other", style=TORCHRUN, counts=(3,), also=("same-hostname", "endpoint-twice"))
def hostname_is_localhost(lab, host):
    host.setup.append("hostname localhost")


@fault("name-unresolvable", on="first", style=TORCHRUN, counts=(2,))
def localhost_is_unknown(lab, host):
    (HOSTS_FILES / host.space / "hosts").write_text("\n".join(book(lab)) + "\n")
