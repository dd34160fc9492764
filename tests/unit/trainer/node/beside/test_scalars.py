"""The numbers in a script's own files are read as far as they are readable, and no file yields numbers it lacks.

tests/golden/scalars/ has files that torch.utils.tensorboard 2.13, Lightning 2.6 and transformers 5.23 wrote.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import time
from pathlib import Path

import pytest

from deploy.run import events
from muster.metrics import Metrics
from trainer.node.beside import scalars, telemetry
from trainer.node.beside.scalars import Scalars

GOLDEN = Path(__file__).parents[4] / "golden" / "scalars"
EVENTS = GOLDEN / "events.out.tfevents.1795341152.host.1.0"


@pytest.fixture
def work(tmp_path):
    """The folder a script works in."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def look(reader):
    """Look until the reader finds nothing more."""
    while reader.look(time.monotonic() + 10):
        pass


def told(run_dir):
    """Return the points in the node's file by file and name, as the control side reads them."""
    found = {}
    path = run_dir / "scalars/a.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        event = events.of_scalars(json.loads(line), 0.0)
        for tag, points in event["tags"].items():
            found.setdefault(event["file"], {}).setdefault(tag, []).extend(map(tuple, points))
    return found


def read(run_dir):
    """Return all points that one look reports."""
    look(Scalars(run_dir, "a"))
    return told(run_dir)


