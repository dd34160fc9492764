"""A disk fills up during a run: the training continues, and the outcome names the disk and blames no host."""

import json
import os
import subprocess

import pytest

from lab.waiting import events, until


def test_a_disk_that_fills_up_is_named_and_no_host_is_blamed_for_memory(nodes, tmp_path):
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "run"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
    try:
        options = ("--steps", 400, "--checkpoint-every", 20, "--eval-every", 0, "--log-every", 1, "--keep", 1)
        run = nodes(1, *options).start()
        until(lambda: events(disk, 0, "checkpoint"), "a checkpoint")
        with (disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):  # noqa: PT012
            while True:
                file.write(bytes(4096))
        until(lambda: None not in run.codes().values(), "all nodes to end", 90)
        assert set(run.codes().values()) == {1}
        assert len(events(disk, 0, "started")) == 1, "no rank died of it"
        for path in (disk / "outcome").glob("*.json"):
            outcome = json.loads(path.read_text())
            assert "the last checkpoint is not on disk" in outcome["message"], outcome
            assert outcome["rank"] == 0
    finally:
        run.kill_everything()
        subprocess.run(["umount", "--lazy", disk], check=True)
