"""Following a job shows only its present start. The files are real; Slurm's answers are given."""

import json
import time
from types import SimpleNamespace

import pytest

from deploy.host.jobs import Job
from deploy.report.console import Console
from deploy.report.script_lines import shown_ranks
from deploy.slurm import follow


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        (Job("RUNNING", hosts=("n1",), restarts=1, ran_s=300.0), [7]),
        (Job("RUNNING", hosts=("n1",), ran_s=300.0), [90, 7]),
        (Job("COMPLETED", hosts=("n1",), restarts=1, ran_s=300.0), [90, 7]),
    ],
)
def test_a_follower_of_a_requeued_job_is_not_shown_events_of_an_earlier_start(job, steps, tmp_path, monkeypatch):
    """An ended job is shown completely, because then nobody knows how long ago its last start began."""
    run_dir, now = tmp_path / "r1", time.time()
    (run_dir / "ranks").mkdir(parents=True)
    lines = [
        {"kind": "step", "rank": 0, "node": "n1", "t": t, "step": step, "loss": 1.0}
        for t, step in ((now - 2000, 90), (now - 100, 7))
    ]
    (run_dir / "ranks/rank-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = Job("COMPLETED", hosts=("n1",), restarts=job.restarts)
    backend = SimpleNamespace(
        run_dir=run_dir, run="r1", number="7", job=ended, state_age_s=99.0, unseen_s=0.0,
        states=lambda state: [], output=lambda state: [], login=SimpleNamespace(host=SimpleNamespace(name="login")),
    )  # fmt: skip
    monkeypatch.setattr(follow.recorded_run, "update_record", lambda *_, **__: None)
    interrupts = SimpleNamespace(requests=lambda: 0)
    following = follow.Following(backend, True, ["train.py"], Console(), interrupts, shown_ranks("0"))
    seen = []
    monkeypatch.setattr(follow.State, "apply", lambda self, event, now: seen.append(event))
    following._one_start(job)
    assert [event["step"] for event in seen if event["kind"] == "step"] == steps
