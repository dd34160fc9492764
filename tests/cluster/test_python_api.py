"""The Python API on the rack, used from a thread, as in a notebook or a program. It prints nothing."""

import threading

import pytest

from deploy import api
from deploy.core.errors import FAILED, STOPPED
from lab import waiting
from tests.cluster.control import BASE, SLOW


@pytest.fixture
def cluster(control, monkeypatch):
    monkeypatch.setenv("MUSTER_SSH_CONFIG", str(control.rack.ssh_config))
    return api.Cluster(control.hosts)


def test_a_thread_can_start_follow_read_and_fetch_a_run_and_prints_nothing(cluster, control, tmp_path, capfd):
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint('rank', os.environ['RANK'], sys.argv[1:], flush=True)\nopen('out.txt', 'w').write('x')\n"
    )
    seen = {}

    def program():
        run = cluster.deploy(["train.py", "--name", "two words"], folder=tmp_path, image=BASE, run=control.run)
        seen["lines"] = {(event["rank"], event["line"]) for event in run.logs(follow=True)}
        seen["kinds"] = {event["kind"] for event in run.follow() if "kind" in event}
        seen["outcome"], seen["again"], seen["folder"] = run.wait(), run.wait(), run.fetch()

    thread = threading.Thread(target=program)
    thread.start()
    thread.join(120)
    assert seen["outcome"] == seen["again"]
    assert seen["outcome"].verdict == "done"
    assert {("0", "rank 0 ['--name', 'two words']"), ("1", "rank 1 ['--name', 'two words']")} <= seen["lines"]
    assert {"began", "ended", "result"} <= seen["kinds"]
    assert (seen["folder"] / "work" / "out.txt").read_text() == "x"
    assert seen["outcome"].report.exists()
    assert capfd.readouterr() == ("", "")


def test_a_wait_that_times_out_leaves_the_run_alone(cluster, control):
    run = cluster.deploy(folder=SLOW[1], arguments="--recipe slow.py --steps 1000000", image=BASE, run=control.run)
    with pytest.raises(TimeoutError):
        run.wait(1)
    waiting.until(lambda: any(row.get("run") == run.id for row in cluster.status()), "the run to be seen")
    run.stop()
    assert control.outcome()["code"] == STOPPED


def test_a_run_that_fails_is_an_exception_with_its_outcome(cluster, control, tmp_path):
    (tmp_path / "train.py").write_text("raise ValueError('no data')\n")
    run = cluster.deploy("train.py", folder=tmp_path, image=BASE, run=control.run)
    with pytest.raises(api.RunFailed, match="no data") as failure:
        run.wait()
    assert failure.value.code == failure.value.outcome.code == FAILED
    assert run.wait(check=False).verdict == "failed"
