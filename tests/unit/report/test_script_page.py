"""The report of a script's run: what was observed, what was not and why, its last lines, the files it wrote."""

from __future__ import annotations

import json
import time

import pytest

from deploy.causes.end_causes import Cause
from deploy.report.page import data, head, run
from deploy.run.files import code
from tests.unit.report.test_page import HOSTILE, START, Page, recorded, write, write_lines

RECORD = {
    "id": "r",
    "backend": "processes",
    "why": "asked for",
    "nodes": ["master", "worker-1"],
    "workers": 1,
    "script": True,
    "arguments": ["train.py", "--lr", "3e-4"],
    "started": START,
}
STEP = {"kind": "step", "count": 10, "data_ms": 2.0, "compute_ms": 12.0, "backward_ms": 7.0, "step_ms": 20.0}


def event(rank, t, **fields):
    """An event line of a rank."""
    return {"t": START + t, "rank": rank, "node": f"worker-{rank}" if rank else "master", **fields}


def plain_run(folder, code=0):
    """Make the folder of a script's run that only the agent observed."""
    write(folder / "record.json", RECORD)
    verdict = "failed" if code else "done"
    written = {"master": {"files": 2, "bytes": 1_200_000_000}, "worker-1": {"files": 0, "bytes": 0}}
    end = {"verdict": verdict, "seconds": 9.5, "kept": written, "rank": 1 if code else None, "message": "it broke"}
    write(folder / "outcome.json", end)
    for rank in (0, 1):
        began = event(rank, 1.0, kind="began", attempt=0, world=2, pid=1)
        ended = event(rank, 9.0, kind="ended", code=rank * code, how="exit code 1" if rank * code else "", world=2)
        write_lines(folder / f"ranks/rank-{rank}.jsonl", [began, ended])
        (folder / "logs").mkdir(exist_ok=True)
        (folder / f"logs/rank-{rank}.log").write_text(f"hello from {rank}\nbar 1\rbar 2\rbar 3\n")
    return folder


def watched_run(folder, wait=True):
    """Make the same folder with a loss and step times, as the watcher in the ranks writes them."""
    plain_run(folder)
    write_lines(folder / "metrics.jsonl", [{"t": START + 2, "step": s, "loss": 1 / s, "lr": 0.1} for s in (10, 20, 30)])
    for rank in (0, 1):
        started = event(rank, 1.0, kind="started", attempt=0, world=2, device="cpu", backend="gloo")
        times = [event(rank, 2.0, step=s, **STEP, **({"wait_ms": 6.0} if wait and s > 10 else {})) for s in (10, 20)]
        unseen = event(rank, 2.5, kind="unseen", what="data", message="no torch DataLoader delivered a batch")
        write_lines(folder / f"ranks/rank-{rank}.jsonl", [started, *times, unseen])
    return folder


def headings(shown):
    """The headings of the sections that a page has."""
    names = ("Training", "Where each step", "Last lines", "What happened", "Configuration", "Files")
    return [name for name in names if f" {name}" in shown.text]


def test_an_unobserved_script_has_no_empty_section(tmp_path):
    shown = Page(run.build(plain_run(tmp_path)))
    assert headings(shown) == ["Last lines", "Files"]
    assert not [words for words in ("missing", "Nothing", "No rank", "Incomplete") if words in shown.text]
    assert shown.pairs["Script"] == "train.py --lr 3e-4"


def test_a_watched_script_has_loss_step_time_phases_and_what_was_not_seen(tmp_path):
    shown = Page(run.build(watched_run(tmp_path)))
    assert shown.pairs["rank 0’s last loss"] == "0.0333"
    assert shown.pairs["steps"] == "20"
    assert "Step time" in shown.text
    assert " compute " in shown.text
    assert "slow:" not in shown.text, "too few steps to say so"
    assert shown.pairs["Waiting for data"] == "ranks 0-1: no torch DataLoader delivered a batch"


