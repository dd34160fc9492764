"""Which run a resume on real hosts means, where it is refused, and the command that the user is told."""

import dataclasses

import pytest

from deploy.core.errors import DeployError
from deploy.core.program import FAB
from deploy.hosts import container, resume
from deploy.hosts.options import Options
from deploy.hosts.resume import (
    Checkpoint,
    arguments_of,
    pick,
    resume_fields,
    with_host_paths,
    with_resume_hint,
)
from deploy.report.page.data import Run
from deploy.report.page.head import onward
from deploy.run import record
from deploy.run.causes import Cause
from deploy.run.outcome import Result
from trainer import config

CHECKPOINTS = {"a": {"old": Checkpoint(900, 10), "new": Checkpoint(20, 50)}, "b": {"old": Checkpoint(40, 5)}}


def test_latest_is_the_run_whose_checkpoint_was_written_last():
    assert pick("latest", CHECKPOINTS, frozenset({"old", "new"})) == "new"
    assert pick("old", CHECKPOINTS, frozenset({"old", "new"})) == "old"


@pytest.mark.parametrize(
    ("asked", "checkpoints", "words"),
    [
        ("latest", {"a": {}}, "no run on these hosts"),
        ("fresh", CHECKPOINTS, "no checkpoint yet"),
        ("gone", CHECKPOINTS, "new, old"),
    ],
)
def test_a_run_without_a_checkpoint_is_refused(asked, checkpoints, words):
    with pytest.raises(DeployError, match=words):
        pick(asked, checkpoints, frozenset({"fresh"}))


def test_the_arguments_come_back_from_the_trainers_own_config(tmp_path):
    (tmp_path / "a.txt").write_text("to be or not to be")
    words = ["--recipe", "text", "--steps", "70", "--lr", "0.0003", "--compile", "--data", str(tmp_path)]
    asked = config.parse(words)
    assert config.parse(arguments_of(dataclasses.asdict(asked))) == asked


@pytest.mark.parametrize(
    ("options", "lost", "command"),
    [
        (Options(), [], "fab deploy --hosts a,b,c --resume r"),
        (Options(image="my:1", environment=("A=x y",)), [], "--resume r --image my:1 --env 'A=x y'"),
        (Options(mounts=("/a:/b", "/c:/d:ro")), [], "--resume r --mount /a:/b --mount /c:/d:ro"),
        (Options(cluster="lab.toml"), [], "fab deploy --cluster lab.toml --resume r"),
        (Options(), ["b"], "fab deploy --hosts a,c --resume r"),
        (Options(), ["a"], "fab deploy --hosts a,b,c --resume r"),
    ],
)
def test_the_hint_names_the_command_that_resumes_the_run(options, lost, command, tmp_path):
    run_dir = tmp_path / "r"
    run_dir.mkdir()
    record.write_record(run_dir, {"id": "r", "hosts": ["a", "b", "c"], "script": False, **resume_fields(options)})
    result = with_resume_hint(Result("stopped", hint="`fab deploy --resume r` goes on from here"), run_dir, True, lost)
    assert command in result.hint
    assert ("its checkpoints are on a" in result.hint) == ("a" in lost)
    assert "`fab deploy --resume r`" not in result.hint


def test_another_host_that_has_the_checkpoints_continues_without_the_first(tmp_path):
    run_dir = tmp_path / "r"
    run_dir.mkdir()
    record.write_record(run_dir, {"id": "r", "hosts": ["a", "b", "c"], "script": False, **resume_fields(Options())})
    result = with_resume_hint(Result("failed"), run_dir, True, ["a"], copied=True)
    assert "fab deploy --hosts b,c --resume r" in result.hint
    assert "when that host is back" in with_resume_hint(Result("failed"), run_dir, True, ["a", "b", "c"], True).hint


def test_the_hint_and_the_page_have_the_same_command_with_min_nodes_where_it_can_hold(tmp_path):
    run_dir = tmp_path / "r"
    run_dir.mkdir()
    fields = resume_fields(Options(min_nodes="2"))
    record.write_record(run_dir, {"id": "r", "hosts": ["a", "b", "c"], "script": True, **fields})
    for lost, command in (
        ((), "fab deploy --hosts a,b,c --resume r --min-nodes 2"),
        (("a",), "fab deploy --hosts a,b,c --resume r --min-nodes 2"),
        (("b",), "fab deploy --hosts a,c --resume r"),
    ):
        result = with_resume_hint(Result("failed"), run_dir, True, lost)
        assert result.hint.endswith(command)
        outcome = {"verdict": "failed", "kept": {"a": {}}, "hosts_left": list(result.hosts_left)}
        shown = Run(run_dir, {}, {}, {}, outcome, [], [], [], {}, {}, [], record.own(run_dir), script=True)
        assert onward(shown, "failed") == command


def test_a_host_whose_disk_is_full_gets_room_before_the_script_continues(tmp_path):
    run_dir = tmp_path / "r"
    run_dir.mkdir()
    record.write_record(run_dir, {"id": "r", "hosts": ["a", "b"], "script": True, **resume_fields(Options())})
    full = Result("failed", hint="logs/rank-1.log has all", node="b", rank=1, cause=Cause.DISK_FULL)
    hint = with_resume_hint(full, run_dir, True).hint
    assert hint.index("free room on b") < hint.index("--resume r")
    assert "free room" not in with_resume_hint(dataclasses.replace(full, cause=Cause.KILLED), run_dir, True).hint


def test_a_script_of_the_users_gets_no_such_hint(tmp_path):
    record.write_json(tmp_path / "record.json", {"hosts": ["a"], "script": True})
    assert with_resume_hint(Result("stopped"), tmp_path, True).hint == ""


def test_a_checkpoint_is_placed_on_the_first_host_and_a_log_on_its_ranks_own():
    hint = "the traceback is in /muster/run/logs/rank-1.log; last good checkpoint: /muster/run/checkpoints/step-9"
    command = with_host_paths(hint, "r", "a", "b")
    assert "b:~/.muster/runs/r/logs/rank-1.log" in command
    assert "a:~/.muster/runs/r/checkpoints/step-9" in command


def test_the_node_knows_the_whole_command_as_far_as_it_is_known_at_the_start():
    options = Options(hosts="gpu-a,gpu-b", folder="proj", script="train.py", restarts="3", on_end="sh end.sh")
    where, again = resume.known_ahead(options, options.load())
    command = container.resume_command("r1", where, again)
    assert command == (
        "fab deploy --hosts gpu-a,gpu-b --resume r1 --folder proj --restarts 3 --on-end 'sh end.sh'"
    ).replace("fab", FAB, 1)
    assert container.resume_command("r1", where, "--env 'A=1\n2'") == f"{FAB} deploy --resume r1"
