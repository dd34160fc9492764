"""Parsing a host's answer to `muster delete`."""

import pytest

from deploy.core.errors import BadAnswer
from deploy.hosts.act.delete import Deleted, deleted_of


def test_files_and_bytes_are_read():
    assert deleted_of("deleted 12 3\n") == Deleted(12, 3072)


@pytest.mark.parametrize("answer", ["", "deleted", "deleted x 3", "deleted 1 -3", "removed 1 2"])
def test_any_other_answer_is_refused(answer):
    with pytest.raises(BadAnswer):
        deleted_of(answer)