def field(number, content):
    """A protobuf field of bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def record(tag, step, value):
    """A record of a TensorBoard event file, with one scalar."""
    summary = field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
    return framed(b"\x10" + varint(step) + field(5, summary))


def varint(value):
    """A number as protobuf writes it."""
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def framed(event):
    """A record: length, checksum, event, checksum."""
    return struct.pack("<QI", len(event), 0) + event + bytes(4)


def test_a_tensorboard_file_is_read(work):
    (work / "runs").mkdir()
    shutil.copy(EVENTS, work / "runs")
    (tags,) = read(work.parent).values()
    assert tags.keys() == {"train/loss", "accuracy", "exact", "broken"}
    assert tags["train/loss"] == [(10 * i, struct.unpack("<f", struct.pack("<f", 1 / (i + 1)))[0]) for i in range(8)]
    assert tags["accuracy"] == [(10 * i, i / 8) for i in range(8)]
    assert tags["exact"] == [(10 * i, i / 10) for i in range(8)]
    assert math.isnan(tags["broken"][0][1])


def test_lightnings_table_is_read(work):
    shutil.copy(GOLDEN / "metrics.csv", work)
    tags = read(work.parent)["work/metrics.csv"]
    assert tags.keys() == {"train_loss", "val_loss"}
    assert tags["val_loss"][0] == (7, 0.26325029134750366)
    assert len(tags["train_loss"]) == 10


def test_each_checkpoint_of_a_trainer_adds_its_new_points(work):
    state = json.loads((GOLDEN / "trainer_state.json").read_text())
    reader = Scalars(work.parent, "a")
    for upto in (5, 10, 5):  # a Trainer writes the state of an earlier checkpoint again
        folder = work / f"trainer_output/checkpoint-{upto}"
        folder.mkdir(parents=True, exist_ok=True)
        history = [entry for entry in state["log_history"] if entry["step"] <= upto]
        (folder / "trainer_state.json").write_text(json.dumps({**state, "log_history": history}))
        look(reader)
    first, second = told(work.parent).values()
    assert [step for step, _ in first["loss"] + second["loss"]] == [2, 4, 6, 8, 10]
    assert [step for step, _ in first["eval_loss"] + second["eval_loss"]] == [5, 10]


def test_a_file_is_followed_while_it_grows_and_a_torn_record_waits(work):
    content, growing = EVENTS.read_bytes(), work / EVENTS.name
    reader = Scalars(work.parent, "a")
    for size in range(0, len(content) + 1, 97):
        growing.write_bytes(content[:size])
        look(reader)
    growing.write_bytes(content)
    look(reader)
    look(reader)
    (tags,) = told(work.parent).values()
    assert [step for step, _ in tags["train/loss"]] == [10 * i for i in range(8)]
    assert len(tags["exact"]) == 8


LOGGED = b"".join(
    b'{"t": %d.5, "step": %d, "loss": %.2f, "lr": 0.1}\n' % (step, step, 1 / step) for step in range(1, 6)
)


def test_a_trainings_metrics_file_is_followed_while_it_grows(work):
    lines = work / "training/metrics.jsonl"
    lines.parent.mkdir()
    reader = Scalars(work.parent, "a")
    for size in range(0, len(LOGGED) + 1, 31):
        lines.write_bytes(LOGGED[:size])
        look(reader)
    lines.write_bytes(LOGGED)
    look(reader)
    look(reader)
    assert told(work.parent) == {
        "work/training/metrics.jsonl": {
            "loss": [(1, 1.0), (2, 0.5), (3, 0.33), (4, 0.25), (5, 0.2)],
            "lr": [(step, 0.1) for step in range(1, 6)],
        }
    }


def test_an_evaluation_in_a_metrics_file_is_reported_by_its_names(work):
    Metrics(work).evaluated(7, {"accuracy": 0.5}, 100)
    assert read(work.parent)["work/metrics.jsonl"] == {"eval/accuracy": [(7, 0.5)], "samples": [(7, 100.0)]}


def test_events_that_only_repeat_a_metrics_file_are_not_read_and_all_others_are(work):
    for folder, lines in (("ours", LOGGED), ("other", b'{"step": 3, "loss": 0.5}\n'), ("empty", b"")):
        (work / folder / "tensorboard").mkdir(parents=True)
        shutil.copy(EVENTS, work / folder / "tensorboard")
        (work / folder / "metrics.jsonl").write_bytes(lines)
    assert list(read(work.parent)) == [
        f"work/empty/tensorboard/{EVENTS.name}",
        f"work/other/tensorboard/{EVENTS.name}",
        "work/ours/metrics.jsonl",
    ]


def test_a_table_with_a_torn_last_line_gives_its_other_lines(work):
    text = (GOLDEN / "metrics.csv").read_text()
    (work / "metrics.csv").write_text(text[:-9])
    assert len(read(work.parent)["work/metrics.csv"]["train_loss"]) == 10
    assert len(told(work.parent)["work/metrics.csv"]["val_loss"]) == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (EVENTS.name, os.urandom(4096)),
        (EVENTS.name, struct.pack("<QI", 2**63, 0) + bytes(100)),
        (EVENTS.name, framed(b"\xff" * 300) + framed(b"\x2a\xff") + framed(b"\x0b") + framed(b"")),
        (EVENTS.name, framed(field(5, field(1, field(1, b"loss") + b"\x15\x00")))),
        (EVENTS.name, record("x" * 101, 1, 1.0) + record("loss", 2**63, 1.0)),
        ("metrics.csv", b"\x00\xff\n\n,,,\n"),
        ("metrics.csv", b"step,loss\ninf,1\n-1,2\n1.5,3\nnan,1\n1e400,4\n"),
        ("metrics.csv", b"step,loss\n1,2\n" + b'1,"' + b"x" * 200_000 + b'"\n'),
        ("trainer_state.json", b"[" * 100_000),
        ("trainer_state.json", b'{"log_history": [1, {"step": "1", "loss": 1}, {"step": 1, "loss": "1", "up": true}]}'),
        ("trainer_state.json", b'{"log_history": [{"step": 1, "loss": 1' + b"0" * 400 + b"}]}"),
        ("trainer_state.json", b'{"log_history": {"step": 1}}'),
        ("metrics.jsonl", b"\x00\xff\n[1]\n"),
        ("metrics.jsonl", b'{"step": 1, "t": 2.5, "loss": 3}\n'),
        ("metrics.jsonl", b'{"t": ' + b"[" * 100_000 + b"\n"),
        ("metrics.jsonl", b'{"t": 1, "step": 1.5, "loss": 1}\n{"t": 1, "step": true, "loss": 1}\n'),
        ("metrics.jsonl", b'{"t": 1, "step": 1, "loss": "1", "up": true, "huge": 1' + b"0" * 400 + b"}\n"),
        ("metrics.jsonl", b'{"t": 1, "step": 1}\n' + b"x" * (3 << 20) + b"\n" + b'{"t": 1, "step": 9, "loss": 1}\n'),
    ],
)
def test_a_malformed_file_stops_no_reader_and_yields_no_invented_numbers(work, name, content):
    (work / name).write_bytes(content)
    shutil.copy(EVENTS, work / "events.out.tfevents.2.sound")
    found = read(work.parent)
    assert len(found.pop("work/events.out.tfevents.2.sound")) == 4
    assert all(not tags or list(tags) == ["loss"] for tags in found.values())


def test_large_records_are_skipped(work):
    (work / EVENTS.name).write_bytes(framed(bytes(1 << 20)) + record("loss", 7, 0.5))
    assert read(work.parent) == {f"work/{EVENTS.name}": {"loss": [(7, 0.5)]}}


def test_a_table_that_was_sent_with_the_script_is_not_this_runs(work):
    shutil.copy(GOLDEN / "metrics.csv", work)
    status = (work / "metrics.csv").stat()
    (work.parent / "sent.json").write_text(
        json.dumps({"metrics.csv": ["digest", status.st_size, int(status.st_mtime)], "train.py": ["digest", 3, 4]})
    )
    assert read(work.parent) == {}
    with (work / "metrics.csv").open("a") as file:
        file.write("4,40,0.5,\n")
    assert read(work.parent)["work/metrics.csv"]["train_loss"][-1] == (40, 0.5)


def test_a_lone_surrogate_in_a_name_stops_no_reader(work, tmp_path):
    (work / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss\\ud800": 2.0}]}')
    shutil.copy(GOLDEN / "metrics.csv", work / "x")
    (work / "x").rename(work / "metrics.csv")
    assert read(tmp_path).keys() == {"work/trainer_state.json", "work/metrics.csv"}


def test_neither_links_nor_pipes_are_read(work, tmp_path):
    (work / "metrics.csv").symlink_to(GOLDEN / "metrics.csv")
    (work / "linked").symlink_to(GOLDEN)
    os.mkfifo(work / "events.out.tfevents.1.pipe")
    assert read(tmp_path) == {}
    assert not (tmp_path / "scalars").exists()


def test_a_table_in_a_hidden_folder_is_read(work, tmp_path):
    (work / ".cache/mychat").mkdir(parents=True)
    shutil.copy(GOLDEN / "metrics.csv", work / ".cache/mychat")
    assert "work/.cache/mychat/metrics.csv" in read(tmp_path)


def test_the_limits_on_files_and_names_hold(work):
    for index in range(70):
        (work / f"events.out.tfevents.{index}").write_bytes(record("loss", 1, 1.0))
    (work / "events.out.tfevents.5").write_bytes(b"".join(record(f"loss {i}", 1, 1.0) for i in range(400)))
    found = read(work.parent)
    assert len(found) == 64
    assert len({tag for tags in found.values() for tag in tags}) <= 300


def test_only_some_points_of_a_long_curve_are_reported(work, monkeypatch):
    monkeypatch.setattr(scalars, "_ALL_POINTS", 256)
    monkeypatch.setattr(scalars, "_MOST_RECORDS", 2500)
    (work / EVENTS.name).write_bytes(b"".join(record("loss", step, 1.0) for step in range(12_500)))
    points = read(work.parent)[f"work/{EVENTS.name}"]["loss"]
    assert [step for step, _ in points[:256]] == list(range(256))
    assert 625 < len(points) < 1_250
    assert points[-1][0] > 12_400


def test_the_last_lines_of_a_table_that_grows_for_days_are_still_read(work, monkeypatch):
    monkeypatch.setattr(scalars, "_MOST_TEXT", 2000)
    table = work / "metrics.csv"
    reader = Scalars(work.parent, "a")
    for steps in (100, 1000):
        table.write_text("step,train_loss\n" + "".join(f"{step},{step / 10}\n" for step in range(steps)))
        look(reader)
    points = told(work.parent)["work/metrics.csv"]["train_loss"]
    assert points[:100] == [(step, step / 10) for step in range(100)]
    assert (len(points), points[-1]) == (len({*points}), (999, 99.9))


def test_new_lines_of_a_long_table_are_reported_though_its_tail_is_thinned(work, monkeypatch):
    monkeypatch.setattr(scalars, "_MOST_TEXT", 2000)
    monkeypatch.setattr(scalars, "_ALL_POINTS", 8)
    reader = Scalars(work.parent, "a")
    for steps in range(1000, 1100, 2):
        (work / "metrics.csv").write_text("step,loss\n" + "".join(f"{step},0.5\n" for step in range(steps)))
        look(reader)
    steps = [step for step, _ in told(work.parent)["work/metrics.csv"]["loss"]]
    assert steps[-1] > 1050


def test_only_one_of_the_nodes_that_share_a_folder_reads_it(work):
    shutil.copy(GOLDEN / "metrics.csv", work)
    first, second = Scalars(work.parent, "b"), Scalars(work.parent, "a")
    for reader in (first, second):
        look(reader)
    assert told(work.parent) == {}
    del first
    look(second)
    assert told(work.parent)


def test_among_endless_files_only_the_first_are_looked_at(work, monkeypatch):
    monkeypatch.setattr(scalars, "_MOST_ENTRIES", 100)
    for folder, files in (("a", 10), ("b", 200), ("c", 0)):
        (work / folder).mkdir()
        shutil.copy(GOLDEN / "metrics.csv", work / folder)
        for index in range(files):
            (work / folder / str(index)).touch()
    assert list(read(work.parent)) == ["work/a/metrics.csv"]


def test_a_large_data_set_in_the_project_hides_no_metrics_file(work, monkeypatch):
    walk, images = os.walk, [str(index) for index in range(25_000)]
    monkeypatch.setattr(scalars.os, "walk", lambda top: ((*at, names or images) for *at, names in walk(top)))
    (work / "runs").mkdir()
    shutil.copy(GOLDEN / "metrics.csv", work / "runs")
    assert list(read(work.parent)) == ["work/runs/metrics.csv"]


def test_the_last_numbers_are_read_when_the_run_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_RUN_DIR", str(tmp_path))
    (tmp_path / "work").mkdir()
    with telemetry.run_telemetry(tmp_path, "a", packages=False):
        shutil.copy(EVENTS, tmp_path / "work")
    assert len(told(tmp_path)[f"work/{EVENTS.name}"]["train/loss"]) == 8


@pytest.mark.holds("secrets-masked")
def test_names_of_files_and_numbers_show_no_secret(work):
    folder = work / "sesame-4711"
    folder.mkdir()
    (folder / "metrics.csv").write_text("step,loss/sesame-4711\n1,0.5\n2,0.4\n")
    look(Scalars(work.parent, "a", ["sesame-4711"]))
    assert told(work.parent) == {"work/***/metrics.csv": {"loss/***": [(1, 0.5), (2, 0.4)]}}


def test_the_state_of_a_long_training_is_read_from_its_end(work, monkeypatch):
    """A Trainer's state grows with its steps; once it exceeded 4 MB, none of its numbers was read."""
    monkeypatch.setattr(scalars, "_MOST_TEXT", 4000)
    history = [{"epoch": step / 10, "loss": 1.0, "step": step} for step in range(200)]
    history.insert(199, {"eval_loss": 2.0, "step": 198})
    history.insert(0, {"eval_loss": 3.0, "eval_f1": [0.5, 0.7], "eval_of": {"a": 1}, "step": 0})
    assert dict(scalars.read_trainer_state(json.dumps({"log_history": history}))["eval_loss"]) == {0: 3.0, 198: 2.0}
    state = {"best_metric": None, "log_history": history, "stateful_callbacks": {"a": {"args": {"step": 5}}}}
    (work / "trainer_state.json").write_text(json.dumps(state, indent=2))  # as the Trainer writes it
    (tags,) = read(work.parent).values()
    steps = [step for step, _ in tags["loss"]]
    assert steps == [*range(min(steps), 200)]
    assert 10 < len(steps) < 200
    assert tags["eval_loss"] == [(198, 2.0)]
