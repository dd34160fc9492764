"""The options of `muster deploy --slurm`, and which run a command without hosts refers to."""

import shlex
from dataclasses import replace

import pytest

from deploy.commands import slurm, where
from deploy.core.errors import UsageError
from deploy.job.load import gpus_of_each_node
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.run.files import folders, record
from deploy.slurm import plan, recorded_run

GIVEN = Options(slurm="me@login:22", nodes="2", sbatch="--partition=a --time=1:00:00", setup=("module load cuda",))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    return tmp_path


def deployed(name, login="me@login:22", shared="/home/me", again="deploy --slurm me@login:22"):
    folder = folders.RUNS / name
    folder.mkdir(parents=True)
    (host,) = recorded_run.hosts_of_flag(login)
    asked = plan.JobRequest(Options(slurm=login), 1, (), again=again, words=("train.py",), script=True)
    recorded_run.open_start(folder, asked, host, shared)
    return folder


def test_the_command_to_deploy_again_is_quoted_for_a_shell():
    words = shlex.split(slurm.again(replace(GIVEN, script="train.py --name 'a b'", separate=True)))
    assert words[:3] == ["deploy", "--slurm", "me@login:22"]
    assert "--sbatch=--partition=a --time=1:00:00" in words
    assert words[words.index("--setup") + 1] == "module load cuda"
    assert words[words.index("--script") + 1] == "train.py --name 'a b'"


def test_a_resume_repeats_the_last_options_and_typed_ones_take_precedence():
    first = replace(GIVEN, script="train.py --name 'a b'", separate=True, env=("A=1", "B=--x y"))
    folder = deployed("r1", again=slurm.again(first))
    given, found = slurm.continued(Options(slurm="other:22", nodes="4", resume="latest"))
    assert found.run_dir == folder
    assert replace(first, slurm="other:22", nodes="4", shared="/home/me", resume="latest") == given
    again, _ = slurm.continued(Options(slurm="other:22", args="--steps 9", resume="r1"))
    assert (again.script, again.args) == ("", "--steps 9")


def test_a_resume_of_an_unknown_run_is_refused():
    for given, words in (
        ({"resume": "latest"}, "no run that can be resumed"),
        ({"resume": "r9"}, "no such run"),
    ):
        with pytest.raises(UsageError, match=words):
            slurm.continued(Options(slurm="login", **given))


def test_a_run_is_known_by_its_id_with_login_node_folder_and_job():
    recorded_run.update_record(deployed("r1"), job="12")
    found = where.on_slurm(Options(run="r1"))
    assert (found.login.destination, found.shared, found.number, found.script) == (
        "me@login:22",
        "/home/me",
        "12",
        True,
    )
    assert where.on_slurm(Options(run="latest")).run == "r1"
    assert where.on_slurm(Options("gpu-a", run="r1")) is None
    assert where.on_slurm(Options(run="r2")) is None


def test_a_record_that_somebody_else_wrote_names_no_login_node():
    folder = deployed("r1")
    stored = record.read_json(folder / "record.json")
    record.write_json(folder / "record.json", {**stored, "hosts": ["evil.example"]})
    assert where.on_slurm(Options(run="r1")) is None


def test_include_is_read_as_for_hosts_and_needs_a_folder(here, monkeypatch):
    asked = []
    monkeypatch.setattr(slurm.slurm_deploy, "deploy", lambda request, *_: asked.append(request) or 0)
    for name in ("train.py", "x.bin"):
        (here / name).touch()
    slurm.deploy(replace(GIVEN, script="train.py", include=("./a/../x.bin",)), Console())
    assert asked[0].choice.include == {"x.bin"}
    for given, words in (
        (replace(GIVEN, script="train.py", include=("../x.bin",)), "not a path in the folder"),
        (replace(GIVEN, args="--steps 1", include=("x.bin",)), "--include: no folder is sent"),
    ):
        with pytest.raises(UsageError, match=words):
            slurm.deploy(given, Console())


@pytest.mark.parametrize(
    ("typed", "started"),
    [
        ("python {here}/train.py --lr 3", "python train.py --lr 3"),
        ("torchrun --nproc-per-node 2 {here}/train.py", "train.py"),
        ("accelerate launch {here}/train.py", "--per-node accelerate launch train.py"),
        ("torchrun --no-python {here}/run.sh", "--no-python ./run.sh"),
    ],
)
def test_the_agents_of_a_job_find_the_script_in_the_folder_that_was_sent(here, monkeypatch, typed, started):
    """The folder is elsewhere on the cluster: a script typed with its path here was not found there."""
    asked = []
    monkeypatch.setattr(slurm.slurm_deploy, "deploy", lambda request, *_: asked.append(request) or 0)
    for name in ("train.py", "run.sh"):
        (here / name).touch()
    slurm.deploy(replace(GIVEN, script=typed.format(here=here)), Console())
    assert asked[0].agent == ("muster", "agent", f"--script={started}")
    assert asked[0].variables.get("PET_NPROC_PER_NODE") == ("2" if "2" in typed else None)


@pytest.mark.parametrize("text", ["0,3", "-1", "0", "two"])
def test_gpus_of_a_job_are_a_number(text):
    with pytest.raises(UsageError, match="--gpus"):
        gpus_of_each_node(Options(gpus=text))
