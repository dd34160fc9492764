"""On which of several networks the hosts meet: what counts as a network, the best one, what is said of the others."""

import dataclasses

import pytest

from deploy.hosts.node import overlay_plan
from deploy.preflight import PreflightRequest, judge, networks
from deploy.preflight.answers import Answers, Link
from deploy.preflight.networks import Network
from deploy.preflight.probe import conversation
from lab.answers import HOSTS, answers, facts

SLOW, FAST = "10.0.0.0/24", "192.168.5.0/24"


def with_second(count=3, prefix=24, **more):
    """Answers of three hosts, of which the first `count` have eth1 as well."""
    change = {}
    for place, host in enumerate(HOSTS):
        own = facts(place)["interfaces"]
        eth1 = {**own["eth0"], "addresses": [[f"192.168.5.{place + 1}", prefix]], **more}
        change[host] = {"interfaces": {**own, "eth1": eth1} if place < count else own}
    return answers(PreflightRequest(), change=change)


def network(name, interface, hosts=HOSTS, **more):
    return Network(name, {host: (interface, f"{name}-{host}") for host in hosts}, **more)


def called(seen, wanted, mbit, trip=0.2):
    """The calls that measured a network, with the same rate in both directions."""
    seconds = 8e-6 * networks.SIZE / mbit
    for first, other in networks.pairs_of(wanted):
        call = networks.call(seen, wanted, other, networks.SIZE)
        yield Link(first, other, call["address"], call["port"], ("network",), "ok", host=other, size=networks.SIZE,
                   send_s=seconds, both_s=2 * seconds, trip_ms=trip)  # fmt: skip


def test_hosts_with_one_network_get_no_choice():
    assert networks.candidates(answers(PreflightRequest())) == []
    assert judge(answers(PreflightRequest())).network == ""
    cut_off = answers(PreflightRequest(), outcome=lambda source, target, kind: "dropped")
    assert (judge(cut_off).ok, judge(cut_off).network) == (False, ""), "there is no network to choose"


def test_routes_on_which_cloned_hosts_have_the_same_address_are_no_network():
    change = {}
    for place, host in enumerate(HOSTS):
        own = facts(place)["interfaces"]
        other = {**own["eth0"], "addresses": [[f"192.168.5.{place + 1}", 24]]}
        change[host] = {"interfaces": {**own, "eth0": {**own["eth0"], "addresses": [["10.0.0.1", 24]]}, "eth1": other}}
    assert networks.candidates(answers(PreflightRequest(), change=change)) == []


def test_the_network_that_the_routes_use_comes_first():
    assert [one.name for one in networks.candidates(with_second())] == [SLOW, FAST]


@pytest.mark.parametrize("name", networks.VARIABLES)
def test_an_interface_that_the_user_names_is_never_replaced(name):
    seen = with_second()
    named = PreflightRequest(environment={name: "eth0"})
    assert networks.candidates(dataclasses.replace(seen, request=named)) == []
    assert networks.candidates(dataclasses.replace(seen, request=PreflightRequest(interfaces={"a": "eth0"}))) == []
    assert networks.candidates(dataclasses.replace(seen, request=PreflightRequest(style="torchrun"))) == []


def test_a_container_network_or_one_with_a_single_address_does_not_count():
    assert networks.candidates(with_second(bridge=True)) == []
    seen = with_second()
    same = {host: {**fact, "interfaces": {**fact["interfaces"], "eth1": seen.facts["a"]["interfaces"]["eth1"]}}
            for host, fact in seen.facts.items()}  # fmt: skip
    assert networks.candidates(dataclasses.replace(seen, facts=same)) == []


def test_the_overlay_network_of_another_run_does_not_count():
    seen = with_second()
    change = {}
    for host, fact in seen.facts.items():
        own = dict(fact["interfaces"])
        own[overlay_plan.interface_of("0123456789abcdef")] = own.pop("eth1")
        change[host] = {"interfaces": own}
    assert networks.candidates(answers(PreflightRequest(), change=change)) == []


