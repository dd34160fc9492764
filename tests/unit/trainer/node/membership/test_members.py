"""Which nodes train next: never too few, never two that do not reach each other, and no change for nothing."""

import pytest

from trainer.node.membership.members import ENDED_S, SILENT_S, Epoch, Leader, View, find_cut_off, refusal_to_leave

NAMES = ("a", "b", "c")
ALL = frozenset(NAMES)


def views(now=100.0, **changed):
    """Three nodes that train in epoch 4 and see each other, except for what `changed` says."""
    usual = {"answered": now, "number": 4, "sees": ALL}
    return {name: View(**{**usual, **changed.get(name, {})}) for name in NAMES}


def decided(epoch, *looks, names=NAMES, least=2):
    """Return what the leader decides at the last of some looks, each a time in seconds and its views."""
    leader = Leader(names, least)
    return [leader.next(epoch, seen, now) for now, seen in looks][-1]


def second_look(epoch, **changed):
    """Return the decision once all nodes have answered again."""
    return decided(epoch, (100.0, views(**changed)), (101.0, views(101.0, **changed)))


def test_the_first_epoch_is_the_whole_plan_once_all_are_ready():
    waits = {name: {"after": 0, "number": 0} for name in NAMES}
    assert decided(Epoch(), (100.0, views(**waits))) == NAMES
    assert decided(Epoch(), (100.0, views(**{**waits, "b": {"number": 0}}))) is None
    assert decided(Epoch(), (100.0, views(**{**waits, "b": {"after": 0, "gone": True}}))) is None


def test_nothing_changes_while_all_is_well_or_the_run_is_over():
    assert second_look(Epoch(4, NAMES)) is None
    assert second_look(Epoch(4, NAMES, over=0), b={"gone": True}) is None


@pytest.mark.parametrize("lost", [{"gone": True}, {"answered": 100.0 - SILENT_S}])
def test_the_others_continue_without_a_lost_node_even_the_first(lost):
    assert second_look(Epoch(4, NAMES), b=lost) == ("a", "c")
    assert second_look(Epoch(4, NAMES), a=lost) == ("b", "c")


def test_too_few_nodes_do_not_continue():
    assert second_look(Epoch(4, NAMES), a={"gone": True}, b={"gone": True}) is None


def test_after_a_lost_rank_the_same_nodes_begin_again():
    assert second_look(Epoch(4, NAMES), b={"after": 4}) == NAMES


def test_a_node_that_has_not_answered_since_the_trouble_began_is_heard_first():
    quiet = {**views(101.0, b={"after": 4}), "c": View(answered=99.5, number=4, sees=ALL)}
    assert decided(Epoch(4, NAMES), (100.0, views(b={"after": 4})), (101.0, quiet)) is None


def test_two_nodes_that_do_not_reach_each_other_do_not_both_continue():
    cut = {"b": {"sees": frozenset("a")}, "c": {"sees": frozenset("a")}}
    looks = [(100.0 + second, views(100.0 + second, **cut)) for second in (0.0, 1.0, SILENT_S + 0.1)]
    assert decided(Epoch(4, NAMES), *looks[:2]) is None  # a link may be slow for a moment
    assert decided(Epoch(4, NAMES), *looks) == ("a", "b")


@pytest.mark.parametrize("deaf", ["b", "c"])
def test_a_one_way_link_excludes_the_later_node_whichever_end_is_deaf(deaf):
    cut = {deaf: {"sees": ALL - ({"b", "c"} - {deaf})}}
    looks = [(100.0 + second, views(100.0 + second, **cut)) for second in (0.0, SILENT_S + 0.1)]
    assert decided(Epoch(4, NAMES), *looks) == ("a", "b")


def test_a_node_that_is_back_takes_part_after_the_next_checkpoint():
    back = {"after": 2, "number": 2}
    before = views(a={"saved": 50.0}, c=back)
    after = views(101.0, a={"saved": 101.0}, c=back)
    assert decided(Epoch(4, ("a", "b")), (100.0, before), (101.0, views(101.0, a={"saved": 50.0}, c=back))) is None
    assert decided(Epoch(4, ("a", "b")), (100.0, before), (101.0, after), (102.0, views(102.0, c=back))) is None
    later = views(102.0, a={"saved": 101.0}, c=back)
    assert decided(Epoch(4, ("a", "b")), (100.0, before), (101.0, after), (102.0, later)) == NAMES


