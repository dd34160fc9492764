"""Which run --resume means: one of this script and folder, not of another script; or none, with the reason."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.core.errors import USAGE, DeployError, UsageError
from deploy.job.script import read
from deploy.run.files import folders, record, resumable
from deploy.run.files.resumable import WantedRun, choose

NOON = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project, as the current folder. A temporary state folder keeps tests from sealing with the user's own key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setattr(folders, "RUNS", project / "runs")
    return project


def trained(
    command: str, minute: int = 0, *, folder: str = "", backend: str = "processes", **more: object
) -> tuple[Path, str]:
    """Record a run with this command; return its folder and its id."""
    read_command = read(command, None)
    run_dir = record.make_folder(Path("runs").absolute(), ("--recipe", "x"), NOON + 60 * minute)
    choice = record.Choice(None, read_command.words, script=True, bare=read_command.bare)
    record.open_start(run_dir, choice, backend, "why", ["master"], NOON + 60 * minute)
    place = {"sent_from": resumable.sent_from(folder, run_dir.parent), "script": True}
    record.write_record(run_dir, {**record.facts(run_dir), **place, **more})
    return run_dir, run_dir.name


def of_trainer(*arguments: str, minute: int = 0, checkpoint: bool = True, workers: int = 2) -> Path:
    run_dir = record.make_folder(Path("runs").absolute(), arguments, NOON + 60 * minute)
    names = ["master", *(f"worker-{number}" for number in range(1, workers + 1))]
    record.open_start(run_dir, record.Choice(None, arguments), "processes", "why", names, NOON + 60 * minute)
    if checkpoint:
        (run_dir / "checkpoints/step-00000200").mkdir(parents=True)
        (run_dir / "checkpoints/step-00000200/manifest.json").write_text("{}")
    return run_dir


def asked(command: str, folder: str = "") -> WantedRun:
    return WantedRun(read(command, None).words, folder)


def resumed(wanted: str, names: WantedRun | None = None) -> record.Choice:
    return choose(wanted, names or WantedRun())


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        ("train.py --lr 1", "train.py"),
        ("python train.py", "torchrun --nproc-per-node 2 ./train.py --lr 2"),
        ("python -m pkg.train", "-m pkg.train --fast"),
        ("bash run.sh 1", "bash run.sh 2"),
        ("accelerate launch train.py", "accelerate launch --mixed_precision bf16 train.py"),
        ("sub/train.py", "./sub/train.py"),
        ("llamafactory-cli train x.yaml", "llamafactory-cli train y.yaml"),
    ],
)
def test_latest_is_the_newest_run_of_this_script_whatever_its_options_and_whatever_ran_later(typed, again):
    wanted, _ = trained(typed, 1)
    trained("other.py", 2)
    trained("sub/other/train.py", 3)
    of_trainer(minute=4)
    choice = resumed("latest", asked(again))
    assert (choice.run_dir, choice.arguments) == (wanted, read(again, None).words)


@pytest.mark.parametrize("command", ["train.py", "bash -c 'python train.py'", "-m train"])
def test_latest_without_a_run_of_this_script_is_refused_and_names_the_runs_of_others(command):
    _, other = trained("other.py", 1)
    with pytest.raises(UsageError) as refused:
        resumed("latest", asked(command))
    assert refused.value.code == USAGE
    assert f"{other} (other.py)" in refused.value.hint


def test_a_script_of_the_same_name_in_another_folder_is_a_different_script(home):
    here, _ = trained("train.py", 1)
    there, _ = trained("train.py", 2, folder="sub")
    assert resumed("latest", asked("train.py")).run_dir == here
    assert resumed("latest", asked("train.py", "sub")).run_dir == there
    assert resumed("latest", asked("train.py", str(home / "sub"))).run_dir == there
    with pytest.raises(UsageError):
        resumed("latest", asked("train.py", "elsewhere"))


def test_a_run_can_be_resumed_after_its_project_was_moved(home, monkeypatch):
    _, run = trained("train.py", 1)
    home.rename(home.with_name("renamed"))
    monkeypatch.chdir(home.with_name("renamed"))
    monkeypatch.setattr(folders, "RUNS", home.with_name("renamed") / "runs")
    found = resumed("latest", asked("train.py")).run_dir
    assert found is not None
    assert found.name == run


def test_without_a_script_latest_is_the_newest_run_with_its_own_script_and_folder():
    trained("train.py", 1)
    wanted, _ = trained("python other.py --lr 1", 2, folder="sub")
    choice = resumed("latest")
    assert (choice.run_dir, choice.arguments, choice.script, choice.bare) == (
        wanted,
        ("other.py", "--lr", "1"),
        True,
        True,
    )
    assert resumable.folder_of(wanted) == "sub"
    assert resumable.command_of(wanted) == "python other.py --lr 1"


def test_runs_on_hosts_or_slurm_are_not_resumed_here_and_the_right_command_is_named():
    _, on_hosts = trained("train.py", 1, backend=record.HOSTS, hosts=["a", "b"])
    _, on_slurm = trained("train.py", 2, backend=record.SLURM, hosts=["login"])
    with pytest.raises(UsageError):
        resumed("latest", asked("train.py"))
    for run, command in ((on_hosts, "deploy --hosts a,b"), (on_slurm, "deploy --slurm login")):
        with pytest.raises(UsageError) as refused:
            resumed(run_path(run), asked("train.py"))
        assert refused.value.hint.endswith(f"{command} --resume {run}")


def run_path(run: str) -> str:
    return str(Path("runs").absolute() / run)


def test_an_unknown_id_is_refused_with_similar_ids_or_else_the_newest():
    _, run = trained("train.py", 1)
    for wrong in (run[:-1], "2026-nope"):
        with pytest.raises(UsageError) as refused:
            resumed(wrong, asked("train.py"))
        assert "no such run" in refused.value.message
        assert f"{run} (train.py)" in refused.value.hint
    assert "did you mean" not in refused.value.hint
    with pytest.raises(UsageError) as refused:
        resumed(run[:10], asked("train.py"))
    named, asks, _ = refused.value.hint.partition("?")
    assert asks
    assert {*re.findall(r"\d{4}-\d\d-\d\d", named)} == {run[:10]}, "the runs of a day"


def test_a_run_resumed_by_its_id_may_use_another_script_and_the_user_is_told():
    run_dir, run = trained("train.py", 1)
    assert resumed(str(run_dir), asked("other.py")).run_dir == run_dir
    assert (
        resumable.describe_other_script(run_dir, ("other.py",), "")
        == f"{run} ran train.py; other.py continues in its files"
    )
    assert resumable.describe_other_script(run_dir, ("train.py", "--lr", "2"), "") == ""
    assert "of this folder" in resumable.describe_other_script(run_dir, ("train.py",), "sub")


def test_a_run_name_taken_by_another_script_is_not_resumed():
    run_dir, _ = trained("train.py", 1)
    resumable.refuse_other(run_dir, ("train.py", "--epochs", "9"), "")
    with pytest.raises(UsageError, match=r"exists already: .* ran train\.py"):
        resumable.refuse_other(run_dir, ("other.py",), "")


def test_a_record_without_a_folder_is_resumed_by_its_script():
    run_dir, _ = trained("train.py", 1)
    known = {name: value for name, value in record.facts(run_dir).items() if name != "sent_from"}
    record.write_record(run_dir, known)
    assert resumed("latest", asked("train.py", "sub")).run_dir == run_dir
    assert resumable.folder_of(run_dir) == ""


def test_a_script_does_not_resume_from_a_folder_that_is_not_a_run(tmp_path):
    with pytest.raises(UsageError, match="not a run of this folder"):
        resumed(str(tmp_path), asked("train.py"))


def test_latest_of_the_trainer_is_the_newest_with_a_checkpoint_of_the_named_recipe():
    of_trainer("--steps", "9", minute=1)
    text = of_trainer("--recipe", "text", minute=2)
    wanted = of_trainer("--steps", "100", minute=3, workers=3)
    of_trainer(minute=4, checkpoint=False)
    trained("train.py", 5)
    choice = resumed("latest", WantedRun(arguments=("--steps", "200")))
    assert choice == replace(choice, run_dir=wanted, arguments=("--steps", "100", "--steps", "200"), workers=3, start=2)
    assert resumed("latest", WantedRun(arguments=("--recipe=text",))).run_dir == text


def test_resume_by_the_path_of_a_run_folder_continues_in_it():
    wanted = of_trainer()
    assert resumed(str(wanted)).run_dir == wanted
    assert resumed(str(wanted.parent / "latest")).run_dir == wanted


def test_resume_of_the_trainer_from_another_path_is_a_new_run_from_that_checkpoint(tmp_path):
    ours = of_trainer()
    for foreign in (ours / "checkpoints/step-00000200", tmp_path):
        choice = resumed(str(foreign), WantedRun(arguments=("--lr", "1")))
        assert choice.run_dir is None
        assert choice.arguments == ("--lr", "1", "--resume", str(foreign))


def test_a_run_that_another_machine_recorded_is_refused_for_that_reason():
    """A copied run had been refused because it had no checkpoint, or no script, which was not so."""
    run_dir, _ = trained("train.py --lr 3")
    (run_dir / "record.json").write_text((run_dir / "record.json").read_text().replace("--lr", "--rl"))
    for wanted in (WantedRun(), asked("train.py")):
        with pytest.raises(UsageError, match="did not record its arguments") as refused:
            choose(str(run_dir), wanted)
        assert refused.value.hint == f"start its script yourself; what it wrote is in {run_dir / 'work'}"


def test_resume_of_nothing_is_wrong_usage_with_a_hint(tmp_path):
    bare = of_trainer(checkpoint=False)
    for wanted in ("latest", str(tmp_path / "nowhere"), str(bare)):
        with pytest.raises(DeployError, match="--resume ") as caught:
            resumed(wanted)
        assert caught.value.code == USAGE
        assert caught.value.hint
