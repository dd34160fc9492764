"""`muster`, installed by pip, in a user's own folder: everything after `--` is the script and its arguments."""

import os
import shutil
import subprocess
import uuid
from pathlib import Path

from tests import installed

HOME = Path(__file__).resolve().parents[2]


def test_a_script_after_the_dashes_trains_and_its_run_is_in_the_users_folder(rack, tmp_path):
    muster, _ = installed.install(installed.wheel(tmp_path), tmp_path / "venv")
    mine, run = tmp_path / "mine", f"test-{uuid.uuid4().hex[:8]}"
    mine.mkdir()
    shutil.copy(HOME / "examples/ddp.py", mine / "train.py")
    hosts, config = rack.hosts[:2], str(rack.ssh_config)
    where = ("--hosts", ",".join(hosts))

    def typed(*words):
        return installed.run(str(muster), *words, cwd=mine, MUSTER_SSH_CONFIG=config)

    try:
        words = ("--run", run, "--image", "muster-trainer:cpu", "--", "train.py", "--epochs", "2")
        done = typed("deploy", *where, *words, "--save", "/muster/run/my model.pt")
        assert done.returncode == 0, done.stderr
        assert sorted(os.listdir(mine)) == ["runs", "train.py"]
        fetched = typed("fetch", *where, "--run", run)
        assert fetched.returncode == 0, fetched.stderr
        assert (mine / "runs" / run / "my model.pt").stat().st_size > 500
        assert (mine / "runs" / run / "report.html").exists()
        assert run in typed("runs").stdout
        assert not (HOME / "runs" / run).exists()
    finally:
        typed("down", *where, "--run", run)
        for host in hosts:
            subprocess.run(["ssh", "-F", config, host, f"rm -rf ~/.muster/runs/{run}"], check=False)
