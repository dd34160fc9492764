"""What a host answers to a delete, read."""

import pytest

from deploy.core.errors import BadAnswer, DeployError
from deploy.hosts.delete import Deleted, deleted_of


def test_files_and_bytes_are_read():
    assert deleted_of("deleted 12 3\n") == Deleted(12, 3072)


def test_a_run_that_has_a_container_is_a_fault():
    with pytest.raises(DeployError, match="nothing was deleted"):
        deleted_of("running\n")


@pytest.mark.parametrize("answer", ["", "deleted", "deleted x 3", "deleted 1 -3", "removed 1 2"])
def test_another_answer_is_refused(answer):
    with pytest.raises(BadAnswer):
        deleted_of(answer)
