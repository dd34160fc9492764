"""The output of a container on a host without an engine is kept, whatever happens to the disk."""

import io
from types import SimpleNamespace

from deploy.engine.bare import keeper


def test_if_a_full_disk_allows_no_new_log_file_the_log_continues_in_the_old_one(tmp_path, monkeypatch):
    log = keeper.Log(SimpleNamespace(folder=str(tmp_path)))
    monkeypatch.setattr(keeper, "_LOG_BYTES", 10)

    class Full(io.FileIO):
        def __init__(self, *_):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(keeper.io, "FileIO", Full)
        for number in range(3):
            log.feed(1, f"during {number}\n".encode())
    log.feed(1, b"after\n")
    monkeypatch.setattr(keeper, "_LOG_BYTES", 1000)
    log.feed(1, b"in a new file\n")
    texts = [*keeper.lines(SimpleNamespace(folder=str(tmp_path)))]
    assert texts == [b"during 0\n", b"during 1\n", b"during 2\n", b"after\n", b"in a new file\n"]
