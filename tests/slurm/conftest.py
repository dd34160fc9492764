"""One Slurm cluster of two nodes in a container, shared by the tests of this folder; each has a folder of its own."""

import uuid

import pytest

from lab.rack import make
from lab.slurm.cluster import SHARED, cluster


@pytest.fixture(scope="session")
def slurm(docker):
    """slurmctld, two slurmd and sshd, with this checkout."""
    done = make("image")
    assert done.returncode == 0, done.stderr
    with cluster(2) as made:
        yield made


@pytest.fixture
def folder(slurm):
    """A folder of the test's own in the shared home, in which it has nothing yet."""
    path = f"{SHARED}/{uuid.uuid4().hex[:8]}"
    slurm.out(f"mkdir {path}")
    return path
