"""The board: what its list shows for each run, and that it reads only files that have changed."""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise

import pytest

from deploy.report.board import answers, runs, server
from deploy.report.console import Console
from deploy.report.page import run as page
from deploy.report.page.data import RunReader
from deploy.run.files import code, folders, locks, own_files, record
from tests.unit.report.test_page import sample, write, write_lines
from tests.unit.report.test_script_page import RECORD, STEP, event, plain_run, watched_run

NOW = 1_790_000_000.0


def going_on(folder, age=5.0):
    """A script's run without an outcome, whose files were written `age` seconds before NOW."""
    watched_run(folder)
    (folder / "outcome.json").unlink()
    for path in folder.rglob("*"):
        os.utime(path, (NOW - age, NOW - age))
    return folder


def rows(folder, now=NOW, live=("a",)):
    return {row["id"]: row for row in runs.Runs(folder, lambda: live).rows(now)}


@pytest.mark.parametrize(("age", "live"), [(5.0, True), (59.0, True), (61.0, False)])
def test_a_run_without_its_command_is_live_while_its_nodes_write(tmp_path, age, live):
    going_on(tmp_path / "a", age)
    row = rows(tmp_path)["a"]
    assert (row["live"], row["ended"], row["verdict"]) == (live, False, "")
    assert (row["mark"], row["state"]) == (("●", "running") if live else ("…", "unfinished"))
    assert row["seen"] == pytest.approx(NOW - age)


def test_a_run_that_was_killed_is_not_shown_as_running(tmp_path):
    """For a minute after kill -9 of all its processes, the board showed it as running."""
    run = going_on(tmp_path / "a")
    assert (rows(tmp_path, live=())["a"]["live"], rows(tmp_path, live=())["a"]["state"]) == (False, "unfinished")
    assert page.build(run).count("Unfinished") == 1
    lock = locks.hold_run(run)
    row = rows(tmp_path, NOW + 3600, live=())["a"]
    assert (row["live"], row["mark"], row["state"]) == (True, "●", "starting"), "its record has no start"
    assert "going on when this page was made" in page.build(run)
    lock.release()


def test_a_run_on_hosts_without_a_follower_has_the_time_and_the_command_that_asks(tmp_path):
    run = going_on(tmp_path / "a")
    known = {**RECORD, "id": "a", "backend": "hosts", "hosts": ["gpu-a"], "starts": [{"t": NOW - 9}]}
    record.write_record(run, known)
    os.utime(run / "record.json", (NOW - 5, NOW - 5))
    row, at = rows(tmp_path, live=())["a"], time.strftime("%Y-%m-%d %H:%M", time.localtime(NOW - 5))
    assert (row["live"], row["badge"], row["state"]) == (False, "unknown", f"unknown since {at}")
    assert row["ask"] == "muster status --hosts gpu-a"
    assert "<code>muster status --hosts gpu-a</code>" in page.build(run)
    (run / "record.json").write_text(json.dumps({**known, "hosts": ["evil"]}))
    assert rows(tmp_path)["a"]["ask"] == "", "another user may have written it"
    record.write_record(run, known)
    lock = locks.hold_followed(run)
    assert rows(tmp_path)["a"]["state"] == "running"
    lock.release()


def test_a_run_of_another_machine_is_running_while_its_files_change(tmp_path):
    run = going_on(tmp_path / "a")
    record.write_record(run, {**RECORD, "id": "a", "machine": "other-box"})
    os.utime(run / "record.json", (NOW - 5, NOW - 5))
    assert rows(tmp_path, live=())["a"]["state"] == "running"
    assert rows(tmp_path, NOW + 100, live=())["a"]["state"].startswith("unknown since ")


def test_a_run_is_live_if_any_file_of_a_node_is_new(tmp_path):
    run = going_on(tmp_path / "a", 600)
    (run / "telemetry").mkdir()
    write_lines(run / "telemetry/n.jsonl", [{"t": 1}])
    os.utime(run / "telemetry/n.jsonl", (NOW - 1, NOW - 1))
    assert rows(tmp_path)["a"]["live"]


def test_a_row_has_step_loss_curve_script_hosts_and_commit(tmp_path):
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


def test_repeated_steps_and_an_earlier_training_are_left_out_of_the_loss_curve(tmp_path):
    run, first = going_on(tmp_path / "a"), [{"step": step, "loss": 9.0} for step in range(100)]
    write_lines(run / "metrics.jsonl", [*first, *({"step": step, "loss": 2.0} for step in range(50, 100))])
    losses = rows(tmp_path)["a"]["losses"]
    assert losses == sorted(losses, reverse=True)
    assert {*losses} == {9.0, 2.0}
    write_lines(run / "metrics.jsonl", [*first, *({"step": step, "loss": 2.0} for step in range(50))])
    assert {*rows(tmp_path)["a"]["losses"]} == {2.0}


