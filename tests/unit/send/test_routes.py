"""Who gets from whom: a chain, around what is silent or slow."""

from deploy.send.road import routes
from deploy.send.road.routes import HERE, Stop

MB = 1 << 20


def stop(name, pieces, got=(), source=HERE, serves=True, **more):
    return Stop(name, name, dict.fromkeys(pieces, MB), set(got), source, serves=serves, **more)


def among(*stops):
    return {each.name: each for each in stops}


ALL = [f"p{number:02}" for number in range(40)]


def test_hosts_that_lack_the_same_make_a_chain():
    stops = dict[str, Stop]()
    for name in "abcd":
        new = stop(name, ALL)
        stops[name] = new
        new.source = routes.source_for(new, stops)
    assert [stops[name].source for name in "abcd"] == [HERE, "a", "b", "c"]


def test_who_lacks_less_gets_it_from_who_lacks_more_and_what_nobody_has_comes_from_here():
    big, small, other = stop("big", ALL), stop("small", ALL[20:]), stop("other", ["x"])
    stops = among(big, small, other)
    assert routes.source_for(small, stops) == "big"
    assert routes.source_for(other, stops) == HERE


def test_nobody_asks_a_host_that_asks_it():
    a, b, c = stop("a", ALL), stop("b", ALL, source="a"), stop("c", ALL, source="b")
    assert routes.source_for(a, among(a, b, c)) == HERE


def test_a_host_that_serves_nothing_or_is_avoided_is_not_asked():
    a, b, c = stop("a", ALL, serves=False), stop("b", ALL), stop("c", ALL, avoids={"b"})
    assert routes.source_for(c, among(a, b, c)) == HERE


def test_two_deliveries_to_one_host_do_not_ask_each_other():
    first, second = Stop("a 0", "a", dict.fromkeys(ALL, MB), serves=True), Stop("a 1", "a", dict.fromkeys(ALL, MB))
    assert routes.source_for(second, among(first, second)) == HERE


def test_what_is_hardly_shared_comes_from_here():
    a, b = Stop("a", "a", {"p": 1000}, serves=True), Stop("b", "b", {"p": 1000, "q": 5 * MB})
    assert routes.source_for(b, among(a, b)) == HERE


def test_silence_counts_only_where_the_source_has_more():
    a = stop("a", ALL, ALL[:5])
    waits, starves = stop("b", ALL, ALL[:5], "a", since=0.0), stop("c", ALL, ALL[:3], "a", since=0.0)
    stops = among(a, waits, starves)
    assert routes.silent(stops, routes.SILENT_S - 1) == []
    assert routes.silent(stops, routes.SILENT_S + 1) == [starves]


def steady(each, digests, first, seconds):
    """It gets these, evenly."""
    for place, digest in enumerate(digests):
        each.take(digest, first + place * seconds / len(digests))


def test_a_host_behind_a_slow_one_asks_the_one_before_that():
    fast, slow, waits = stop("fast", ALL), stop("slow", ALL, source="fast"), stop("waits", ALL, source="slow")
    steady(fast, ALL, 0.0, 20.0)
    steady(slow, ALL[:4], 0.0, 20.0)
    steady(waits, ALL[:4], 0.0, 20.0)
    assert routes.detours(among(fast, slow, waits), 20.0) == [(waits, "fast")]
    # One that is as fast as the one before it, or that has only begun, is no slow one.
    even, behind = stop("even", ALL, source="fast"), stop("behind", ALL, source="even")
    steady(even, ALL[:38], 0.0, 20.0)
    assert routes.detours(among(fast, even, behind), 20.0) == []
    late, last = stop("late", ALL, source="fast", routed=15.0), stop("last", ALL, source="late", routed=15.0)
    assert routes.detours(among(fast, late, last), 20.0) == []


def test_a_piece_counts_once_and_only_if_it_was_asked_for():
    a = stop("a", ALL)
    assert a.take("p01", 1.0)
    assert not a.take("p01", 2.0)
    assert not a.take("of another push", 2.0)
    assert a.bytes == MB


def test_ranges_name_the_lines_of_a_list():
    assert routes.ranges({"a", "b", "d"}, ["a", "b", "c", "d"]) == "1-2,4-4"
    assert routes.ranges(set(), ["a"]) == ""
