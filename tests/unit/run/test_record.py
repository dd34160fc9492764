"""Run folders: each is created once, found again by RESUME, listed, and closed."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.run.files import code, folders, host_copies, locks, own_files, record, recorded_ends, resumable, timeline
from deploy.run.outcome import Result
from deploy.run.progress import State
from deploy.run.state.story import Happening, Story

NOON = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


def make_run(
    runs: Path, arguments: tuple[str, ...] = (), checkpoint: bool = False, t: float = NOON, workers: int = 2
) -> Path:
    run_dir = record.make_folder(runs, arguments, t)
    names = ["master", *(f"worker-{n + 1}" for n in range(workers))]
    record.open_start(run_dir, record.Choice(None, arguments), "processes", "why", names, t)
    if checkpoint:
        step = run_dir / "checkpoints/step-00000200"
        step.mkdir(parents=True)
        (step / "manifest.json").write_text("{}")
    return run_dir


def test_two_runs_of_one_minute_never_share_a_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        folders = list(pool.map(lambda _: record.make_folder(tmp_path, ["--recipe", "text"], NOON), range(16)))
    assert len(set(folders)) == 16
    assert {path.name for path in folders} >= {
        "2026-11-21-1200-text",
        "2026-11-21-1200-text-2",
        "2026-11-21-1200-text-16",
    }


@pytest.mark.holds("runs-closed")
def test_a_run_is_for_its_owner_alone(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir(mode=0o755)
    run_dir = make_run(runs)
    assert [path.stat().st_mode & 0o777 for path in (runs, run_dir)] == [0o700, 0o700]
    run_dir.chmod(0o755)  # as an older version left it
    record.open_start(run_dir, record.Choice(run_dir, ()), "processes", "why", ["master"], NOON)
    assert run_dir.stat().st_mode & 0o777 == 0o700


@pytest.mark.holds("runs-closed")
def test_a_runs_folder_is_closed_to_others_and_the_target_of_a_link_is_left_as_it_is(tmp_path: Path) -> None:
    made, found, link, elsewhere = (tmp_path / name for name in ("made", "found", "link", "elsewhere"))
    found.mkdir(0o755)
    elsewhere.mkdir(0o755)
    link.symlink_to(elsewhere)
    for runs in (made, found, link):
        record.make_runs(runs)
    assert [path.stat().st_mode & 0o777 for path in (made, found, elsewhere)] == [0o700, 0o700, 0o755]


def test_a_run_name_that_another_checkout_uses_is_skipped(tmp_path: Path) -> None:
    folder = record.make_folder(tmp_path, (), NOON, taken={"2026-11-21-1200-digits"})
    assert folder.name == "2026-11-21-1200-digits-2"


def test_latest_points_to_the_newest_start(tmp_path: Path) -> None:
    first = make_run(tmp_path)
    assert (tmp_path / "latest").resolve() == first
    second = make_run(tmp_path)
    assert os.readlink(tmp_path / "latest") == second.name


@pytest.mark.parametrize("key", ["backend", "ground"])
def test_the_newest_run_of_a_backend_is_found_in_records_of_every_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    for name, backend, started in (("old", "hosts", NOON), ("new", "hosts", NOON + 9), ("here", "docker", NOON + 99)):
        (tmp_path / name).mkdir()
        written = {"id": name, key: backend, "starts": [{"t": started}]}
        record.write_record(tmp_path / name, written)
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    assert record.newest(record.HOSTS) == tmp_path / "new"


def test_a_resume_keeps_the_record_and_removes_old_verdicts(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, checkpoint=True)
    recorded_ends.close(run_dir, Result("failed"), State(("master",)), 1.0)
    (run_dir / "outcome/master-0.json").write_text("{}")
    (run_dir / "nodes/worker-9.json").write_text("{}")
    record.open_start(run_dir, record.Choice(run_dir, ()), "docker", "Docker", ["master"], NOON + 500)
    state = json.loads((run_dir / "record.json").read_text())
    assert state["started"] == NOON
    assert [start["backend"] for start in state["starts"]] == ["processes", "docker"]
    assert not list(run_dir.glob("outcome/*")) + list(run_dir.glob("nodes/*"))
    assert not (run_dir / "outcome.json").exists()


def test_an_undone_start_leaves_no_trace(tmp_path: Path) -> None:
    first = make_run(tmp_path, checkpoint=True)
    recorded_ends.close(first, Result("done", step=9), State(("master",)), 1.0)
    for name in ("nodes/master.json", "outcome/master-0.json"):
        (first / name).write_text(name)
    (tmp_path / "id_ed25519").write_text("mine")
    (first / "nodes/planted.json").symlink_to(tmp_path / "id_ed25519")
    files = {path.name: path.read_bytes() for path in first.glob("**/*.json") if path.name != "planted.json"}
    state = record.open_start(first, record.Choice(first, ("--bogus",), start=2), "docker", "", ["master"], NOON + 60)
    record.undo_start(first, state)
    assert {path.name: path.read_bytes() for path in first.glob("**/*.json")} == files
    second = record.make_folder(tmp_path, (), NOON + 120)
    record.undo_start(second, record.open_start(second, record.Choice(None, ()), "docker", "", ["master"], NOON + 120))
    assert not second.exists()
    assert (tmp_path / "latest").resolve() == first


def test_a_story_belongs_to_its_start_whatever_the_clocks_of_the_hosts_say(tmp_path: Path) -> None:
    """Once, a second start's story lacked a host ten minutes behind, and had a fast host's lines of the first start."""
    run_dir = make_run(tmp_path, t=1000.0)
    for start, ts in enumerate(((990.0, 5000.0), (1400.0, 2001.0))):
        if start:
            record.open_start(run_dir, record.Choice(run_dir, ()), "processes", "why", ["master"], 2000.0)
        story = Story()
        for t in ts:
            story.tell(Happening(t, f"start {start}", True))
        timeline.keep(run_dir, story)
        assert [(line.t, line.text) for line in record.story_of(run_dir)] == [(t, f"start {start}") for t in ts]


def test_a_full_disk_stops_no_follower_and_leaves_no_torn_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story, opened = Story(), own_files.open_to_append

    class Small:
        """A file on a disk that has only `room` bytes left."""

        room = 150

        def __init__(self, run_dir: Path, name: str) -> None:
            self._file = opened(run_dir, name)

        def __enter__(self) -> Small:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, data: bytes) -> int:
            if not Small.room:
                raise OSError(28, "No space left on device")
            size = self._file.write(data[: Small.room])
            Small.room -= size
            return size

        seek = property(lambda self: self._file.seek)
        truncate = property(lambda self: self._file.truncate)

    monkeypatch.setattr(own_files, "open_to_append", Small)
    for number in range(3):
        story.tell(Happening(float(number), f"line {number}"))
        timeline.keep(tmp_path, story)
    Small.room = 1000
    timeline.keep(tmp_path, story)
    assert (tmp_path / "timeline.jsonl").read_text().count("\n") == 3
    assert [line.text for line in record.story_of(tmp_path)] == ["line 0", "line 1", "line 2"]


def test_the_outcome_records_what_was_reached(tmp_path: Path) -> None:
    run_dir, state = make_run(tmp_path), State(("master",))
    state.apply({"kind": "evaluated", "t": 1, "step": 600, "samples": 360, "values": {"accuracy": 0.989}})
    for rate in (10.0, 5000.0, 5400.0):
        state.apply({"kind": "metrics", "t": 1, "step": 1, "loss": 1.0, "samples_per_s": rate})
    recorded_ends.close(run_dir, Result("done", step=600), state, 21.44)
    outcome = json.loads((run_dir / "outcome.json").read_text())
    assert (outcome["verdict"], outcome["code"], outcome["accuracy"]) == ("done", 0, 0.989)
    assert (outcome["samples_per_s"], outcome["seconds"]) == (5000.0, 21.4)
    assert "step 600: held-out accuracy 98.9 %" in (run_dir / "timeline.jsonl").read_text()


def test_the_listing_distinguishes_finished_running_and_abandoned_runs(tmp_path: Path) -> None:
    finished, going, dead = (make_run(tmp_path, t=NOON + 60 * n, checkpoint=True) for n in range(3))
    recorded_ends.close(finished, Result("done", step=600), State(("master",)), 9.0)
    rows = recorded_ends.listing(tmp_path, {going.name})
    assert [(row.id, row.verdict, row.step) for row in rows] == [
        (finished.name, "done", 600),
        (going.name, "running", 200),
        (dead.name, "unfinished", 200),
    ]
    assert [row.bytes for row in rows] == [record.contents(run_dir)[1] for run_dir in (finished, going, dead)]


def test_the_size_of_a_folder_counts_its_files_and_no_link_targets(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(bytes(5000))
    (tmp_path / "run/sub").mkdir(parents=True)
    (tmp_path / "run/sub/file").write_bytes(bytes(30))
    (tmp_path / "run/link").symlink_to(tmp_path / "elsewhere")
    assert record.contents(tmp_path / "run") == (2, 30 + len(str(tmp_path / "elsewhere")))


def test_the_separate_folders_of_hosts_are_real_folders_inside_the_run(tmp_path: Path) -> None:
    for name in ("run/hosts/b", "run/hosts/a", "run/hosts/.coming", "elsewhere/c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/hosts/file").touch()
    (tmp_path / "run/hosts/link").symlink_to(tmp_path / "elsewhere")
    run_dir = tmp_path / "run"
    assert host_copies.folders(run_dir) == [run_dir, run_dir / "hosts/a", run_dir / "hosts/b"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/hosts").symlink_to(tmp_path / "elsewhere")
    assert host_copies.folders(tmp_path / "other") == [tmp_path / "other"]


def test_a_run_is_found_by_latest_id_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = make_run(tmp_path)
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    assert {record.find(name) for name in ("latest", run_dir.name, str(run_dir))} == {run_dir}
    with pytest.raises(DeployError, match="--run nothing"):
        record.find("nothing")


def test_a_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    held = locks.hold_run(tmp_path)
    assert held is not None
    assert locks.hold_run(tmp_path) is None
    held.release()
    assert not list(tmp_path.iterdir())
    again = locks.hold_run(tmp_path)
    assert again is not None
    held.release()
    assert locks.hold_run(tmp_path) is None, "a second release of the old holder must not free the new one's"
    again.release()


def test_git_ignores_a_runs_folder_only_if_muster_created_it(tmp_path):
    (tmp_path / "new").mkdir()
    record.make_folder(tmp_path / "new" / "runs", [], 0)
    assert (tmp_path / "new/runs/.gitignore").read_text().endswith("\n*\n")
    (tmp_path / "runs").mkdir()
    record.make_folder(tmp_path / "runs", [], 0)
    assert not (tmp_path / "runs/.gitignore").exists()


def test_a_path_that_blocks_runs_or_runs_latest_is_named_with_what_to_type(tmp_path):
    (tmp_path / "runs/latest").mkdir(parents=True)
    with pytest.raises(DeployError, match="runs/latest") as refused:
        record.point_latest(tmp_path / "runs/a")
    assert refused.value.hint == f"mv {tmp_path}/runs/latest {tmp_path}/runs/latest-here"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["latest"]
    (tmp_path / "file").write_text("")
    (tmp_path / "gone").symlink_to("nowhere")
    for place in ("file", "gone"):
        with pytest.raises(DeployError, match=f"{place}/.*: cannot be made"):
            record.make_folder(tmp_path / place, [], 0)


def test_a_pipe_named_gitignore_does_not_block_an_undo(tmp_path):
    run_dir = tmp_path / "runs/a"
    run_dir.mkdir(parents=True)
    os.mkfifo(tmp_path / "runs/.gitignore")
    record.undo_start(run_dir, {})
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".gitignore"]


def test_a_folder_with_an_invalid_run_name_is_neither_listed_nor_put_into_a_command(tmp_path, monkeypatch):
    """A folder name from a cloned repository once added a line to the listing, and got into the command of a hint."""
    runs = tmp_path / "runs"
    monkeypatch.setattr(folders, "RUNS", runs)
    for name in ("first", "first;touch owned", "first\nsecond   done", "-rf", "\x1b[2J", "latest", ".first"):
        (runs / name / "nodes").mkdir(parents=True)
    assert [run.id for run in recorded_ends.listing(runs, ())] == ["first"]
    with pytest.raises(UsageError) as refused:
        resumable.refuse_unknown("firs")
    assert refused.value.hint.startswith("did you mean --resume first? ")


def test_folders_of_other_tools_in_runs_are_not_runs(tmp_path):
    """TensorBoard and ultralytics write to runs/ as well: their folders were once listed as unfinished runs."""
    runs = tmp_path / "runs"
    (runs / "Nov30_host").mkdir(parents=True)
    (runs / "Nov30_host/events.out.tfevents.1").touch()
    (runs / "detect/train/weights").mkdir(parents=True)
    record.write_record(record.make_folder(runs, (), NOON), {"id": "x"})
    assert [run.id.endswith("-digits") for run in recorded_ends.listing(runs, ())] == [True]


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone makes a folder that another user may not enter")
def test_runs_that_the_user_may_not_enter_do_not_hide_the_users_own() -> None:
    """After one `sudo muster up`, or a script that closed a folder, every command once ended with a traceback."""
    with tempfile.TemporaryDirectory() as place:
        runs = Path(place) / "runs"
        own, closed = make_run(runs, ("--recipe", "text")), make_run(runs) / "record.json"
        (own / "work").mkdir()
        (own / "work/x").write_text("12345")
        for path in (Path(place), runs, own, own / "work", own / "record.json"):
            os.chown(path, 65534, 65534)
        (own / "work").chmod(0o444)
        os.setresuid(65534, 65534, 0)
        try:
            with pytest.raises(PermissionError):
                closed.stat()
            assert [facts.id for facts in recorded_ends.listing(runs, ())] == [own.name]
            runs.chmod(0o000)
            with pytest.raises(DeployError, match="you may not read this folder"):
                recorded_ends.listing(runs, ())
        finally:
            os.setresuid(0, 0, 0)


@pytest.mark.parametrize("name", ["code.diff", "code.json"])
def test_a_disk_that_fills_once_the_nodes_run_ends_no_start_and_leaves_no_older_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Once, the command ended while its nodes ran, and the new start's page showed the code of the previous start."""
    run_dir, write = make_run(tmp_path), own_files.write
    code.write(run_dir, code.Code("before", diff="-x\n"))
    assert code.read(run_dir).commit == "before"

    def fill(folder: Path, path: str, data: bytes) -> None:
        if path == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(folder, path, data)

    monkeypatch.setattr(own_files, "write", fill)
    code.write(run_dir, code.Code("after", diff="+x\n"))
    assert code.read(run_dir) is None