def test_the_row_of_an_ended_run_has_its_verdict_and_seconds(tmp_path):
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


def test_an_unchanged_run_is_not_read_again(tmp_path, monkeypatch):
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


def test_a_list_of_many_new_files_asks_the_engine_once(tmp_path):
    """As after `git clone` or rsync: the files of all runs are new."""
    for name in "abc":
        going_on(tmp_path / name)
    asked = []
    board = runs.Runs(tmp_path, lambda: asked.append(1) or ("b",))
    assert {row["id"]: row["live"] for row in board.rows(NOW)} == {"a": False, "b": True, "c": False}
    assert len(asked) == 1
    board.rows(NOW + 1)
    assert len(asked) == 2


def test_a_clock_that_is_set_back_does_not_hide_a_resumed_run(tmp_path):
    sample(tmp_path / "a")
    board = runs.Runs(tmp_path)
    assert board.rows(NOW)[0]["ended"]
    (tmp_path / "a/outcome.json").unlink()
    assert not board.rows(NOW - 3600)[0]["ended"]


def test_a_browser_with_the_newest_version_gets_an_empty_answer(tmp_path):
    sample(tmp_path / "a")
    board = answers.Board(tmp_path)
    for path in (["runs.json"], ["run", "a"], ["run", "a", "logs", "rank-0.log"]):
        first = board.answer(path, {}, time.time())
        assert (first.code, first.mark != "") == (200, True)
        assert board.answer(path, {"have": [first.mark]}, time.time()).code == 204
        assert board.answer(path, {"have": ["x"]}, time.time()).body == first.body


def test_the_live_page_of_a_run_is_the_frozen_page_that_may_ask_the_board(tmp_path):
    """The live page and the frozen page have the same sections and words; only the live page may ask the board."""
    sample(tmp_path / "a")
    live = answers.Board(tmp_path).answer(["run", "a"], {}, time.time())
    frozen = answers.run.build(tmp_path / "a")
    for part in ("training", "steps", "story", "files"):
        assert f'<section id="{part}">' in live.body.decode()
        assert f'<section id="{part}">' in frozen
    assert "connect-src 'self'" in live.policy
    assert "connect-src" not in frozen
    assert "98.9 %" in live.body.decode()


def test_a_run_that_is_named_twice_is_compared_once(tmp_path):
    for name in ("a", "b"):
        sample(tmp_path / name)
    board = answers.Board(tmp_path)
    twice = board.answer(["compare"], {"run": ["a", "a", "b"]}, NOW)
    assert twice.body == board.answer(["compare"], {"run": ["a", "b"]}, NOW).body


WAYS = {
    "it grows": lambda text, more: text + more,
    "its last line is not whole yet": lambda text, more: text + more[:-9],
    "it is made anew": lambda text, more: more,
    "another file has its length": lambda text, more: text.replace("1", "2")[: len(text)] + more,
    "its values are others": lambda text, more: text.replace("9.0", "8.0"),
    "it is empty": lambda text, more: "",
    "a line is longer than any": lambda text, more: text + "x" * (3 << 20) + "\n" + more,
    "it has no end": lambda text, more: text + more + "x" * 300_000,
}


def test_each_ranks_log_can_be_chosen_although_the_list_of_files_is_cut(tmp_path):
    sample(tmp_path / "a")
    for rank in range(250):
        (tmp_path / f"a/logs/rank-{rank}.log").write_text("hello\n")
    shown = page.build(tmp_path / "a", reader=RunReader(tmp_path / "a", 1 << 20))
    assert "<option>logs/rank-249.log</option>" in shown
    assert ">logs/rank-249.log</a>" not in shown
    assert "more are in the folder" in shown