@pytest.mark.parametrize(
    ("losses", "name", "value"),
    [
        ({10: 1.2}, "rank 0’s last loss, at step 10 of 64", "1.20"),
        ({10: 1.2, 63: 0.5, 64: float("nan")}, "rank 0’s last finite loss, at step 63 of 64", "0.500"),
        ({10: 1.2, 64: 0.000012}, "rank 0’s last loss", "0.0000120"),
    ],
)
def test_a_loss_from_before_the_last_step_is_shown_with_its_step(tmp_path, losses, name, value):
    watched_run(tmp_path)
    write_lines(tmp_path / "metrics.jsonl", [{"t": START + 2, "step": s, "loss": loss} for s, loss in losses.items()])
    write_lines(tmp_path / "ranks/rank-0.jsonl", [event(0, 2.0, step=64, **STEP)])
    assert Page(run.build(tmp_path)).pairs[name] == value


def test_a_wait_that_was_not_measured_is_not_shown_as_zero(tmp_path):
    shown = Page(run.build(watched_run(tmp_path, wait=False)))
    assert "Muster cannot tell how long a rank waits for the others" in shown.text
    assert "slow" not in shown.text


def test_steps_before_the_first_measured_wait_do_not_lower_its_mean(tmp_path):
    shown = Page(run.build(watched_run(tmp_path)))
    assert [a["title"] for a in shown.having(class_="wait") if "title" in a] == ["waiting 6.0 ms"] * 2


def test_the_last_lines_are_those_of_the_failed_rank_and_then_of_rank_0(tmp_path):
    shown = Page(run.build(plain_run(tmp_path, code=1)))
    assert shown.text.index("hello from 1") < shown.text.index("hello from 0")
    assert "bar 3" in shown.text
    assert "bar 2" not in shown.text


def test_the_last_lines_come_from_the_nodes_console_if_the_ranks_log_is_not_here(tmp_path):
    plain_run(tmp_path)
    (tmp_path / "logs/rank-0.log").unlink()
    (tmp_path / "logs/master.log").write_text("of the only rank\ntorchrun: not the script's\n")
    shown = Page(run.build(tmp_path))
    assert "of the only rank" in shown.text
    assert "not the script's" not in shown.text