def test_a_node_that_is_back_takes_part_immediately_if_another_is_lost():
    assert second_look(Epoch(4, ("a", "b")), b={"gone": True}, c={"after": 2}) == ("a", "c")


def test_a_node_that_is_back_and_does_not_reach_all_takes_nobodys_place():
    cut = {"a": {"sees": frozenset("b"), "after": 2}, "c": {"sees": frozenset("b")}}
    saved = [{**cut, "b": {"saved": at}} for at in (50.0, 101.0, 101.0)]
    looks = [(100.0 + n, views(100.0 + n, **each)) for n, each in enumerate(saved)]
    assert decided(Epoch(4, ("b", "c")), *looks) is None


def test_without_checkpoints_a_node_that_is_back_takes_part_immediately():
    leader = Leader(NAMES, 2, keeps=False)
    assert leader.next(Epoch(4, ("a", "b")), views(c={"after": 2}), 100.0) is None  # all are heard first
    assert leader.next(Epoch(4, ("a", "b")), views(101.0, c={"after": 2}), 101.0) == NAMES


def test_a_node_that_was_left_out_and_still_ends_its_ranks_is_not_taken_back():
    ends = {"after": None, "number": 3}
    assert second_look(Epoch(4, ("a", "b")), b={"gone": True}, c=ends) is None
    leader = Leader(NAMES, 2, keeps=False)
    looks = [leader.next(Epoch(4, ("a", "b")), views(at, c=ends), at) for at in (100.0, 101.0)]
    assert looks == [None, None]


def test_ranks_that_end_because_of_a_requested_stop_do_not_begin_again():
    assert second_look(Epoch(4, NAMES), b={"after": 4}, c={"stops": True}) is None


FIVE = ("a", "b", "c", "d", "e")


def with_spares(epoch, **changed):
    """Return the decision for three hosts and the spares d and e, once all have answered again."""
    leader, seen = Leader(FIVE, 2, spares=("d", "e")), frozenset(FIVE)
    waits = {name: {"after": 0, "number": 0} for name in FIVE if name not in epoch.members}
    for now in (100.0, 101.0, 102.0):
        of = {name: {"number": 4, **waits.get(name, {}), **changed.get(name, {})} for name in FIVE}
        views = {name: View(**{"answered": now, "sees": seen, **of[name]}) for name in FIVE}
        found = leader.next(epoch, views, now)
    return found


def test_a_spare_waits_until_a_node_is_lost_and_the_one_that_is_back_waits_in_turn():
    assert with_spares(Epoch()) == NAMES
    assert with_spares(Epoch(4, NAMES), a={"saved": 101.0}) is None
    assert with_spares(Epoch(4, NAMES), b={"gone": True}) == ("a", "c", "d")
    assert with_spares(Epoch(4, ("a", "c", "d")), a={"saved": 101.0}) is None, "b is back, and all places are taken"


def test_a_host_that_waits_comes_before_a_spare():
    assert with_spares(Epoch(4, ("a", "c", "d")), d={"gone": True}) == NAMES
    assert with_spares(Epoch(4, ("a", "c", "d")), c={"gone": True}) == ("a", "b", "d")


def test_spares_alone_never_train_while_other_hosts_could():
    lost = {"a": {"gone": True}, "b": {"gone": True}}
    assert with_spares(Epoch(4, NAMES), **lost) is None
    assert with_spares(Epoch(4, ("a", "c", "d")), c={"gone": True}, b={"gone": True}) is None


def test_a_spare_that_does_not_reach_a_node_takes_no_place_next_to_it():
    cut = {"d": {"sees": frozenset("abce")}, "c": {"sees": frozenset("abe")}}
    assert with_spares(Epoch(4, NAMES), b={"gone": True}, **cut) == ("a", "c", "e")


def with_arbiter(epoch, a=None, b=None, now=100.0, began=0.0, arbiter=True):
    """Return the decision for two hosts and an arbiter."""
    leader, found = Leader(("a", "b"), 1, arbiter=arbiter, began=began), None
    for at in (now, now + 1.0):
        usual = {"answered": at, "number": epoch.number, "sees": frozenset("ab")}
        views = {name: View(**{**usual, **(more or {})}) for name, more in (("a", a), ("b", b))}
        found = leader.next(epoch, views, at)
    return found