def test_a_tunnel_that_gives_each_host_a_single_address_is_one_network():
    assert [one.name for one in networks.candidates(with_second(prefix=32))] == [SLOW, "the peers of eth1"]


def test_the_rate_of_a_network_is_that_of_its_slowest_pair():
    seen = with_second()
    wanted = networks.candidates(seen)[1]
    links = list(called(seen, wanted, 800.0))
    links[1] = dataclasses.replace(
        links[1], send_s=8e-6 * networks.SIZE / 40.0, both_s=8e-6 * networks.SIZE * (1 / 40.0 + 1 / 800.0)
    )
    assert networks.measured(seen, wanted, links).mbit == pytest.approx(40.0, rel=0.01)


def test_a_network_where_a_needed_call_fails_is_closed():
    seen = with_second()
    wanted = networks.candidates(seen)[1]
    dead = Link("c", "b", "192.168.5.2", 40000, ("other",), "dropped")
    assert networks.measured(dataclasses.replace(seen, links=(dead,)), wanted, ()).closed == (("c", "b"),)
    # gloo calls from the larger address to the smaller one.
    dead = Link("b", "c", "192.168.5.3", 40000, ("other",), "dropped")
    assert networks.measured(dataclasses.replace(seen, links=(dead,)), wanted, ()).closed == ()


