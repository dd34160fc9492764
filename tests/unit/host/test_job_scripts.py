"""What a login node does for a start, in a real shell, with stand-ins for Slurm: other runs of that name stay."""

import os
import subprocess
from pathlib import Path

import pytest

from deploy.host.commands import script
from deploy.send.folder.folder_stream import FolderStream

# It starts programs.
pytestmark = pytest.mark.long

SBATCH = "echo 9; exit 0"
REFUSES = "echo 'Invalid account' >&2; exit 1"


@pytest.fixture
def login(tmp_path):
    """Runs a script of the login node, on a folder that it shares; `.asked` has what was asked of Slurm."""
    tools, shared = tmp_path / "bin", tmp_path / "shared"
    tools.mkdir()
    shared.mkdir()

    def tool(name: str, does: str) -> None:
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{shared}/.asked\n{does}\n')
        (tools / name).chmod(0o755)

    for name in ("squeue", "sacct", "scancel"):
        tool(name, "")
    tool("sbatch", SBATCH)
    stream = b"".join(FolderStream(Path(), []).read(lambda sent: None))

    def run(name: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        given = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path)}
        return subprocess.run(
            script(name, *words), env=given, input=stream, capture_output=True, timeout=30, check=False
        )

    run.shared, run.folder, run.tool = str(shared), shared / ".muster/runs/exp", tool
    run.asked = lambda: (shared / ".asked").read_text() if (shared / ".asked").exists() else ""
    return run


@pytest.mark.parametrize("of", ["hosts", "slurm"])
def test_a_start_takes_no_folder_that_another_run_has_and_gives_none_back(login, of):
    (login.folder / "work").mkdir(parents=True)
    (login.folder / "work/best.pt").write_text("weeks")
    if of == "slurm":
        (login.folder / ".submitting").touch()
        (login.folder / "job").write_text("7\n")
    assert b"taken" in login("look-cluster", login.shared, "exp").stdout
    made = login("make-job", login.shared, "exp")
    assert made.returncode
    assert b"a run of this name exists there already" in made.stderr
    assert login("undo-job", login.shared, "exp", "", "folder").stdout == b"undone\n"
    assert (login.folder / "work/best.pt").read_text() == "weeks"
    assert "scancel" not in login.asked()


def test_a_start_that_was_cut_off_before_its_job_may_be_made_again_and_is_undone_whole(login):
    for _ in range(2):
        assert login("make-job", login.shared, "exp").returncode == 0
        assert b"taken" not in login("look-cluster", login.shared, "exp").stdout
    assert login("undo-job", login.shared, "exp", "", "folder").stdout == b"undone\n"
    assert not login.folder.exists()


def test_a_job_that_was_submitted_is_cancelled_with_its_folder_and_what_sbatch_refuses_leaves_none(login):
    login("make-job", login.shared, "exp")
    assert login("submit-job", str(login.folder), "exp", "").stdout == b"job 9\n"
    assert login("undo-job", login.shared, "exp", "", "job").stdout == b"undone\n"
    assert "scancel 9" in login.asked()
    assert not login.folder.exists()
    login.tool("sbatch", REFUSES)
    login("make-job", login.shared, "exp")
    assert login("submit-job", str(login.folder), "exp", "").stdout == b"refused\n"
    assert login("undo-job", login.shared, "exp", "", "job").stdout == b"undone\n"
    assert not login.folder.exists()


def test_the_id_of_a_job_is_known_where_a_site_has_its_sbatch_print_more(login):
    login.tool("sbatch", "echo '--> Verifying valid submit host...OK'; echo; echo 9")
    login("make-job", login.shared, "exp")
    assert login("submit-job", str(login.folder), "exp", "").stdout == b"job 9\n"
    assert (login.folder / "job").read_text() == "9\n"


def test_a_resume_that_sbatch_refuses_leaves_the_run_whole_and_its_name_taken(login):
    login("make-job", login.shared, "exp")
    assert login("submit-job", str(login.folder), "exp", "").stdout == b"job 9\n"
    (login.folder / "work/best.pt").write_text("weeks")
    login.tool("sbatch", REFUSES)
    assert login("submit-job", str(login.folder), "exp", "9").stdout == b"refused\n"
    assert login("undo-job", login.shared, "exp", "9", "job").stdout == b"undone\n"
    assert (login.folder / "job").read_text() == "9\n"
    assert b"taken" in login("look-cluster", login.shared, "exp").stdout
    assert login("make-job", login.shared, "exp").returncode
    assert (login.folder / "work/best.pt").read_text() == "weeks"