@pytest.mark.long
@pytest.mark.parametrize("first", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("then", WAYS.values(), ids=WAYS)
def test_a_page_that_reads_only_new_lines_equals_the_page_that_reads_everything(tmp_path, first, then):
    """This holds however the files change: they grow, or other files replace them."""
    run, lines = going_on(tmp_path / "a"), [{"node": "n", "t": NOW + t, "cpu_percent": 9.0} for t in range(4)]
    (run / "telemetry").mkdir()
    write_lines(run / "telemetry/n.jsonl", lines)
    more = {
        "ranks/rank-0.jsonl": event(0, 31.0, step=31, **STEP),
        "metrics.jsonl": {"t": NOW + 40, "step": 40, "loss": 0.125},
        "telemetry/n.jsonl": {"node": "n", "t": NOW + 9, "cpu_percent": 71.0},
    }
    reader = RunReader(run, 1 << 20)
    for way in (None, first, then):
        for name, line in more.items() if way else ():
            (run / name).write_text(way((run / name).read_text(), json.dumps(line) + "\n"))
        assert page.build(run, reader=reader) == page.build(run, reader=RunReader(run, 1 << 20))


def test_a_page_does_not_read_lines_again(tmp_path):
    run = going_on(tmp_path / "a")
    reader = RunReader(run, 1 << 20)
    page.build(run, reader=reader)
    first = reader.rows("metrics")[0]
    with open(run / "metrics.jsonl", "a") as file:
        file.write(f'{{"t": {NOW}, "step": 40, "loss": 0.5}}\n')
    page.build(run, reader=reader)
    rows = reader.rows("metrics")
    assert (rows[0] is first, rows[-1]["step"]) == (True, 40)


@pytest.mark.parametrize(
    ("opens", "terminal", "screen", "opened"),
    [(True, True, ":0", 1), (False, True, ":0", 0), (True, False, ":0", 0), (True, True, "", 0)],
)
def test_the_board_opens_a_browser_only_on_a_screen(tmp_path, monkeypatch, capsys, opens, terminal, screen, opened):
    """A text browser would take over another machine's terminal; the reader of a pipe waits only for the address."""
    seen = []
    for name in ("WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(Console, "asks", property(lambda console: terminal))
    monkeypatch.setattr(server.webbrowser, "open", seen.append)
    monkeypatch.setattr(server.Server, "serve_forever", lambda board: (_ for _ in ()).throw(KeyboardInterrupt))
    assert server.serve(answers.Board(tmp_path), 0, opens, Console()) == 0
    assert len(seen) == opened
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_a_look_that_runs_out_of_time_is_continued_by_the_next(tmp_path, monkeypatch):
    """The board reads the newest runs first, and its list says how many are still unread."""
    for number in range(6):
        sample(tmp_path / f"run-{number}")
    board = answers.Board(tmp_path)
    monkeypatch.setattr(runs, "_MOST_S", 0.0)
    first = json.loads(board.answer(["runs.json"], {}, NOW).body)
    assert (first["rows"], first["unread"]) == ([], 6)
    monkeypatch.setattr(runs, "_MOST_S", 60.0)
    board.prepare()
    assert len(json.loads(board.answer(["runs.json"], {}, NOW).body)["rows"]) == 6
    assert board.runs.unread == 0


@pytest.mark.long
def test_a_very_large_run_has_a_page_immediately_and_a_complete_one_next(tmp_path, monkeypatch):
    """The first page reads no long file completely, and says so; the second also has ranks' events between steps."""
    run = going_on(tmp_path / "a")
    rows = [event(0, s, step=s, **STEP) for s in range(1, 20_001)]
    write_lines(run / "ranks/rank-0.jsonl", [*rows[:10_000], event(0, 5.0, kind="unseen", what="loss", message="odd")])
    with open(run / "ranks/rank-0.jsonl", "a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows[10_000:])
    monkeypatch.setattr(answers, "_LARGE", 1 << 20)
    monkeypatch.setattr(answers, "MOST_LIVE", 1 << 20)
    board = answers.Board(tmp_path)
    first, second = (board.answer(["run", "a"], {}, time.time()) for _ in range(2))
    assert b"still being read" in first.body
    assert b"odd" not in first.body
    assert b"odd" in second.body
    assert b"still being read" not in second.body


def test_a_long_file_is_sampled_evenly_without_reading_what_lies_between(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(b'{"step": %d}\n' % step for step in range(100_000)) + b'{"torn')
    steps = [json.loads(line)["step"] for line in own_files.sample(tmp_path, "a.jsonl", 100, 1 << 16)]
    assert len(steps) == 101
    assert (steps[0], steps[-1]) == (0, 99_999)
    assert steps == sorted(set(steps))
    assert max(b - a for a, b in pairwise(steps)) < 1_300


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 9_000_000, b"{}\n" + b"\0" * 9_000_000, b"a\nb", b"a\n"])
def test_a_file_of_few_or_endless_lines_is_sampled_too(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert {*own_files.sample(tmp_path, "a", 50, 1 << 20)} <= {b"", b"a", b"{}"}


@pytest.mark.parametrize("typed", ["project", "project/runs", "project/runs/first/"])
def test_a_project_its_runs_or_one_of_them_name_the_same_board(tmp_path, typed):
    (tmp_path / "project/runs/first").mkdir(parents=True)
    assert folders.runs_of(f"{tmp_path}/{typed}") == tmp_path / "project/runs"
    (tmp_path / "runs/llm/runs").mkdir(parents=True)
    assert folders.runs_of(f"{tmp_path}/runs/llm") == tmp_path / "runs/llm/runs"
