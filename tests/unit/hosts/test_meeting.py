"""Which network interface each host of a run uses to reach the others."""

from dataclasses import replace

import pytest

from deploy.core.results import Results
from deploy.host.facts import Address, Route
from deploy.host.reached import ReachedHosts
from deploy.hosts.start import meeting, observe
from deploy.job.cluster import Cluster
from deploy.job.inventory import Host
from tests.hosts import FACTS

HOSTS = (Host("a", "a"), Host("b", "b"))


@pytest.fixture
def met(monkeypatch):
    """met(*facts): the rendezvous address of these hosts, and the address to which each host looks up its route."""
    asked = {}

    def routes(sessions, peers):
        asked.update(peers)
        return Results({host: Route(f"to {peer}", f"from {host}") for host, peer in peers.items()})

    monkeypatch.setattr(observe, "routes", routes)

    def choose(*facts):
        hosts = HOSTS[: len(facts)]
        reached = ReachedHosts(Cluster(hosts), (), dict(zip((host.name for host in hosts), facts, strict=True)))
        made, _ = meeting.choose_meeting(reached, try_links=False)
        return made.address, asked

    return choose


def of(reached_at, *addresses):
    entries = tuple(
        Address(f"eth{at}", *address.split("/")[:1], int(address[-2:])) for at, address in enumerate(addresses)
    )
    return replace(FACTS, addresses=entries, reached_at=reached_at)


def test_the_first_host_uses_the_shared_network_and_not_that_of_ssh(met):
    """Once, the others connected to 192.168.0.1, and the first host answered from the network of the SSH login."""
    first = of("10.2.0.1", "10.2.0.1/24", "192.168.0.1/24")
    peer = of("10.1.0.2", "10.1.0.2/24", "192.168.0.2/24")
    assert met(first, peer) == ("192.168.0.1", {"a": "192.168.0.2", "b": "192.168.0.1"})


def test_without_a_shared_network_the_address_that_ssh_reached_is_used(met):
    first, peer = of("10.2.0.1", "10.2.0.1/24"), of("10.1.0.2", "10.3.0.2/24", "10.1.0.2/24")
    assert met(first, peer) == ("10.2.0.1", {"a": "10.1.0.2", "b": "10.2.0.1"})


def test_without_a_peer_that_has_an_address_the_first_host_uses_its_own(met):
    first = of("10.2.0.1", "10.2.0.1/24")
    assert met(first)[1] == {"a": "10.2.0.1"}
    assert met(first, of(""))[1] == {"a": "10.2.0.1", "b": "10.2.0.1"}
