"""Which host gets pieces from which: a chain that avoids silent and slow hosts."""

from deploy.send.road import routes
from deploy.send.road.routes import Receiver

MB = 1 << 20


def receiver(host, pieces, got=(), source=None, serves=True, **more):
    return Receiver(host, dict.fromkeys(pieces, MB), set(got), source, can_serve=serves, **more)


ALL = [f"p{number:02}" for number in range(40)]


def test_hosts_that_lack_the_same_make_a_chain():
    receivers = []
    for name in "abcd":
        receivers.append(receiver(name, ALL))
        receivers[-1].source = routes.source_for(receivers[-1], receivers)
    assert [each.source for each in receivers] == [None, *receivers[:-1]]


def test_a_host_that_lacks_less_asks_one_that_lacks_more_and_the_rest_comes_from_here():
    big, small, other = receiver("big", ALL), receiver("small", ALL[20:]), receiver("other", ["x"])
    receivers = big, small, other
    assert routes.source_for(small, receivers) is big
    assert routes.source_for(other, receivers) is None


def test_no_host_asks_one_that_asks_it():
    a = receiver("a", ALL)
    b = receiver("b", ALL, source=a)
    c = receiver("c", ALL, source=b)
    assert routes.source_for(a, (a, b, c)) is None


def test_a_host_that_serves_nothing_or_is_avoided_is_not_asked():
    a, b = receiver("a", ALL, serves=False), receiver("b", ALL)
    c = receiver("c", ALL, avoids={b})
    assert routes.source_for(c, (a, b, c)) is None


def test_two_deliveries_to_one_host_do_not_ask_each_other():
    first, second = receiver("a", ALL), receiver("a", ALL)
    assert routes.source_for(second, (first, second)) is None


def test_hosts_that_share_few_bytes_get_theirs_from_here():
    a, b = Receiver("a", {"p": 1000}, can_serve=True), Receiver("b", {"p": 1000, "q": 5 * MB})
    assert routes.source_for(b, (a, b)) is None


def test_silence_counts_only_if_the_source_has_more():
    a = receiver("a", ALL, ALL[:5])
    waits, starves = receiver("b", ALL, ALL[:5], a, since=0.0), receiver("c", ALL, ALL[:3], a, since=0.0)
    receivers = a, waits, starves
    assert routes.silent(receivers, routes.SILENT_S - 1) == []
    assert routes.silent(receivers, routes.SILENT_S + 1) == [starves]


def steady(each, digests, first, seconds):
    """Let the host get these pieces at an even rate."""
    for place, digest in enumerate(digests):
        each.add_piece(digest, first + place * seconds / len(digests))


def test_a_host_after_a_slow_one_asks_the_one_before_it():
    fast = receiver("fast", ALL)
    slow = receiver("slow", ALL, source=fast)
    waits = receiver("waits", ALL, source=slow)
    steady(fast, ALL, 0.0, 20.0)
    steady(slow, ALL[:4], 0.0, 20.0)
    steady(waits, ALL[:4], 0.0, 20.0)
    assert routes.detours((fast, slow, waits), 20.0) == [waits]
    # A host that is as fast as the one before it, or that has only just begun, does not count as slow.
    even = receiver("even", ALL, source=fast)
    behind = receiver("behind", ALL, source=even)
    steady(even, ALL[:38], 0.0, 20.0)
    assert routes.detours((fast, even, behind), 20.0) == []
    late = receiver("late", ALL, source=fast, routed=15.0)
    last = receiver("last", ALL, source=late, routed=15.0)
    assert routes.detours((fast, late, last), 20.0) == []


def test_a_piece_counts_once_and_only_if_it_was_asked_for():
    a = receiver("a", ALL)
    assert a.add_piece("p01", 1.0)
    assert not a.add_piece("p01", 2.0)
    assert not a.add_piece("of another push", 2.0)
    assert a.bytes == MB


def test_ranges_name_the_lines_of_a_list():
    assert routes.ranges({"a", "b", "d"}, ["a", "b", "c", "d"]) == "1,2p;4,4p"
    assert routes.ranges(set(), ["a"]) == ""