@pytest.mark.parametrize(
    ("more", "commands"),
    [
        ({}, ["Run again muster up --workers 1 --backend processes train.py --lr 3e-4"]),
        ({"again": "--folder x"}, ["--folder x train.py --lr 3e-4"]),
        ({"hosts": ["a", "b"]}, ["Run again muster deploy --hosts a,b train.py --lr 3e-4"]),
        ({"hosts": ["a"], "arguments": ["--per-node", "bash", "x.sh"]}, ["muster deploy --hosts a bash x.sh"]),
        ({"hosts": ["a"], "arguments": ["--per-node", "./run", "x"]}, ["muster deploy --hosts a --each './run x'"]),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_the_command_to_run_again_has_the_script(tmp_path, more, commands, code):
    plain_run(tmp_path, code)
    write(tmp_path / "record.json", {**RECORD, **more})
    shown = Page(run.build(tmp_path, recorded(tmp_path)))
    assert all(command in shown.text for command in commands)


@pytest.mark.parametrize("where", ["log", "console", "event", "file", "record"])
def test_a_scripts_text_is_escaped_and_its_control_characters_are_visible(tmp_path, where):
    hostile = HOSTILE.removesuffix("\ud800") + "\x1b]0;title\x07\u202e"
    plain_run(tmp_path, code=1)
    unseen = event(1, 2.0, kind="unseen", what=hostile[-50:], message=hostile)
    ended = event(1, 3.0, kind="ended", code=1, how=hostile, error=hostile)
    if where == "log":
        (tmp_path / "logs/rank-1.log").write_text((hostile + "\n") * 3 + "x" * 1000)
    elif where == "console":
        (tmp_path / "logs/rank-1.log").unlink()
        (tmp_path / "logs/worker-1.log").write_text(f"[rank1]: {hostile}\n")
    elif where == "event":
        write_lines(tmp_path / "ranks/rank-1.jsonl", [unseen, ended])
    elif where == "file":
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / hostile.replace("/", "")[:80]).write_text("x")
    else:
        write(tmp_path / "record.json", {**RECORD, "arguments": [hostile]})
    source = run.build(tmp_path)
    shown = Page(source)
    assert "alert(" in shown.text or where == "file"
    assert len(shown.scripts) == 1
    assert "img" not in {name for name, _ in shown.tags}
    assert "\x1b" not in source
    assert "\x07" not in source
    assert len(source) < 200_000
    assert all("javascript" not in a.get("href", "") for _, a in shown.tags)


def test_the_code_is_shown_as_commit_and_diff(tmp_path):
    plain_run(tmp_path)
    assert "What ran" not in Page(run.build(tmp_path)).text
    lines = f"-lr = 0.1\n+{HOSTILE[:-1]}\x1b[2J\n"
    code.write(tmp_path, code.Code("abc123", "main", (HOSTILE[:-1],), ("new.py",), (".npmrc",), True, lines))
    source = run.build(tmp_path)
    shown = Page(source)
    assert shown.pairs["Commit"] == "abc123"
    assert shown.pairs["New"] == "new.py"
    assert shown.pairs["Not in the diff"] == ".npmrc and further or large files", "it is known to be cut"
    assert "-lr = 0.1" in shown.text
    assert "\x1b" not in source
    assert len(shown.scripts) == 1


def test_a_symlink_in_place_of_a_folder_is_not_followed(tmp_path):
    folder, other = tmp_path / "r", tmp_path / "other"
    plain_run(folder)
    other.mkdir()
    (other / "rank-0.log").write_text("not for this page")
    write_lines(other / "rank-0.jsonl", [event(0, 1.0, kind="stopping", message="not for this page")])
    write(other / "master.json", {"t": START, "node": "not for this page"})
    for name in ("logs", "work", "ranks", "nodes", "telemetry"):
        for path in (folder / name).glob("*"):
            path.unlink()
        if (folder / name).exists():
            (folder / name).rmdir()
        (folder / name).symlink_to(other)
    source = run.build(folder)
    assert "not for this page" not in source
    assert "work/rank-0.log" not in source


@pytest.mark.parametrize("known", [True, False])
def test_repeated_steps_are_on_the_curve_once_if_the_resumed_step_is_known(tmp_path, known):
    folder = watched_run(tmp_path)
    place = event(0, 5.0, kind="continues", step=12, before=20, known=known)
    later = event(0, 6.0, step=16, **STEP, wait_ms=6.0)
    with (folder / "ranks/rank-0.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in (place, later))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"t": START + 6, "step": 16, "loss": 0.5}) + "\n")
    loaded = data.load(folder)
    assert [row["step"] for row in loaded.metrics] == ([10, 16] if known else [10, 16, 20, 30])
    assert loaded.times[0][-1].step == (16 if known else 20)
    names = [name for _, name in head.figures(loaded, head.summary(loaded))]
    assert ("steps, including repeated steps" in names) == (not known)


@pytest.mark.long
def test_a_page_with_many_programs_plans_and_ranks_takes_seconds(tmp_path):
    """For example, a shell script that starts a program for each of thousands of files."""
    losses = [{"t": START + i, "step": i, "loss": 1.0} for i in range(20_000)]
    write_lines(tmp_path / "metrics.jsonl", losses)
    begun = [event(0, i, kind="continues", step=i, before=i, known=True, another=True) for i in range(5_000)]
    ranks = [event(rank, 6_000.0, kind="started") for rank in range(10_000)]
    stops = [event(0, 6_001.0, kind="stopping", step=i) for i in range(10_000)]
    plans = [event(0, 6_002.0, kind="plan", recipe="digits") for _ in range(10_000)]
    write_lines(tmp_path / "ranks/rank-0.jsonl", [*begun, *ranks, *stops, *plans])
    began = time.thread_time()
    run.build(tmp_path)
    assert time.thread_time() - began < 10


@pytest.mark.parametrize("before", [True, False])
def test_an_earlier_program_without_steps_is_not_reported(tmp_path, before):
    folder = watched_run(tmp_path)
    none = event(0, -1.0 if before else 9.0, kind="unseen", what="steps", message="no torch optimizer has stepped")
    with (folder / "ranks/rank-0.jsonl").open("a") as file:
        file.write(json.dumps(none) + "\n")
    assert ("no torch optimizer" in Page(run.build(folder)).text) != before


def test_files_on_hosts_are_shown_with_their_size_and_the_command_to_fetch_them(tmp_path):
    """This holds only for hosts that this machine recorded: somebody else's record gives no command to copy."""
    known = {**RECORD, "backend": "hosts", "hosts": ["gpu-a", "me@gpu-b:22"]}
    plain_run(tmp_path)
    shown = Page(run.build(tmp_path, known))
    assert shown.pairs["master"] == "2 files, 1.2 GB"
    assert f"muster fetch --hosts gpu-a,me@gpu-b:22 {tmp_path.name}" in shown.text
    for other in (RECORD, {}, None):
        assert "muster fetch" not in Page(run.build(tmp_path, other)).text


def test_a_failed_run_says_first_what_failed_first_and_what_to_type(tmp_path):
    """This comes above all numbers; a record that somebody else wrote gives no command to type."""
    plain_run(tmp_path, code=1)
    end = json.loads((tmp_path / "outcome.json").read_text())
    message = 'it broke\n    Traceback (most recent call last):\n      File "train.py", line 3'
    write(tmp_path / "outcome.json", {**end, "node": "worker-1", "cause": "killed", "message": message})
    shown = Page(run.build(tmp_path, recorded(tmp_path))).text
    typed = f"muster logs --run {tmp_path.name} --rank 1"
    places = [
        shown.index(words) for words in ("worker-1 (rank 1) failed first: it broke", typed, "muster explain killed")
    ]
    assert places == sorted(places)
    assert places[-1] < shown.index("from the first rank to the end")
    assert ">Traceback (most" in run.build(tmp_path)
    assert "muster logs" not in Page(run.build(tmp_path)).text
    on_hosts = {**RECORD, "backend": "hosts", "hosts": ["gpu-a", "gpu-b"]}
    assert f"muster logs --hosts gpu-a,gpu-b --run {tmp_path.name} --rank 1" in Page(run.build(tmp_path, on_hosts)).text


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause.entry])
def test_each_cause_with_an_entry_is_shown_with_its_explain_command(tmp_path, cause):
    plain_run(tmp_path, code=1)
    end = json.loads((tmp_path / "outcome.json").read_text())
    write(tmp_path / "outcome.json", {**end, "cause": cause})
    assert f"muster explain {cause.entry}" in Page(run.build(tmp_path, recorded(tmp_path))).text


@pytest.mark.parametrize("moved", [False, True])
def test_a_stopped_run_says_what_was_wrong_before(tmp_path, moved):
    plain_run(tmp_path)
    write(tmp_path / "outcome.json", {"verdict": "stopped", "message": "train.py was asked to stop"})
    trouble = {
        "cause": "locked-up",
        "message": "rank 1 is stuck in train.py:3",
        "node": "worker-1",
        "rank": 1,
        "t": 5.0,
    }
    trouble |= {"other": "", "lasting": False}
    line = {"t": START + 5, "text": trouble["message"], "grave": True, "trouble": trouble, "restart": False}
    again = {"t": START + 6, "text": "rank 1 moves again", "grave": False, "trouble": None, "restart": False}
    rows = [{**line, "moves": False}, *[{**again, "moves": True}] * moved]
    write_lines(tmp_path / "timeline.jsonl", rows)
    shown = Page(run.build(tmp_path, recorded(tmp_path))).text
    assert ("asked to stop; before that: rank 1 is stuck in train.py:3" in shown) != moved
    assert ("muster explain locked-up" in shown) == (f"logs --run {tmp_path.name} --rank 1" in shown) == (not moved)
