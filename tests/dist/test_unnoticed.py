"""A script under an agent with all hooks comes to the same as under torchrun by hand: what it prints, how it ends."""

import pytest

from benchmarks.unnoticed import differ, outcomes

OWN = ["groups", "mesh", "fails_on_the_way_back", "warned", "modes", "profiled"]
TORCHS = ["test_new_subgroups_by_enumeration", "test_all_reduce_group_sum", "test_destroy_group", "test_gather_group"]


@pytest.mark.parametrize(("ranks", "cases"), [(2, OWN), (3, TORCHS)], ids=["uses of torch", "torch's own tests"])
def test_a_script_does_not_notice_that_it_is_watched(tmp_path, ranks, cases):
    by_hand, watched = (outcomes(tmp_path / how, ranks, cases, how == "watched") for how in ("by-hand", "watched"))
    assert all(rank.keys() == set(cases) for rank in by_hand)
    assert all(said for rank in by_hand for _, said in rank.values())
    assert not differ(by_hand, watched)
