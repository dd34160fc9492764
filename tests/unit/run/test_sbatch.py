"""The batch script for Slurm, and `muster export`."""

import shlex

import pytest

from deploy.commands import main
from deploy.core.errors import UsageError
from deploy.job.load import read_text
from deploy.job.script import split_words
from deploy.run import sbatch_options
from deploy.run.sbatch import SlurmJob, batch_script

JOB = SlurmJob("train", 2, ("muster", "agent", "--script=train.py --name 'a b'"))


def test_slurm_signals_the_script_before_the_time_limit_and_output_is_appended():
    lines = batch_script(JOB).splitlines()
    assert {"#SBATCH --signal=B:TERM@90", "#SBATCH --open-mode=append", "#SBATCH --ntasks-per-node=1"} <= set(lines)
    options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert options == list(range(1, 1 + len(options)))  # sbatch stops reading options at the first command


@pytest.mark.parametrize("limit", ["-t 1", "-t1", "--time=1:30", "--time 0:01:29", "--time=0-0:1", "-t 1 --time-min=1"])
def test_a_time_limit_shorter_than_the_stop_before_it_is_refused(limit):
    with pytest.raises(UsageError, match="asks a job to stop 90 s before its limit"):
        batch_script(SlurmJob("t", 1, ("a",), options=("-p", "a100", *limit.split())))


@pytest.mark.parametrize(
    "limit", ["-t 2", "-t 0", "--time=UNLIMITED", "--time=1:31", "--time=1-0", "--time-min=1", "-t 9 -p 1"]
)
def test_a_longer_time_limit_is_left_to_slurm(limit):
    assert f"#SBATCH {limit.split(' -p')[0]}" in batch_script(SlurmJob("t", 1, ("a",), options=tuple(limit.split())))


def test_a_longer_grace_needs_a_longer_time_limit():
    job = SlurmJob("t", 1, ("a",), {"MUSTER_GRACE": "1800"}, ("--time=0:30:00",))
    with pytest.raises(UsageError, match="asks a job to stop 1860 s before its limit"):
        batch_script(job)


def test_the_users_options_come_last_and_win():
    options = batch_script(SlurmJob("t", 1, ("a",), options=("--no-requeue",))).splitlines()
    assert options.index("#SBATCH --no-requeue") > options.index("#SBATCH --requeue")


def test_a_value_is_on_the_line_of_its_option_however_it_was_typed():
    words = shlex.split("-p a100 --time 4:00:00 --exclusive --mem=4g -c8 --comment 'a b'")
    options = batch_script(SlurmJob("t", 1, ("a",), options=tuple(words))).splitlines()
    wanted = ["-p a100", "--time 4:00:00", "--exclusive", "--mem=4g", "-c8", "--comment 'a b'"]
    assert [line.removeprefix("#SBATCH ") for line in options if line.startswith("#SBATCH")][-6:] == wanted


@pytest.mark.parametrize("words", ["a100", "-p a100 b", "--mem=4g b", "--exclusive user", "-pa100 b"])
def test_a_word_that_belongs_to_no_option_is_refused_by_name(words):
    stray = words.split()[-1]
    with pytest.raises(UsageError, match=f"--slurm {stray}: this word belongs to no option"):
        sbatch_options.refuse("--slurm", words.split(), 0)


@pytest.mark.parametrize("option", ["--nodes=2", "-N 2", "--ntasks-per-node=8", "--signal=TERM@9", "--requeue", "-o x"])
def test_an_option_that_the_batch_script_sets_itself_is_refused_with_what_to_do(option):
    name = option.partition("=")[0].split()[0]
    with pytest.raises(UsageError, match=f"--slurm {name}: a Muster run does not allow this") as refused:
        sbatch_options.refuse("--slurm", ["--mem=4g", *option.split()], 0)
    assert refused.value.hint


def test_gpus_are_counted_in_one_place_and_a_requeue_may_be_taken_away():
    with pytest.raises(UsageError, match="--gpus-per-node"):
        sbatch_options.refuse("--slurm", ["--gpus-per-node=8"], 8)
    sbatch_options.refuse("--slurm", ["--gpus-per-node=8", "--no-requeue"], 0)


def test_an_unclosed_quote_is_refused():
    with pytest.raises(UsageError, match="--slurm -p 'a"):
        split_words("--slurm", "-p 'a")


def test_a_job_that_asks_for_no_cpus_gets_a_note_in_its_file_and_on_the_terminal():
    for options in ((), ("--mem=4g",)):
        assert "--cpus-per-task=N" in batch_script(SlurmJob("t", 1, ("a",), options=options))
        assert "add --cpus-per-task=N to --slurm" in sbatch_options.note_of_cpus("--slurm", options)
    for options in (("-c", "8"), ("--cpus-per-task=8",), ("--cpus-per-gpu", "8"), ("--exclusive",)):
        assert "--cpus-per-task=N" not in batch_script(SlurmJob("t", 1, ("a",), options=options))
        assert not sbatch_options.note_of_cpus("--slurm", options)


def exported(monkeypatch, capsys, **options):
    """The exit code of `muster export` with these options, its standard output and its messages."""
    monkeypatch.setattr("sys.argv", ["fab", "export"])
    code = main.run(["export", *(f"--{name}={value}" for name, value in options.items())])
    return code, *capsys.readouterr()


def test_a_job_of_musters_own_trainer_is_named_after_it(monkeypatch, capsys):
    code, text, note = exported(monkeypatch, capsys, nodes="2", args="--recipe text")
    assert code == 0
    assert "#SBATCH --job-name=muster-trainer\n" in text
    assert "--cpus-per-task=N" in note


@pytest.mark.parametrize(
    "options", [{"script": "trian.py"}, {"each": "trian.py --rank 0"}, {"script": "bash trian.sh"}]
)
def test_a_script_that_the_jobs_folder_lacks_is_refused(monkeypatch, capsys, tmp_path, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    code, text, message = exported(monkeypatch, capsys, **options)
    assert (code, text) == (2, "")
    assert "no such file" in message
    assert ("did you mean train.py?" in message) == (options != {"script": "bash trian.sh"})


def test_a_job_with_chdir_may_have_its_script_in_that_folder(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert exported(monkeypatch, capsys, script="train.py", slurm="--chdir /scratch -c 8")[0] == 0


@pytest.mark.parametrize("container", ["", "pyxis", "apptainer"])
def test_the_command_is_quoted_completely_with_and_without_a_container(container):
    job = SlurmJob("t", 1, JOB.agent, container=container, image="a b.sif" * bool(container), mounts=("/d:/d",))
    words = shlex.split(next(line for line in batch_script(job).splitlines() if line.startswith("srun "))[:-1])
    assert words[-1] == JOB.agent[-1]
    assert not container or any("a b.sif" in word for word in words)
    assert not container or any("$PWD" in word for word in words)
    assert ("--nv" in words) == (container == "apptainer"), "the user's own --gres asks for GPUs as well"


def test_a_comment_cannot_become_a_command():
    assert "\nreboot" not in batch_script(SlurmJob("t", 1, ("a",), made_by="muster export 'a\nreboot'"))


@pytest.mark.parametrize("text", ["0", "-1", "x", "1e9", ""])
def test_an_invalid_number_of_nodes_is_refused(text):
    with pytest.raises(UsageError, match=f"--nodes {text}: not a number from 1"):
        read_text("nodes", text)
