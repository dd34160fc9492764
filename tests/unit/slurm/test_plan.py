"""The plan of a deploy to Slurm, and what it refuses."""

import shlex
from dataclasses import replace

import pytest

from deploy.core.errors import UsageError
from deploy.core.names import RunId
from deploy.job.options import Options
from deploy.run.sbatch import batch_script
from deploy.slurm import plan

RUN = RunId("r1")
ASKED = plan.JobRequest(Options(slurm="login"), 2, ("muster", "agent", "--script=train.py"), {"A": "1"})


def asked(**more):
    """The same request, with more options typed."""
    return replace(ASKED, options=replace(ASKED.options, **more))


def test_a_dry_run_prints_what_would_be_submitted():
    shown = "\n".join(plan.shown(ASKED, RUN, "/scratch/u", "2 files"))
    assert batch_script(plan.job_of(ASKED, "/scratch/u", RUN)) in shown
    assert "sbatch --parsable /scratch/u/.muster/runs/r1/job.sbatch" in shown


def test_the_batch_script_has_absolute_paths_and_does_not_start_after_a_stop():
    text = batch_script(plan.job_of(asked(shared="x"), "/scratch/a b", RUN))
    assert "export MUSTER_RUN_DIR='/scratch/a b/.muster/runs/r1'" in text
    assert "#SBATCH '--chdir=/scratch/a b/.muster/runs/r1/work'" in text
    assert "[ ! -e '/scratch/a b/.muster/runs/r1/.stop' ]" in text
    assert '"$PWD"/runs' not in text


def test_a_container_sees_the_runs_folder():
    job = plan.job_of(asked(container="apptainer", image="t.sif"), "/s", RUN)
    words = shlex.split(next(line for line in batch_script(job).splitlines() if line.startswith("srun "))[:-1])
    assert "/s/.muster/runs/r1:/s/.muster/runs/r1" in words
    assert words[-3:] == list(ASKED.agent)


def test_a_mount_is_written_for_slurms_containers_or_refused():
    text = batch_script(
        plan.job_of(asked(container="pyxis", image="i", mount=("/d/:/d/../e:rw", "/f:/f:ro")), "/s", RUN)
    )
    assert ",/d/:/e,/f:/f:ro " in text
    for mount in ("/a:/b:create", "nonsense", "/a:/muster/x"):
        with pytest.raises(UsageError, match="--mount"):
            plan.check(asked(container="pyxis", image="i", mount=(mount,)))
    with pytest.raises(UsageError, match="two folders have the same target, /d"):
        plan.check(asked(container="pyxis", image="i", mount=("/a:/d", "/b:/d/")))


@pytest.mark.parametrize(
    "word",
    [
        *("--array=1-3", "-a1-3", "--chdir=/tmp", "-D", "--output=x", "--nodes=3", "-N3", ":"),
        "--arr=1-3",
        "--ou",
        "--er",
    ],
)
def test_an_sbatch_option_that_muster_sets_itself_is_refused(word):
    with pytest.raises(UsageError):
        plan.check(replace(ASKED, sbatch=("--time=1:00:00", word)))


def test_other_sbatch_options_are_accepted():
    words = ("--partition=a100", "-t", "60", "--mem=64G", "--no-requeue", "--exclusive", "--part=b", "--gpus=1")
    plan.check(replace(ASKED, sbatch=words, gpus=1))


@pytest.mark.parametrize("change", [{"container": "podman", "image": "x"}, {"shared": "a%b"}])
def test_a_value_that_slurm_could_not_use_is_refused(change):
    with pytest.raises(UsageError):
        plan.check(asked(**change))
