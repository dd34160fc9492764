"""Stored formats: each later version reads what this one wrote, and refuses by name what a newer one wrote."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from deploy.core import formats, provenance
from deploy.core.errors import DeployError, UsageError
from deploy.host import facts
from deploy.job.cluster import from_file
from deploy.preflight import Answers, judge
from deploy.report.page import run as page
from deploy.run import events
from deploy.run.files import code, folders, record, recorded_ends, resumable
from deploy.send.image import model
from lab.answers import answers
from muster import checkpoint
from muster.checkpoint.manifest import FORMAT
from muster.errors import CheckpointError, NewerFormat
from tests.hostile.fuzz import samples
from trainer.node.files import work

HOME = Path(__file__).resolve().parents[2]
GOLDEN = HOME / "tests/golden"


@pytest.fixture(params=["run-v1", "run-v2"])
def run(request, tmp_path, monkeypatch):
    """A copy of the run folder that a release with this format wrote."""
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "runs/2026-11-22-0454-line"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_folder_of_every_format_is_read_completely(run):
    (listed,) = recorded_ends.listing(run.parent, ())
    assert (listed.verdict, listed.step, listed.accuracy) == ("done", 6, 1.0)
    known = record.facts(run)
    assert (known["backend"], known["arguments"]) == ("processes", ["--recipe", "tests/golden/line.py"])
    with pytest.raises(DeployError, match="the name of a run on the hosts"):
        record.folder_of(run.name)
    for rank in (0, 1):
        for line in lines(run / f"ranks/rank-{rank}.jsonl"):
            assert events.of_rank(line, 0.0)["t"] == line["t"]
    assert [events.of_metrics(line, 0.0)["step"] for line in lines(run / "metrics.jsonl")] == [1, 2, 3, 4, 6, 6]
    assert "held-out" in page.write(record.find(run.name)).read_text()


@pytest.fixture
def on_hosts(tmp_path):
    """A copy of the folder of a script's run on two hosts, after `muster fetch`."""
    return Path(shutil.copytree(GOLDEN / "run-hosts", tmp_path / "runs/golden-hosts"))


def test_the_run_folder_of_a_script_on_hosts_is_read_completely(on_hosts, monkeypatch):
    (listed,) = recorded_ends.listing(on_hosts.parent, ())
    assert (listed.verdict, listed.step) == ("done", 30)
    assert record.facts(on_hosts)["hosts"] == ["rack-1", "rack-2"]
    for folder, read in (("ranks", events.of_rank), ("telemetry", events.of_telemetry)):
        first, second = sorted((on_hosts / folder).iterdir())
        assert all(read(line, 0.0)["t"] == line["t"] for line in (*lines(first), *lines(second)))
    assert events.of_metrics(lines(on_hosts / "metrics.jsonl")[-1], 0.0)["loss"] < 0.1
    monkeypatch.setattr(provenance, "is_ours", lambda stored: True)  # the seal belongs to the user who made this folder
    known = code.read(on_hosts)
    assert (known.commit[:8], known.changed) == ("4050b9eb", ("train.py",))
    assert work.count_written(on_hosts) == work.FileTotals(1, 1877, "work"), "notes.txt is as sent.json has it"
    shown = page.write(on_hosts).read_text()
    for words in ("rack-2", "4050b9eb", "Memory", "2.13.0+cpu"):
        assert words in shown, words


def test_a_run_folder_without_a_format_number_is_read(run):
    known = json.loads((run / "record.json").read_text())
    del known["format"]
    (run / "record.json").write_text(json.dumps(known))
    assert record.find(run.name) == run


def test_a_run_folder_of_a_newer_muster_is_refused_and_listed_as_newer(run):
    known = json.loads((run / "record.json").read_text())
    (run / "record.json").write_text(json.dumps({**known, "format": formats.RUN_FOLDER + 1}))
    for use in (
        lambda: record.find(run.name),
        lambda: record.folder_of(run.name),
        lambda: resumable.choose(str(run), resumable.WantedRun()),
    ):
        with pytest.raises(UsageError, match=re.escape(str(run))) as refused:
            use()
        assert "git pull" in refused.value.hint
    assert recorded_ends.listing(run.parent, ())[0].verdict == "of a newer Muster"


def test_a_checkpoint_of_format_1_is_loaded():
    newest, damaged = checkpoint.newest_usable(GOLDEN / "checkpoint-v1")
    assert not damaged
    state, manifest = checkpoint.load(newest.path)
    assert manifest.step == state["position"]["step"] == 6
    assert state["position"]["consumed"] == 6 * 8
    assert {name: tuple(value.shape) for name, value in state["model"].items()} == {"weight": (1, 2), "bias": (1,)}
    assert len(state["rng"]) == 2
    assert all(torch.is_tensor(rng["torch"]) for rng in state["rng"])


def test_a_checkpoint_of_format_2_is_loaded_from_the_parts_of_two_ranks():
    newest, damaged = checkpoint.newest_usable(GOLDEN / "checkpoint-v2")
    assert not damaged
    state, manifest = checkpoint.load(newest.path)
    assert sorted(manifest.files) == ["shard-0.pt", "shard-1.pt"]
    assert {file.host for file in manifest.files.values()} == {"vm"}
    shapes = {"0.weight": (4, 2), "0.bias": (4,), "1.weight": (2, 4), "1.bias": (2,)}
    assert {name: tuple(value.shape) for name, value in state["model"].items()} == shapes


