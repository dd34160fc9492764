"""A file in somebody else's folder is read only if it is a plain file, within the folder, and not too large."""

import os

import pytest

from deploy.core import plain_file


def test_a_file_is_read_up_to_its_limit(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"12345")
    assert plain_file.read(file, 5) == plain_file.read(file, 5, tmp_path) == b"12345"
    with pytest.raises(OSError, match="it has more than 4 B"):
        plain_file.read(file, 4)
    file.write_bytes(b"")
    assert plain_file.read(file, 0) == b""


def test_a_pipe_link_or_folder_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("pipe", "link", ".", "missing"):
        with pytest.raises(OSError, match=r"regular|symbolic|No such"):
            plain_file.read(tmp_path / name, 9)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_is_followed_only_within_the_folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "file").write_text("ours")
    (tmp_path / "outside").write_text("theirs")
    for name, target in (("near", "file"), ("far", "../outside"), ("whole", tmp_path / "outside"), ("loop", "loop")):
        (inside / name).symlink_to(target)
    assert plain_file.read(inside / "near", 9, inside) == b"ours"
    assert plain_file.inside(inside / "near", inside) == inside / "file"
    for name in ("far", "whole"):
        with pytest.raises(OSError, match="a link leads outside the folder"):
            plain_file.read(inside / name, 9, inside)
    with pytest.raises(OSError, match=r"circle|symbolic"):
        plain_file.read(inside / "loop", 9, inside)