def test_with_an_arbiter_one_of_two_continues_immediately_as_the_other_needs_the_arbiter():
    assert with_arbiter(Epoch(4, ("a", "b")), b={"gone": True}) == ("a",)
    assert with_arbiter(Epoch(4, ("a", "b")), a={"answered": 97.0}) == ("b",)


def test_without_an_arbiter_neither_of_two_continues_alone():
    assert with_arbiter(Epoch(4, ("a", "b")), b={"gone": True}, arbiter=False) is None
    assert with_arbiter(Epoch(4, ("a", "b")), a={"answered": 100.0 - ENDED_S}, arbiter=False) is None


def test_the_other_host_takes_over_only_after_a_lone_host_must_have_ended():
    alone, waits = Epoch(4, ("a",)), {"after": 0, "number": 0}
    assert with_arbiter(alone, a={"answered": 97.0}, b=waits) is None
    assert with_arbiter(alone, a={"answered": 100.0 - ENDED_S}, b=waits) == ("b",)
    assert with_arbiter(alone, a={"answered": -1e9}, b=waits, began=95.0) is None, "this leader has just come"
    # The register is an epoch ahead of a host that still trains alone.
    assert with_arbiter(Epoch(5, ("a", "b")), a={"number": 4, "gone": True, "answered": 99.0}) is None
    assert with_arbiter(Epoch(5, ("a", "b")), a={"number": 4, "sees": frozenset()}, b={"sees": frozenset()}) is None


def test_the_others_continue_without_a_node_that_leaves_and_do_not_take_it_back():
    assert second_look(Epoch(4, NAMES), b={"leaves": True}) == ("a", "c")
    assert second_look(Epoch(4, NAMES), a={"leaves": True}) == ("b", "c")
    waits = {"leaves": True, "after": 4}
    assert second_look(Epoch(5, ("a", "c")), a={"number": 5, "saved": 9.0}, b=waits, c={"number": 5}) is None


def test_all_have_heard_that_a_node_leaves_before_the_others_continue():
    looks = [(100.0, views(b={"leaves": True})), (100.2, views(100.2, b={"leaves": True}))]
    assert decided(Epoch(4, NAMES), *looks) is None


def test_of_two_nodes_that_leave_together_one_stays_if_too_few_would_be_left():
    assert second_look(Epoch(4, NAMES), a={"leaves": True}, b={"leaves": True}) == ("b", "c")


def test_a_node_that_wants_to_leave_stays_if_a_lost_node_leaves_too_few():
    assert second_look(Epoch(4, NAMES), a={"leaves": True}, b={"gone": True}) == ("a", "c")


@pytest.mark.parametrize(
    ("name", "least", "changed", "why"),
    [
        ("b", 2, {}, ""),
        ("b", 3, {}, "2 of 3 nodes would be left, but --min-nodes is 3"),
        ("b", 2, {"c": {"gone": True}}, "1 of 3 nodes would be left"),
        ("b", 2, {"c": {"leaves": True}}, "1 of 3 nodes would be left"),
        ("b", 1, {"c": {"gone": True}}, "1 of 3 votes would be left"),
        ("v", 2, {}, "it is the arbiter"),
    ],
)
def test_a_node_may_leave_while_enough_are_left(name, least, changed, why):
    said = refusal_to_leave(name, NAMES, NAMES, least, views(**changed), 100.0)
    assert said.startswith(why)
    assert bool(said) == bool(why)


def test_a_spare_that_waits_may_leave():
    seen = {**views(), "d": View(answered=100.0, after=0)}
    assert refusal_to_leave("d", (*NAMES, "d"), NAMES, 3, seen, 100.0) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"c": {"answered": 90.0}}, [("c", ("a",))]),
        ({"b": {"sees": frozenset("a")}}, [("c", ("b",))]),
        ({"c": {"answered": 90.0}, "b": {"sees": frozenset("a")}}, []),
        ({"c": {"answered": 90.0}, "b": {"answered": 101.2}}, []),
        ({"b": {"answered": 101.2, "sees": frozenset("a")}}, []),
        ({"c": {"gone": True}}, []),
        ({}, []),
    ],
    ids=["by who asks", "by another", "lost", "seen too early", "missed too early", "ended", "back already"],
)
def test_a_node_that_was_left_out_is_cut_off_if_some_reach_it_and_some_do_not(changed, said):
    seen = views(102.0, **changed)
    assert find_cut_off(["c"], ["a", "b"], "a", seen, 101.0, 101.5) == said
