"""The text of --mesh, checked before torch is imported."""

import pytest

from muster.errors import Refused
from trainer.mesh import Mesh, parse, sizes


def test_without_text_every_rank_has_a_copy():
    assert parse("", 3) == Mesh(dp_replicate=3)
    assert parse("", 3).copies


def test_one_size_may_follow_from_the_others():
    assert parse("dp_replicate=2,dp_shard=-1", 8) == Mesh(2, 4)
    assert parse(" dp_shard = -1 ", 1) == Mesh()
    assert str(parse("dp_shard=2,dp_replicate=3", 6)) == "dp_replicate=3,dp_shard=2"


def test_ranks_of_a_tensor_parallel_group_are_neighbours_and_share_their_samples():
    mesh = Mesh(dp_replicate=2, dp_shard=2, tp=2)
    assert [mesh.data_rank(rank) for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [mesh.counts(rank) for rank in range(4)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("dp_shard", "unknown part"),
        ("fsdp=2", "unknown part"),
        ("pp=2", "pipeline"),
        ("dp_shard=2,dp_shard=2", "twice"),
        ("dp_shard=0", "from 1 up"),
        ("dp_shard=-2", "from 1 up"),
        ("dp_shard=two", "from 1 up"),
        ("dp_shard=²", "from 1 up"),
        ("dp_shard=-1,tp=-1", "only one"),
    ],
)
def test_a_wrong_text_is_refused_with_an_example(text, word):
    with pytest.raises(Refused, match=word) as refused:
        sizes(text)
    assert "which-mesh" in refused.value.hint or parse(mesh_of(refused.value.hint), 6)


def mesh_of(hint):
    """The mesh that a hint offers."""
    return hint.removeprefix("--mesh ").split()[0]


@pytest.mark.parametrize(("text", "world"), [("dp_shard=3", 4), ("dp_shard=4", 2), ("dp_shard=-1,dp_replicate=3", 4)])
def test_sizes_that_do_not_multiply_to_the_world_are_refused(text, world):
    with pytest.raises(Refused, match=f"but the run has {world}"):
        parse(text, world)


@pytest.mark.parametrize(
    ("text", "world", "offered"),
    [
        ("dp_shard=3", 4, "dp_shard=-1"),
        ("dp_replicate=2,dp_shard=4,tp=2", 8, "dp_replicate=2,dp_shard=-1,tp=2"),
        ("dp_replicate=2,dp_shard=4,tp=2", 2, "tp=2"),
        ("dp_replicate=2,dp_shard=4", 2, "dp_shard=-1"),
        ("tp=4", 6, "dp_shard=-1"),
        ("tp=4", 8, "dp_shard=-1,tp=4"),
        ("dp_shard=-1,tp=3", 4, "dp_shard=-1"),
        ("dp_replicate=3", 4, "dp_replicate=-1"),
        ("dp_shard=2", 1, "dp_shard=-1"),
    ],
)
def test_the_hint_is_a_mesh_for_the_ranks_at_hand_and_keeps_what_divides_them(text, world, offered):
    with pytest.raises(Refused) as refused:
        parse(text, world)
    assert refused.value.hint == f"--mesh {offered}"
    assert parse(offered, world)
