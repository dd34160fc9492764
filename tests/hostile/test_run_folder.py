"""Containers have run folders mounted: what a container plants there leads nobody to another place."""

import os
import shutil

import pytest

from deploy.core.errors import DeployError
from deploy.core.names import NodeName
from deploy.hosts.mirror import Mirror
from deploy.job.options import Options
from deploy.local import script, within
from deploy.report.console import Console
from deploy.report.page import run as page
from deploy.run import events as run_events
from deploy.run import output
from deploy.run.files import locks, own_files, record, recorded_ends
from deploy.run.follower import Follower
from deploy.run.outcome import Result
from deploy.run.progress import State
from deploy.run.state.story import Happening
from deploy.send.folder.credentials import SendChoice

MINE = "not yours\n"


@pytest.fixture
def planted(tmp_path):
    """A run, and `plant(name)`, which creates a link with that name in it to a file or a folder of the user."""
    run_dir = record.make_folder(tmp_path / "runs", [], 1.7e9)
    begin(run_dir)
    ours = tmp_path / "ours"
    ours.mkdir()
    for name in ("file", "a.json", "master.log", "rank-0.jsonl"):
        (ours / name).write_text(MINE)

    def plant(name, is_folder=False):
        path = run_dir / name
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        os.symlink(ours if is_folder else ours / "file", path)

    yield run_dir, plant
    assert {path.name: path.read_text() for path in ours.iterdir()} == dict.fromkeys(
        ("file", "a.json", "master.log", "rank-0.jsonl"), MINE
    )


def begin(run_dir):
    record.open_start(run_dir, record.Choice(None, ()), "docker", "why", ["master"], 1.7e9)


def end(run_dir):
    state = State(("master",))
    state.story.tell(Happening(1.0, "all ranks restart"))
    recorded_ends.close(run_dir, Result("done"), state, 1.0)


WRITES = {
    "record.json": begin,
    "outcome.json": end,
    "timeline.jsonl": end,
    "report.html": page.write,
    "logs/master.log": lambda run_dir: own_files.open_to_append(run_dir, "logs/master.log").write(b"evil\n"),
    "logs/a.log": lambda run_dir: Mirror(run_dir, "a", NodeName("a"), print),
    ".lock": locks.hold_run,
}
FOLDERS = {
    "nodes": begin,
    "outcome": begin,
    "logs": lambda run_dir: Mirror(run_dir, "a", NodeName("a"), print),
}


@pytest.mark.holds("no-link-followed")
@pytest.mark.parametrize("name", WRITES)
def test_a_planted_link_is_not_written_through(planted, name):
    run_dir, plant = planted
    plant(name)
    if name == ".lock":
        with pytest.raises(DeployError):
            WRITES[name](run_dir)
        return
    WRITES[name](run_dir)
    assert not (run_dir / name).is_symlink()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_planted_folder_is_not_cleaned_or_filled(planted, name):
    run_dir, plant = planted
    plant(name, is_folder=True)
    with pytest.raises(DeployError, match="a link or a file"):
        FOLDERS[name](run_dir)


@pytest.mark.parametrize("name", ["record.json", "config.json", "environment.json", "outcome.json", "metrics.jsonl"])
def test_a_planted_link_or_pipe_is_not_shown_and_blocks_nothing(planted, tmp_path, name):
    run_dir = planted[0]
    secret = tmp_path / "secret.json"
    secret.write_text('{"auths": "hunter2"}')
    (run_dir / name).unlink(missing_ok=True)
    os.symlink(secret, run_dir / name)
    assert "hunter2" not in page.write(run_dir).read_text()
    assert record.read_json(run_dir / name) == {}
    (run_dir / name).unlink()
    os.mkfifo(run_dir / name)
    assert "no outcome" in page.write(run_dir).read_text().lower()
    assert record.read_json(run_dir / name) == {}


def test_an_endless_line_takes_no_memory_and_hides_nothing(planted, monkeypatch):
    run_dir = planted[0]
    monkeypatch.setattr(run_events, "MOST_LINE", 4096)
    monkeypatch.setattr(own_files, "_BLOCK", 512)
    (run_dir / "ranks").mkdir(exist_ok=True)
    well = '{"t": 1.0, "kind": "stopping", "step": 3, "message": "m", "rank": 0, "node": "a"}\n'
    (run_dir / "ranks/rank-0.jsonl").write_text(well + "x" * 9000 + "\n" + well * 200)
    events = Follower(run_dir, from_start=True).read()
    assert len([event for event in events if event["kind"] == "stopping"]) == 201


