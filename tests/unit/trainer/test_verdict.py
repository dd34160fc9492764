"""How a run ended: all ranks have one verdict, and odd content that a script writes in its place is ignored."""

import json
from pathlib import Path

import pytest

from muster.errors import Refused, TrainError
from muster.files import read_object
from trainer import verdict as verdicts
from trainer.node.notes import Journal
from trainer.node.rank.place import FIRST_RANK
from trainer.run_dir import RankFolder
from trainer.verdict import VerdictStore, done, failed, publish, record, stopped, verdict_of

FAULT = failed(2, "b", 7, TrainError("the loss is nan", "lower --lr"))


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("MUSTER_OUTCOME_DIR", "MUSTER_RESUME_COMMAND", "MUSTER_WORKER", FIRST_RANK):
        monkeypatch.delenv(name, raising=False)


class Store(dict):
    """The part of torchrun's store that is used here."""

    def compare_set(self, key, before, after):
        return self.setdefault(key, after)

    def check(self, keys):
        return all(key in self for key in keys)

    def get(self, key):
        return self[key]

    def add(self, key, number):
        self[key] = dict.get(self, key, 0) + number
        return self[key]


class Gone:
    """A store whose host has ended."""

    def __getattr__(self, name):
        raise RuntimeError("the store is gone")


def test_the_first_verdict_is_that_of_all_ranks():
    store = Store()
    assert VerdictStore(store, 2, 3).poll(0.0) is None
    assert VerdictStore(store, 2, 3).publish(FAULT) == FAULT
    assert VerdictStore(store, 0, 3).publish(done(0, "a", 9)) == FAULT
    assert VerdictStore(store, 1, 3).poll() == FAULT


def test_without_the_store_each_rank_has_its_own_verdict():
    lost = VerdictStore(Gone(), 1, 3)
    assert (lost.publish(FAULT), lost.poll()) == (FAULT, None)
    lost.linger()


def test_a_verdict_is_waited_for_a_moment_but_not_forever(monkeypatch):
    store, clock = Store(), [0.0]

    def sleep(seconds):
        clock[0] += 0.1
        if len(pauses) == 1:
            VerdictStore(store, 2, 3).publish(FAULT)
        pauses.append(seconds)

    pauses = []
    monkeypatch.setattr(verdicts.time, "sleep", sleep)
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: clock[0])
    assert VerdictStore(store, 1, 3).poll(0.3) == FAULT
    assert VerdictStore(Store(), 1, 3).poll(0.3) is None
    assert 5 <= len(pauses) <= 7


def test_the_rank_with_the_store_stays_until_all_have_the_verdict_but_not_forever(monkeypatch):
    store, clock, waited = Store(), [0.0], []

    def sleep(seconds):
        waited.append(clock[0])
        clock[0] += 1.0
        if clock[0] == 3.0:
            VerdictStore(store, 2, 3).linger()

    monkeypatch.setattr(verdicts.time, "sleep", sleep)
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: clock[0])
    VerdictStore(store, 1, 3).linger()
    assert not waited, "only the first rank has the store"
    VerdictStore(store, 0, 3).linger()
    assert clock[0] == 3.0
    VerdictStore(Store(), 0, 2).linger(5.0)
    assert clock[0] == 8.0


def test_an_error_belongs_to_its_culprit_and_an_input_error_is_a_refusal():
    assert (FAULT.verdict, FAULT.code, FAULT.rank, FAULT.node, FAULT.hint) == ("failed", 1, 2, "b", "lower --lr")
    of_other = failed(2, "b", 7, TrainError("lost", culprit=(0, "a")), cause="killed")
    assert (of_other.rank, of_other.node, of_other.cause) == (0, "a", "killed")
    refused = failed(0, "a", 0, Refused("--steps 0", "give more"))
    assert (refused.verdict, refused.code) == ("refused", 2)


def test_a_stopped_run_says_why_and_which_command_continues_it(monkeypatch):
    run = Path("runs/run-1")
    monkeypatch.setenv("MUSTER_RUN_DIR", "")  # as docker-compose.yml has it
    assert stopped(0, "a", 7, "at step 7", run).hint == "`--resume runs/run-1` continues from here", "plain torchrun"
    assert stopped(0, "a", 7, "at step 7", run).row()["cause"] == "ended-from-outside"
    monkeypatch.setenv("MUSTER_RUN_DIR", "/muster/runs/run-1")
    assert "make up" not in stopped(0, "a", 7, "at step 7", run).hint, "`srun muster agent`, Kubeflow"
    monkeypatch.setenv("MUSTER_WORKER", "muster-worker-")
    assert stopped(0, "a", 7, "at step 7", run).hint == "`make up RESUME=latest` continues from here"
    monkeypatch.setenv("MUSTER_RESUME_COMMAND", "muster deploy --resume run-1")
    said = stopped(0, "a", 7, "at step 7", run)
    assert (said.verdict, said.code, said.message) == ("stopped", 75, "at step 7")
    assert "`muster deploy --resume run-1`" in said.hint


def test_a_written_verdict_is_read_back_and_odd_content_is_ignored(tmp_path):
    for each in (FAULT, done(0, "a", 9), failed(0, "a", 1, TrainError("x"), cause="killed")):
        assert publish(each, tmp_path, "a-0")
        assert verdict_of(read_object(tmp_path / "outcome/a-0.json")) == each
    row = json.loads((tmp_path / "outcome/a-0.json").read_text())
    odd = [[], {}, {**row, "more": 1}, {**row, "code": "1"}, {**row, "since": "x"}, {**row, "node": None}]
    for value in [*odd, {name: row[name] for name in row if name != "step"}]:
        (tmp_path / "outcome/a-0.json").write_text(json.dumps(value))
        assert verdict_of(read_object(tmp_path / "outcome/a-0.json")) is None
    assert verdict_of(read_object(tmp_path / "missing.json")) is None


def test_a_verdict_goes_to_the_run_and_to_the_agent_with_the_ranks_number_in_the_run(monkeypatch, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(own))
    monkeypatch.setenv(FIRST_RANK, "8")
    record(FAULT, RankFolder(tmp_path, 1, "a"), 1)
    written = Journal(own).newest("verdict"), json.loads((tmp_path / "outcome/a-1.json").read_text())
    assert [row["rank"] for row in written] == [10, 10]
    (event,) = map(json.loads, (tmp_path / "ranks/rank-9.jsonl").read_text().splitlines())
    assert (event["kind"], event["rank"], event["node"]) == ("outcome", 9, "a")
    assert (event["culprit"], event["culprit_node"], event["verdict"]) == (2, "b", "failed")
    assert "cause" not in event


def test_a_verdict_that_could_not_be_written_everywhere_is_reported(tmp_path):
    (tmp_path / "outcome").write_text("in the way")
    (tmp_path / "own").mkdir()
    assert not publish(FAULT, tmp_path, "a-0", tmp_path / "own")
    assert verdict_of(Journal(tmp_path / "own").newest("verdict")) == FAULT
    assert publish(FAULT, None, "a-0", tmp_path / "own")
