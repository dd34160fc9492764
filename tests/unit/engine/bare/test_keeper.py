"""What a container on a host without an engine writes is kept, whatever its disk does."""

import io
from types import SimpleNamespace

from deploy.engine.bare import keeper


def test_a_log_goes_on_in_the_file_that_it_has_where_a_full_disk_takes_no_other(tmp_path, monkeypatch):
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
    texts = [text for _, text in keeper.lines(SimpleNamespace(folder=str(tmp_path)))]
    assert texts == [b"during 0\n", b"during 1\n", b"during 2\n", b"after\n", b"in a new file\n"]
