"""`make up` without a GPU fetches no CUDA: requirements/torch.sh chooses pip or uv for torch, and prints the size.

pip and uv are stubs that note how they are called: the real ones would fetch torch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "requirements" / "torch.sh"
PIP = """#!/bin/sh
echo "pip $*" >>"$NOTES"
case "$*" in
*--no-index*) exit "${WHEEL_HERE:-1}" ;;
*"config get global.cert"*) echo /company/ca.pem ;;
*"config get"*) exit 1 ;;
*uv.txt*) [ "${UV_TO_BE_HAD:-yes}" = yes ] || exit 1
    while [ "$1" != --target ]; do shift; done
    mkdir -p "$2/bin" && cp "$UV" "$2/bin/uv" ;;
esac
"""
UV = """#!/bin/sh
echo "uv $* $SSL_CERT_FILE" >>"$NOTES"
case "$*" in
*--dry-run*) [ -n "${BUILD:-}" ] || { echo "error: no way"; echo "  cause: no such name"; exit 1; }
    echo "Would install 1 package"; echo " + torch==$BUILD" ;;
esac
"""


@pytest.fixture
def install(tmp_path):
    """Run the script with the stubs; returns the install calls and what the script prints."""
    doubles = tmp_path / "doubles"
    doubles.mkdir()
    for name, text in (("python", PIP), ("double-of-uv", UV)):
        (doubles / name).write_text(text)
        (doubles / name).chmod(0o755)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "mktemp", "rm", "mkdir", "cp", "grep", "sed", "tail", "dirname"):
        (tools / name).symlink_to(shutil.which(name))
    notes = tmp_path / "notes"

    def run(*more: str, **variables: str):
        notes.write_text("")
        told = {"PATH": str(tools), "NOTES": str(notes), "UV": str(doubles / "double-of-uv"), "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            [SCRIPT, doubles / "python", *more], env={**told, **variables}, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stderr
        calls = [line for line in notes.read_text().splitlines() if "install" in line and "--dry-run" not in line]
        assert not list(tmp_path.glob("tmp*")), "the uv for this once is still there"
        return calls, done.stderr

    return run


@pytest.mark.parametrize(("build", "words"), [("2.13.0+cpu", "200 MB"), ("2.13.0+cu130", "several GB")])
def test_uv_installs_the_build_for_this_machine_and_the_size_is_printed_first(install, build, words):
    calls, said = install(BUILD=build)
    assert build in said
    assert words in said
    assert calls[-1].startswith("uv pip install")
    assert "--torch-backend auto" in calls[-1]
    assert calls[-1].endswith("/company/ca.pem"), "uv does not read the certificates that pip's settings name"
    assert not [line for line in calls if line.startswith("pip") and "torch.txt" in line]


def test_an_image_for_cpus_gets_the_cpu_build_whatever_the_machine_has(install):
    assert "--torch-backend cpu" in install("cpu", BUILD="2.13.0+cpu")[0][-1]


def test_a_wheel_on_this_machine_is_preferred(install):
    calls, _ = install(WHEEL_HERE="0", BUILD="2.13.0+cpu")
    assert [line.split()[0] for line in calls] == ["pip"]


def test_the_users_own_index_is_preferred_to_uv(install):
    calls, _ = install(TORCH_INDEX="file:///mine", BUILD="2.13.0+cpu")
    assert len(calls) == 1
    assert "--extra-index-url file:///mine" in calls[0]


@pytest.mark.parametrize("lacking", [{"UV_TO_BE_HAD": "no"}, {"BUILD": ""}])
def test_without_uv_or_its_index_pip_installs_torch_and_the_size_is_printed(install, lacking):
    calls, said = install(**{"BUILD": "2.13.0+cpu", **lacking})
    assert calls[-1].startswith("pip")
    assert calls[-1].endswith("torch.txt")
    assert "several GB" in said
    assert "TORCH_INDEX" in said


def test_the_users_own_uv_is_used(install, tmp_path):
    shutil.copy(tmp_path / "doubles" / "double-of-uv", tmp_path / "doubles" / "uv")
    calls, said = install(BUILD="2.13.0+cpu")
    assert [line.split()[0] for line in calls] == ["uv"]
    assert "fetching" not in said
    assert os.access(tmp_path / "doubles" / "uv", os.X_OK)