@pytest.mark.parametrize("name", ["rank-0.log", "master.log"])
def test_an_endless_log_line_is_shown_in_parts(planted, monkeypatch, capsys, name):
    """`muster logs` once held all of such a line in memory, and read it again for each piece."""
    run_dir = planted[0]
    (run_dir / "logs" / name).write_text("first\n" + "x" * 10_000 + "\n\nlast")
    monkeypatch.setattr(within, "_PIECE", 4096)
    assert within.logs_here(Options(run=str(run_dir)), Console()) == 0
    shown = [line.partition("]  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert (shown[0], *shown[-2:]) == ("first", "", "last")
    assert "".join(shown[1:-2]) == "x" * 10_000
    assert max(map(len, shown)) <= 4096


def test_a_scripts_folder_is_copied_into_its_run_and_through_no_link(planted, tmp_path):
    run_dir, plant = planted
    (tmp_path / "project").mkdir()
    (tmp_path / "project/train.py").write_text("print(1)\n")
    for is_folder in (False, True):
        plant("sent", is_folder)
        script.copy_to_run(tmp_path / "project", run_dir, SendChoice())
        assert not (run_dir / "sent").is_symlink()
        assert (script.sent_folder(run_dir) / "train.py").read_text() == "print(1)\n"
        shutil.rmtree(run_dir / "sent")
    assert not list(tmp_path.glob(".muster-sent-*"))


@pytest.mark.parametrize("killed", [False, True])
def test_a_copy_of_the_folder_contains_no_earlier_copy_even_after_a_kill(planted, tmp_path, killed):
    """`muster up` copies the folder that contains its runs, and builds the copy next to them."""
    run_dir = planted[0]
    (tmp_path / "train.py").write_text("print(1)\n")
    child = os.fork()
    if child == 0:
        own_files.replace_folder = lambda *_: os._exit(9)
        script.copy_to_run(tmp_path, run_dir, SendChoice())
    os.waitpid(child, 0)
    assert len(list(tmp_path.glob(".muster-sent-*/sent"))) == 1
    if not killed:
        shutil.rmtree(next(tmp_path.glob(".muster-sent-*")))
    script.copy_to_run(tmp_path, run_dir, SendChoice())
    sent = {path.name for path in script.sent_folder(run_dir).rglob("*") if not path.is_dir()}
    assert sent == {"train.py", "file", "a.json", "master.log", "rank-0.jsonl"}
    assert len(list(script.sent_folder(run_dir).glob(".muster*"))) == killed


def test_ranks_lines_are_read_through_no_link(planted):
    run_dir, plant = planted
    logs = output.RankLogs(run_dir)
    plant("logs", is_folder=True)
    (run_dir.parent.parent / "ours/rank-0.log").write_text(MINE)
    assert logs.take({0: "master"}) == []
    (run_dir.parent.parent / "ours/rank-0.log").unlink()


@pytest.mark.parametrize("name", ["outcome/a.json", "nodes/a.json", "ranks/rank-0.jsonl", "metrics.jsonl"])
def test_planted_files_neither_block_a_follower_nor_show_the_users_files(planted, tmp_path, name):
    """A pipe once blocked a follower forever, a device filled its memory and a folder ended it, during the run."""
    run_dir, plant = planted
    (run_dir / "ranks").mkdir(exist_ok=True)
    (tmp_path / "ours/file").write_text(
        '{"t": 1.0, "kind": "x", "node": "a", "verdict": "done", "step": 1, "loss": 7}\n'
    )
    follower = Follower(run_dir)
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path), lambda _: plant(name)):
        make(run_dir / name)
        assert [event for event in follower.read() if event["kind"] != "unread"] == []
        (run_dir / name).rmdir() if (run_dir / name).is_dir() else (run_dir / name).unlink()
    (tmp_path / "ours/file").write_text(MINE)


def test_a_file_that_a_follower_may_not_read_is_reported_and_ends_nothing(planted, monkeypatch):
    run_dir, _ = planted
    (run_dir / "ranks").mkdir(exist_ok=True)
    line = '{"t": 1.0, "kind": "stopping", "step": 3, "message": "m", "rank": 0, "node": "a"}\n'
    follower, opened = Follower(run_dir), own_files.open_to_read

    def refused(run_dir, name):
        if name.endswith("rank-0.jsonl"):
            raise PermissionError(13, "Permission denied")
        return opened(run_dir, name)

    monkeypatch.setattr(own_files, "open_to_read", refused)
    for rank in (0, 1):
        (run_dir / f"ranks/rank-{rank}.jsonl").write_text(line)
    assert sorted(event["kind"] for event in follower.read()) == ["stopping", "unread"]
    assert follower.read() == []
