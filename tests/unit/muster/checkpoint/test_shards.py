"""Parts of a tensor are joined only if together they are exactly the whole tensor."""

import pytest
import torch

from muster.checkpoint import shards
from muster.errors import CheckpointError

pytestmark = pytest.mark.torch
VALUES = torch.arange(12.0).view(4, 3)


def parts(folder, *boxes):
    """Write the files of ranks that hold these boxes; return one reader for all of the files."""
    for rank, box in enumerate(boxes):
        piece = VALUES[tuple(slice(low, high) for low, high in box)].clone()
        torch.save({"boxes": {"w": (box, piece)}}, folder / shards.name_of(rank))
    names = [shards.name_of(rank) for rank in range(len(boxes))]
    return shards.Shards(folder, dict.fromkeys(names, 0), set(names), alone=True)


@pytest.mark.parametrize(
    "boxes",
    [
        [((0, 4), (0, 3))],
        [((0, 3), (0, 3)), ((3, 4), (0, 3))],
        [((0, 2), (0, 1)), ((0, 2), (1, 3)), ((2, 4), (0, 2)), ((2, 4), (2, 3))],
    ],
)
def test_boxes_that_cover_a_tensor_give_all_of_it_and_any_part(tmp_path, boxes):
    read = parts(tmp_path, *boxes)
    assert torch.equal(read.fetch({"w": ((0, 4), (0, 3))})["w"], VALUES)
    assert torch.equal(read.fetch({"w": ((1, 4), (1, 2))})["w"], VALUES[1:4, 1:2])


@pytest.mark.parametrize(
    "boxes",
    [
        [((0, 3), (0, 3))],
        [((0, 2), (0, 3)), ((1, 3), (0, 3))],  # as many values as the whole, but one row twice and one not at all
        [((0, 4), (0, 3)), ((0, 1), (0, 3))],
    ],
)
def test_boxes_with_a_gap_or_an_overlap_are_refused(tmp_path, boxes):
    with pytest.raises(CheckpointError, match="w is incomplete in the files"):
        parts(tmp_path, *boxes).fetch({"w": ((0, 4), (0, 3))})