@pytest.mark.parametrize(
    ("kind", "more", "opens"),
    [
        ("data", {"outcome": "ok"}, True),
        ("data", {"outcome": "ok", "host": "a"}, False),  # something else answers there
        *(("data", {"outcome": outcome}, True) for outcome in ("slow", "late", "at-times")),
        *(("data", {"outcome": outcome}, False) for outcome in ("dropped", "refused", "silent")),
        ("data", {"outcome": "stall-send", "moved": networks.SIZE}, False),
        ("data", {"outcome": "stall-receive", "send_s": 0.1}, True),
        ("network", {"outcome": "stall-send", "moved": networks.SIZE // 2}, True),  # a slow network is open
        ("network", {"outcome": "stall-send", "moved": 3000}, False),  # the first packets alone pass a small MTU
    ],
)
def test_a_network_is_open_if_its_hosts_answer_on_it_however_slowly(kind, more, opens):
    seen = with_second()
    wanted = networks.candidates(seen)[1]
    tried = Link("c", "b", "192.168.5.2", 40000, (kind,), **{"host": "b", **more})
    assert networks.measured(dataclasses.replace(seen, links=(tried,)), wanted, ()).closed == (
        () if opens else (("c", "b"),)
    )


def test_a_host_that_cannot_call_itself_closes_no_network():
    seen = with_second()
    wanted = networks.candidates(seen)[1]
    dead = Link("b", "b", "192.168.5.2", 40000, ("hint",), "dropped")
    seen = dataclasses.replace(seen, request=PreflightRequest(backend="nccl"), links=(dead,))
    assert networks.measured(seen, wanted, ()).closed == ()


def test_the_rate_of_a_payload_that_passed_only_in_part_is_that_of_its_part():
    seen = with_second()
    wanted = networks.candidates(seen)[1]
    half = Link("a", "b", "192.168.5.2", 40000, ("network",), "stall-send", host="b", moved=375_000)
    assert networks.measured(seen, wanted, [half]).mbit == 2.0
    back = dataclasses.replace(half, outcome="stall-receive", size=networks.SIZE, send_s=0.5)
    assert networks.measured(seen, wanted, [back]).mbit == 3.0


@pytest.mark.parametrize(
    ("mbit", "words"),
    [(0.3, "300 kbit/s"), (1.0, "1 Mbit/s"), (999.0, "999 Mbit/s"), (1000.0, "1.0 Gbit/s"), (9400.0, "9.4 Gbit/s")],
)
def test_a_rate_has_the_unit_of_its_size(mbit, words):
    assert networks.rate_words(mbit) == words


@pytest.mark.parametrize(
    ("first", "second", "best"),
    [
        ({"mbit": 90.0}, {"mbit": 9400.0}, FAST),
        ({"mbit": 9400.0}, {"mbit": 90.0}, SLOW),
        ({"mbit": 9000.0}, {"mbit": 9400.0}, SLOW),  # not fast enough to leave the routes' network
        ({"mbit": 9400.0, "closed": (("a", "b"),)}, {"mbit": 9.0}, FAST),
        ({"mbit": 9.0}, {"mbit": 9400.0, "closed": (("a", "c"),)}, SLOW),
        ({"closed": (("a", "b"),)}, {"closed": (("a", "c"),)}, ""),
    ],
)
def test_the_best_network_connects_everybody_and_is_the_fastest(first, second, best):
    choice = networks.best([network(SLOW, "eth0", **first), network(FAST, "eth1", **second)], HOSTS)
    assert (choice.name if choice else "") == best


def test_a_network_that_one_host_lacks_does_not_connect_all():
    choices = [network(SLOW, "eth0", mbit=10.0), network(FAST, "eth1", HOSTS[:2], mbit=9400.0)]
    chosen = networks.best(choices, HOSTS)
    assert chosen is choices[0]
    assert networks.summary(choices, chosen, HOSTS).endswith("eth1 (192.168.5.0/24) is not on c")


def test_the_verdict_says_where_the_hosts_meet_and_what_is_wrong_with_the_others():
    shut = network(SLOW, "eth0", closed=(("b", "a"), ("c", "a"), ("c", "b")))
    open_ = network(FAST, "eth1", mbit=9400.0)
    seen = dataclasses.replace(with_second(), networks=tuple(map(dataclasses.asdict, (shut, open_))))
    words = "the hosts meet on eth1 (192.168.5.0/24, 9.4 Gbit/s); eth0 (10.0.0.0/24) is closed between them"
    assert judge(seen).network == words
    assert judge(Answers.of(seen.json())) == judge(seen)


def test_the_plan_uses_the_interfaces_of_the_chosen_network():
    request = PreflightRequest(endpoint="192.168.5.1", interfaces=dict.fromkeys(HOSTS, "eth1"))
    plan = dataclasses.replace(with_second(), request=request).plan
    assert {pick.address for pick in plan.data.values()} == {"192.168.5.1", "192.168.5.2", "192.168.5.3"}


def test_networks_that_do_not_connect_all_hosts_are_not_the_cause():
    first = network(SLOW, "eth0", closed=(("c", "a"), ("c", "b")))
    second = network(FAST, "eth1", HOSTS[:2])
    links = answers(outcome=lambda s, t, k: "dropped" if s == "c" else "ok").links
    verdict = judge(
        dataclasses.replace(with_second(), links=links, networks=tuple(map(dataclasses.asdict, (first, second))))
    )
    assert (verdict.cause, verdict.hosts) == ("all-ports-dropped", ("c",))
    first_is = "eth0 (10.0.0.0/24) is closed between them"
    assert verdict.network == f"no network connects all hosts; {first_is}; eth1 (192.168.5.0/24) is not on c"


def test_a_part_of_the_routes_interfaces_is_no_second_network():
    change = {"c": {"interfaces": {**facts(2)["interfaces"]}}}
    change["c"]["interfaces"]["eth0"] = {**facts(2)["interfaces"]["eth0"], "addresses": [["10.9.0.3", 24]]}
    assert networks.candidates(answers(PreflightRequest(), change=change)) == []


def test_a_call_delayed_by_a_busy_host_does_not_make_a_fast_network_slow(monkeypatch):
    seen = with_second()
    wanted = networks.candidates(seen)[1]
    rates = iter([200.0, 260.0, 1500.0])  # small, large, and large once more

    def answered(talk, hosts, call):
        size, mbit = call(networks.pairs_of(wanted)[0])["size"], next(rates)
        return [dataclasses.replace(link, size=size, send_s=8e-6 * size / mbit, both_s=16e-6 * size / mbit)
                for link in called(seen, wanted, mbit)]  # fmt: skip

    monkeypatch.setattr(conversation, "_in_rounds", answered)
    assert conversation._measured(None, seen, wanted).mbit == pytest.approx(1500.0, rel=0.01)
