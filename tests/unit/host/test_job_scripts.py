"""A login node's scripts for a start, in a real shell with a fake Slurm: another run of that name is kept."""

import os
import subprocess
from pathlib import Path

import pytest

from deploy.host.commands import script
from deploy.send.folder.folder_stream import FolderStream

# These tests start other programs.
pytestmark = pytest.mark.long

SBATCH = "echo 9; exit 0"
REFUSES = "echo 'Invalid account' >&2; exit 1"


@pytest.fixture
def login(tmp_path):
    """Run a login node's script on its shared folder; the file `.asked` lists the calls of Slurm commands."""
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
def test_a_start_neither_takes_nor_removes_the_folder_of_another_run(login, of):
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


def test_a_start_cut_off_before_its_job_can_be_repeated_and_is_undone_completely(login):
    for _ in range(2):
        assert login("make-job", login.shared, "exp").returncode == 0
        assert b"taken" not in login("look-cluster", login.shared, "exp").stdout
    assert login("undo-job", login.shared, "exp", "", "folder").stdout == b"undone\n"
    assert not login.folder.exists()


def test_undo_cancels_a_submitted_job_and_removes_the_folder_even_if_sbatch_refused_it(login):
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


def test_the_job_id_is_found_even_if_a_sites_sbatch_prints_more(login):
    login.tool("sbatch", "echo '--> Verifying valid submit host...OK'; echo; echo 9")
    login("make-job", login.shared, "exp")
    assert login("submit-job", str(login.folder), "exp", "").stdout == b"job 9\n"
    assert (login.folder / "job").read_text() == "9\n"


def test_a_resume_that_sbatch_refuses_leaves_the_run_and_its_name_untouched(login):
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
