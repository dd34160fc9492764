"""Bandwidth rounds, in which no host is called twice, and who is slow in the matrix of rates."""

import pytest

from deploy.preflight import Answers, PreflightRequest
from deploy.preflight.answers import Link
from deploy.preflight.checks import bandwidth


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 16, 33])
def test_every_pair_meets_once_and_no_host_twice_in_a_round(count):
    hosts = [f"h{number}" for number in range(count)]
    rounds = list(bandwidth.rounds(hosts))
    assert len(rounds) == count - 1 + count % 2
    for pairs in rounds:
        called = [host for pair in pairs for host in pair]
        assert len(called) == len(set(called))
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met)) == count * (count - 1) // 2


def matrix(slow, count=5, fast=9000.0, bad=900.0):
    """Answers in which the directed links that `slow` picks are ten times slower than the others."""
    hosts, links, size = [f"h{number}" for number in range(count)], [], bandwidth.SIZE
    for pairs in bandwidth.rounds(hosts):
        for source, other in pairs:
            forth, back = (8e-6 * size / (bad if slow(*ends) else fast) for ends in ((source, other), (other, source)))
            more = {"host": other, "size": size, "send_s": forth, "both_s": forth + back}
            links.append(Link(source, other, "10.0.0.1", 40000, ("bandwidth",), "ok", **more))
    return Answers(PreflightRequest(), tuple(hosts), facts={host: {} for host in hosts}, links=tuple(links))


def test_rates_are_read_in_both_directions():
    known = bandwidth.rates(matrix(lambda source, other: (source, other) == ("h1", "h2")))
    assert known["h1", "h2"] == pytest.approx(900)
    assert known["h2", "h1"] == pytest.approx(9000)
    assert len(known) == 20


@pytest.mark.parametrize("host", ["h0", "h3", "h4"])
def test_a_slow_host_is_named_and_not_its_links(host):
    findings = list(bandwidth.check(matrix(lambda source, other: other == host)))
    assert [(finding.hosts, finding.link) for finding in findings] == [((host,), None)]
    assert "receives slowly: 900 Mbit/s" in findings[0].text


def test_a_slow_link_is_named_with_its_direction():
    findings = list(bandwidth.check(matrix(lambda source, other: (source, other) == ("h3", "h1"))))
    assert [finding.link for finding in findings] == [("h3", "h1")]
    assert "the link from h3 to h1 is slow" in findings[0].text


def test_an_even_matrix_has_no_finding():
    assert list(bandwidth.check(matrix(lambda source, other: False))) == []


def test_one_of_three_hosts_slow_both_ways_is_one_finding():
    findings = list(bandwidth.check(matrix(lambda source, other: "h1" in (source, other), count=3)))
    assert [(finding.hosts, finding.link) for finding in findings] == [(("h1",), None)]
    assert "sends and receives slowly" in findings[0].text


def test_a_link_that_is_slow_both_ways_is_one_finding():
    findings = list(bandwidth.check(matrix(lambda source, other: {source, other} == {"h3", "h1"})))
    assert [finding.link for finding in findings] == [("h1", "h3")]
    assert "the link between h1 and h3 is slow" in findings[0].text


def test_single_slow_links_are_measured_again_but_not_those_of_a_slow_host():
    assert bandwidth.again(matrix(lambda source, other: source == "h2")) == []
    assert bandwidth.again(matrix(lambda source, other: (source, other) == ("h3", "h1"))) == [("h3", "h1")]