def test_a_checkpoint_of_a_newer_muster_is_refused_not_skipped_for_an_older_one(tmp_path):
    for step in (6, 7):
        shutil.copytree(GOLDEN / "checkpoint-v1/step-00000006", tmp_path / f"step-{step:08d}")
    newer = tmp_path / "step-00000007/manifest.json"
    known = json.loads(newer.read_text())
    newer.write_text(json.dumps({**known, "format": FORMAT + 1, "created": known["created"] + 1}))
    for use in (lambda: checkpoint.newest_usable(tmp_path), lambda: checkpoint.load(newer.parent)):
        with pytest.raises(NewerFormat, match=f"step-00000007: format {FORMAT + 1}"):
            use()
    assert checkpoint.prune(tmp_path, 1, False) == []
    assert newer.exists()


def test_a_checkpoint_whose_format_is_no_number_is_damaged(tmp_path):
    place = Path(shutil.copytree(GOLDEN / "checkpoint-v1/step-00000006", tmp_path / "step-00000006"))
    (place / "manifest.json").write_text(json.dumps({"format": "new"}))
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.verify(place)


def test_cluster_file_format_1_is_read_and_a_newer_format_is_refused_before_unknown_keys(tmp_path):
    assert len(from_file(GOLDEN / "cluster-v1.toml").hosts) == 3
    newer = tmp_path / "cluster.toml"
    newer.write_text('format = 2\n[fleet]\nname = "a"\n')
    with pytest.raises(UsageError, match=r"cluster\.toml has format 2"):
        from_file(newer)


def test_answers_of_a_preflight_without_a_format_are_read_and_newer_ones_refused():
    kept = json.loads(json.dumps(answers().json()))
    assert kept["format"] == formats.ANSWERS
    with pytest.raises(UsageError, match=r"answers\.json has format 3"):
        Answers.of({**kept, "format": formats.ANSWERS + 1}, "answers.json")
    del kept["format"]
    assert judge(Answers.of(kept)) == judge(answers())


@pytest.mark.parametrize(
    ("cause", "words", "kind", "ended"),
    [
        ("probe-died", "b: the probe ended with code 1: OSError: [Errno 24] Too many open files", "",
         (1, "OSError: [Errno 24] Too many open files")),
        ("probe-died", "b: `python3 -c ...` ended with code -1: no message", "", (-1, "no message")),
        ("probe-died", "b: `sh` sent nothing for 60 s", "slow", None),
        ("ssh-key", "b: 10.0.0.2:22 accepts none of your keys for u: x\nmuster login", "key-rejected", None),
    ],
)  # fmt: skip
def test_answers_of_format_1_that_had_facts_only_in_words_are_read(cause, words, kind, ended):
    kept = json.loads(json.dumps(answers().json())) | {"format": 1, "faults": {"b": [cause, words]}}
    kept["facts"]["a"]["gpus"] = {"error": "nvidia-smi: not found", "devices": True}
    kept["listens"]["a"]["failed"] = {"29500": {"error": "in use", "holder": ""}}
    seen = Answers.of(kept)
    text, _, hint = words.partition("\n")
    assert seen.faults == {"b": (cause, text, hint, kind, ended)}
    assert (seen.facts["a"]["gpus"]["absent"], seen.facts["a"]["gpus"]["error"]) == (True, "")
    assert seen.listened("a", "failed") == {"29500": {"error": "in-use", "holder": ""}}
    assert {"port-busy", "gpu-runtime"} <= {finding.cause for finding in judge(seen).findings}


def test_a_container_of_a_newer_muster_is_refused_and_another_users_left_alone():
    def container(number):
        document = json.loads(samples.container())
        document["Config"]["Labels"]["muster.format"] = str(number)
        return facts.parse_container(json.dumps(document))

    for read in (0, formats.LABELS):
        assert facts.containers([container(read)], "/home/ops")[0].run == "r1"
    newer = container(formats.LABELS + 1)
    with pytest.raises(UsageError, match="the container muster-r1 has format"):
        facts.containers([newer], "/home/ops")
    assert not facts.containers([newer], "/home/other")[0].ours


def image(labels, path="/muster"):
    document = {"Architecture": "amd64", "Os": "linux", "Size": 1, "RootFS": {"Layers": []}}
    return model.base_of(
        "muster-trainer:gpu", {**document, "Config": {"Env": [f"PYTHONPATH={path}"], "Labels": labels}}
    )


@pytest.mark.parametrize("labels", [None, {model.CONTRACT_LABEL: str(model.CONTRACT + 1)}])
def test_an_image_with_another_musters_trainer_is_refused_with_the_command_that_fixes_it(labels):
    with pytest.raises(UsageError, match="muster-trainer:gpu: its trainer belongs to another Muster") as refused:
        model.refuse_other_trainer(image(labels))
    assert "make image TARGET=gpu" in refused.value.hint


def test_an_image_with_this_trainer_or_none_is_accepted():
    (spoken,) = re.findall(r'muster\.contract="(\d+)"', (HOME / "Dockerfile").read_text())
    assert spoken == str(model.CONTRACT)
    model.refuse_other_trainer(image({model.CONTRACT_LABEL: spoken}))
    model.refuse_other_trainer(image(None, "/app"))
