"""The words of `fab port`, and the folder that TensorBoard gets."""

import pytest

from deploy.core.errors import UsageError
from deploy.hosts import port


@pytest.mark.parametrize(("asked", "here", "there"), [("6006", 6006, 6006), ("7000:6006", 7000, 6006)])
def test_a_port_here_and_there(asked, here, there):
    assert port._numbers(asked) == (here, there)


@pytest.mark.parametrize("asked", ["", "0", "65536", "a", "1:2:3", "6006:", "-1"])
def test_other_words_are_no_port(asked):
    with pytest.raises(UsageError, match="not a port"):
        port._numbers(asked)


@pytest.mark.parametrize(
    ("folders", "common"),
    [(["/r/work/a"], "/r/work/a"), (["/r/work/a/1", "/r/work/a/2"], "/r/work/a"), (["/r/work", "/r/work/b"], "/r/work"),
     (["/a", "/b"], "/")],
)  # fmt: skip
def test_tensorboard_gets_the_folder_that_holds_all_event_files(folders, common):
    assert port.common(folders) == common
