"""When a rank gives up instead of starting once more."""

import pytest

from muster.errors import TrainError
from trainer.run_dir import RankFolder
from trainer.train import run

pytestmark = pytest.mark.torch


def test_a_rank_gives_up_after_starts_that_died_and_not_after_starts_that_came_to_an_end(tmp_path):
    folder = RankFolder(tmp_path, 0, "a")
    for _ in range(6):
        folder.event("started")
        folder.event("outcome")
    assert run._count_starts(folder) == 6
    for _ in range(5):
        folder.event("started")
    with pytest.raises(TrainError, match="5 times without a single step"):
        run._count_starts(folder)
