"""The board: what its list says of each run, and that it reads again only what has changed."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from deploy.report.board import answers, runs, server
from deploy.report.console import Console
from deploy.run.files import code
from tests.unit.report.test_page import sample, write, write_lines
from tests.unit.report.test_script_page import RECORD, STEP, event, plain_run, watched_run

NOW = 1_790_000_000.0


def going_on(folder, age=5.0):
    """A script's run without an end, whose files were written so many seconds before NOW."""
    watched_run(folder)
    (folder / "outcome.json").unlink()
    for path in folder.rglob("*"):
        os.utime(path, (NOW - age, NOW - age))
    return folder


def rows(folder, now=NOW):
    return {row["id"]: row for row in runs.Runs(folder).rows(now)}


@pytest.mark.parametrize(("age", "live"), [(5.0, True), (59.0, True), (61.0, False)])
def test_a_run_without_an_end_is_live_while_its_nodes_write(tmp_path, age, live):
    going_on(tmp_path / "a", age)
    row = rows(tmp_path)["a"]
    assert (row["live"], row["ended"], row["verdict"]) == (live, False, "")
    assert row["seen"] == pytest.approx(NOW - age)


def test_any_sign_of_a_node_counts(tmp_path):
    run = going_on(tmp_path / "a", 600)
    (run / "telemetry").mkdir()
    write_lines(run / "telemetry/n.jsonl", [{"t": 1}])
    os.utime(run / "telemetry/n.jsonl", (NOW - 1, NOW - 1))
    assert rows(tmp_path)["a"]["live"]


def test_a_row_has_step_loss_course_script_hosts_and_commit(tmp_path):
    run = going_on(tmp_path / "a")
    steps = [event(0, s, step=s, steps=500, **STEP) for s in (10, 20)]
    write_lines(run / "ranks/rank-0.jsonl", [*steps, event(0, 21.0, kind="kept", files=1, bytes=1)])
    write_lines(run / "metrics.jsonl", [{"step": s, "loss": 1 / s} for s in range(1, 2000)])
    write(run / "record.json", {**RECORD, "hosts": ["gpu-a", "gpu-b"]})
    code.write(run, code.Code("0123456789abcdef", "main", ("train.py",)))
    row = rows(tmp_path)["a"]
    assert (row["step"], row["steps"]) == (20, 500)
    assert row["loss"] == pytest.approx(1 / 1999)
    assert len(row["losses"]) > 10
    assert row["losses"] == sorted(row["losses"], reverse=True)
    assert (row["script"], row["hosts"]) == ("train.py --lr 3e-4", "gpu-a and gpu-b")
    assert row["commit"] == "0123456789+"


def test_a_run_that_has_ended_has_its_verdict_and_its_seconds(tmp_path):
    sample(tmp_path / "a")
    plain_run(tmp_path / "b", 1)
    listed = rows(tmp_path)
    assert (listed["a"]["verdict"], listed["a"]["seconds"], listed["a"]["step"]) == ("done", 29.8, 600)
    assert (listed["b"]["verdict"], listed["b"]["message"]) == ("failed", "it broke")


@pytest.mark.parametrize(
    "rubbish", [b"", b"null", b"[1]", b'{"t": {}', b'{"step": 5, "loss": NaN, "hosts": 7}', b"\xff"]
)
def test_rubbish_in_any_file_never_raises(tmp_path, rubbish):
    run = sample(tmp_path / "a")
    for path in run.rglob("*.json*"):
        path.write_bytes(rubbish)
    json.dumps(rows(tmp_path)["a"], allow_nan=False)


def test_what_has_not_changed_is_not_read_again(tmp_path, monkeypatch):
    going_on(tmp_path / "a")
    sample(tmp_path / "b")
    board, read = runs.Runs(tmp_path), []
    monkeypatch.setattr(
        runs, "_read", lambda run_dir, seen, real=runs._read: read.append(run_dir.name) or real(run_dir, seen)
    )
    board.rows(NOW)
    board.rows(NOW + 1)
    assert sorted(read) == ["a", "b"]
    with open(tmp_path / "a/metrics.jsonl", "a") as file:
        file.write('{"step": 40, "loss": 0.5}\n')
    listed = {row["id"]: row for row in board.rows(NOW + 2)}
    assert read[2:] == ["a"]
    assert listed["a"]["loss"] == 0.5


def test_a_browser_that_has_the_newest_gets_nothing(tmp_path):
    sample(tmp_path / "a")
    board = answers.Board(tmp_path)
    for path in (["runs.json"], ["run", "a"], ["run", "a", "logs", "rank-0.log"]):
        first = board.answer(path, {}, time.time())
        assert (first.code, first.mark != "") == (200, True)
        assert board.answer(path, {"have": [first.mark]}, time.time()).code == 204
        assert board.answer(path, {"have": ["x"]}, time.time()).body == first.body


def test_the_page_of_a_run_is_the_frozen_page_with_what_keeps_it_new(tmp_path):
    """Both have the same sections and words; only the live one may ask the board."""
    sample(tmp_path / "a")
    live = answers.Board(tmp_path).answer(["run", "a"], {}, time.time())
    frozen = answers.run.build(tmp_path / "a")
    for part in ("training", "steps", "story", "files"):
        assert f'<section id="{part}">' in live.body.decode()
        assert f'<section id="{part}">' in frozen
    assert "connect-src 'self'" in live.policy
    assert "connect-src" not in frozen
    assert "98.9 %" in live.body.decode()


@pytest.mark.parametrize(
    ("opens", "terminal", "screen", "opened"),
    [(True, True, ":0", 1), (False, True, ":0", 0), (True, False, ":0", 0), (True, True, "", 0)],
)
def test_it_opens_a_browser_only_where_there_is_a_screen(
    tmp_path, monkeypatch, capsys, opens, terminal, screen, opened
):
    """A terminal of another machine would be taken by a text browser, and a pipe waits for the address alone."""
    seen = []
    for name in ("WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(Console, "asks", property(lambda console: terminal))
    monkeypatch.setattr(server.webbrowser, "open", seen.append)
    monkeypatch.setattr(server.Server, "serve_forever", lambda board: (_ for _ in ()).throw(KeyboardInterrupt))
    assert server.serve(tmp_path, 0, opens, Console()) == 0
    assert len(seen) == opened
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
