"""`muster down --run X --delete` on this machine."""

import json
import os

import pytest

from deploy.commands import main
from deploy.core.errors import UsageError
from deploy.local import delete
from deploy.report.console import Console
from deploy.run.files import folders, locks, record


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    (tmp_path / "runs/r1/work").mkdir(parents=True)
    (tmp_path / "runs/r1/work/ckpt.pt").write_bytes(b"x" * 2000)
    (tmp_path / "runs/r2/nodes").mkdir(parents=True)
    return tmp_path / "runs"


def test_the_run_is_deleted_with_all_its_files_and_the_amount_is_reported(runs, capsys):
    (runs / "latest").symlink_to("r1")
    (runs / "r1/work/link").symlink_to(runs / "r2")
    delete.delete("r1", Console(as_json=True))
    assert sorted(os.listdir(runs)) == ["latest", "r2"]
    assert os.readlink(runs / "latest") == "r2"
    result = json.loads(capsys.readouterr().out)
    assert (result["run"], result["files"], result["bytes"] >= 2000) == ("r1", 2, True)


def test_a_run_that_still_runs_is_not_deleted(runs):
    lock = locks.hold_run(runs / "r1")
    with pytest.raises(UsageError, match="is still running"):
        delete.delete("r1", Console())
    lock.release()
    assert (runs / "r1/work/ckpt.pt").exists()


def test_the_fetched_copy_of_a_run_on_hosts_is_not_deleted_without_hosts(runs):
    record.write_record(runs / "r1", {"id": "r1", "hosts": ["gpu-a", "gpu-b"]})
    with pytest.raises(UsageError, match="ran on gpu-a, gpu-b") as refused:
        delete.delete("r1", Console())
    assert "--hosts gpu-a,gpu-b --run r1 --delete" in refused.value.hint
    assert "rm -r" in refused.value.hint
    assert (runs / "r1/work/ckpt.pt").exists()


def test_a_record_that_somebody_else_wrote_puts_no_word_into_a_command(runs):
    (runs / "r1/record.json").write_text(json.dumps({"format": 2, "hosts": ["a;touch /tmp/x;", "$(id)"]}))
    with pytest.raises(UsageError) as refused:
        delete.delete("r1", Console())
    assert "--hosts HOSTS --run r1 --delete" in refused.value.hint


@pytest.mark.parametrize("name", ["none", "..", "r1/work", "link", ""])
def test_a_name_that_is_no_run_here_is_refused(runs, tmp_path, name):
    (tmp_path / "other").mkdir()
    (runs / "link").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError):
        delete.delete(name, Console())
    assert (tmp_path / "other").exists()
    assert (runs / "r1/work/ckpt.pt").exists()


@pytest.mark.parametrize("where", [(), ("--hosts", "nowhere.invalid")])
def test_a_delete_without_a_run_is_refused(runs, where, capsys):
    assert main.run(["down", "--delete", *where]) == 2
    assert "--delete cannot be used without --run: nothing was deleted" in capsys.readouterr().err
