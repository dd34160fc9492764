"""A rank that reads from a disk which never answers is reported with that disk. Mounting one needs root."""

import subprocess
import sys
import time

import pytest

from lab.waiting import until
from tests.started import started
from trainer.node.ending.rank_lives import Life
from trainer.node.hang import disks, stuck_ranks


@pytest.fixture
def hung(tmp_path, laboratory):
    """A mounted folder in which each read hangs forever."""
    place = tmp_path / "data"
    place.mkdir()
    with started([sys.executable, "-m", "tests.lab.hung_disk", place], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "mounted\n"
        yield place
        server.kill()
    subprocess.run(["umount", "-l", place], check=True)


def test_a_read_that_never_ends_is_reported_with_its_file_and_file_system(hung, tmp_path, monkeypatch):
    monkeypatch.setattr(stuck_ranks, "LOOK_SECONDS", 0.0)
    argv = [sys.executable, "-c", "import sys; open(sys.argv[1]).read()", hung / "shard-7"]
    rank = subprocess.Popen(argv, start_new_session=True)
    until(lambda: disks.waiting(rank.pid), "the read")
    still, told = stuck_ranks.StuckRanks(tmp_path, None), []
    life = Life(rank=0, local_rank=0, attempt=0, world=1, pid=rank.pid, began=time.time() - 100)
    until(lambda: told.extend(still.look([life])) or told, "the news")
    assert [about["doing"] for _, about in told] == ["disk"]
    assert told[0][1]["disk"] == f"{hung}/shard-7 on {hung} (fuse.hung hung)"
    assert not still.stuck_ranks([life])[0].asleep
    rank.kill()
    until(lambda: disks.waiting(rank.pid), "the read again: no signal ends it")
