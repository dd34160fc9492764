"""A rank knows its place, and refuses a world that is not the planned one."""

import pytest

from muster.errors import Refused
from trainer.train.environment import discover

TORCHRUN = {
    "RANK": "2",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "3",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29501",
    "GROUP_WORLD_SIZE": "3",
}
PLAN = {"PET_NNODES": "3", "PET_NPROC_PER_NODE": "1"}


def test_torchruns_environment_is_enough():
    place = discover({**TORCHRUN, "MUSTER_NODE": "worker-2"})
    assert (place.rank, place.world, place.node, place.first) == (2, 3, "worker-2", False)


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_missing_variable_is_named(name):
    with pytest.raises(Refused, match=name):
        discover({key: value for key, value in TORCHRUN.items() if key != name})


@pytest.mark.parametrize(("name", "value"), [("RANK", "x"), ("WORLD_SIZE", "-1"), ("LOCAL_RANK", "1.5")])
def test_nonsense_is_named(name, value):
    with pytest.raises(Refused, match=name):
        discover({**TORCHRUN, name: value})


def test_a_rank_outside_its_world_is_refused():
    with pytest.raises(Refused, match="outside"):
        discover({**TORCHRUN, "RANK": "3"})


def test_the_planned_world_is_accepted():
    assert discover({**TORCHRUN, **PLAN}).world == 3


def test_fewer_nodes_than_planned_never_train_alone():
    alone = {**TORCHRUN, **PLAN, "RANK": "0", "WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1"}
    with pytest.raises(Refused, match="1 of 3 planned nodes"):
        discover(alone)


def test_other_numbers_of_processes_than_planned_are_refused():
    with pytest.raises(Refused, match="planned were 3 nodes x 2"):
        discover({**TORCHRUN, **PLAN, "PET_NPROC_PER_NODE": "2"})