@pytest.mark.parametrize("step", ["write_record", "point_latest"])
def test_a_resume_that_cannot_be_recorded_leaves_the_run_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """With a full disk, or Ctrl-C at that moment, the earlier start once lost its outcome and counted as unfinished."""
    run_dir = make_run(tmp_path)
    record.write_json(run_dir / "outcome.json", {"verdict": "done"})
    stood = {path.name: path.read_bytes() for path in run_dir.glob("*.json")}

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(record, step, fail)
    with pytest.raises(DeployError, match=r"cannot replace record\.json: No space left"):
        record.open_start(run_dir, record.Choice(run_dir, ()), "processes", "why", ["master"], NOON)
    assert {path.name: path.read_bytes() for path in run_dir.glob("*.json")} == stood


def test_a_run_is_found_by_its_name_despite_a_folder_of_that_name(tmp_path: Path, monkeypatch) -> None:
    """`muster report baseline` once wrote its page into the project's folder `baseline`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    run_dir = make_run(tmp_path / "runs").rename(tmp_path / "runs/baseline")
    for name in ("baseline", "other"):
        (tmp_path / name).mkdir()
    assert record.find("baseline") == run_dir
    assert record.find("./baseline") == tmp_path / "baseline"
    assert record.find("other") == tmp_path / "other"
