"""Every rank writes the means of a log interval's own steps alone; rank 0 also writes the metrics."""

import json

import pytest

from trainer.run_dir import RankFolder
from trainer.train import metrics
from trainer.train.metrics import Meter
from trainer.train.step import Step

pytestmark = pytest.mark.torch


def step(loss=1.0, **ms):
    times = {"data_ms": 1.0, "compute_ms": 2.0, "wait_ms": 3.0, **ms}
    return Step(loss=loss, grad_norm=0.5, not_finite=False, stop_asked=False, **times)


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, as the test sets it."""
    now = [10.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    return now


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_an_interval_has_the_means_of_its_own_steps_and_the_last_loss(tmp_path, clock):
    meter = Meter(RankFolder(tmp_path, 0, "n"), batch=4, samples=16, steps=100)
    for loss, data in ((3.0, 2.0), (2.0, 5.0)):
        meter.add(step(loss, data_ms=data))
    clock[0] = 14.0
    meter.write(8, 0.1)
    meter.add(step(1.0))
    clock[0] = 15.0
    meter.write(9, 0.1)
    meter.close()
    told = [event for event in lines(tmp_path / "ranks/rank-0.jsonl") if event["kind"] == "step"]
    assert [(each["step"], each["steps"], each["count"]) for each in told] == [(8, 100, 2), (9, 100, 1)]
    assert [(each["data_ms"], each["compute_ms"], each["wait_ms"]) for each in told] == [(3.5, 2, 3), (1, 2, 3)]
    assert [each["step_ms"] for each in told] == [2000.0, 1000.0]
    rows = lines(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["loss"], row["samples_per_s"]) for row in rows] == [(8, 2.0, 2.0), (9, 1.0, 4.0)]
    assert [(row["epoch"], row["lr"], row["grad_norm"]) for row in rows] == [(2.0, 0.1, 0.5), (2.25, 0.1, 0.5)]


def test_an_evaluation_between_two_intervals_does_not_count_as_step_time(tmp_path, clock):
    meter = Meter(RankFolder(tmp_path, 0, "n"), 4, 16, 100)
    clock[0] = 70.0
    meter.resume()
    meter.add(step())
    clock[0] = 71.0
    meter.write(1, 0.1)
    assert lines(tmp_path / "ranks/rank-0.jsonl")[0]["step_ms"] == 1000.0


def test_an_interval_without_a_step_writes_nothing(tmp_path):
    meter = Meter(RankFolder(tmp_path, 0, "n"), 4, 16, 100)
    meter.write(0, 0.1)
    assert lines(tmp_path / "ranks/rank-0.jsonl") == lines(tmp_path / "metrics.jsonl") == []


@pytest.mark.parametrize("rank", [0, 1])
def test_only_rank_0_writes_metrics_and_reports_evaluations(tmp_path, rank):
    meter = Meter(RankFolder(tmp_path, rank, "n"), 4, 16, 100)
    meter.add(step())
    meter.write(1, 0.1)
    meter.evaluated(1, {"loss": 0.5}, 32)
    meter.close()
    kinds = [event["kind"] for event in lines(tmp_path / f"ranks/rank-{rank}.jsonl")]
    assert kinds == (["step"] if rank else ["step", "evaluated"])
    rows = lines(tmp_path / "metrics.jsonl")
    assert [row.get("eval") for row in rows] == ([] if rank else [None, {"loss": 0.5}])
