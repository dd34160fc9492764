"""`pip install .`: only the control side, in a separate environment, run from a folder that is not a checkout."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import installed as pip
from tests.installed import run

HOME = Path(__file__).resolve().parents[2]
MOST_BYTES = 60e6


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return pip.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The environment's `muster`, and how many bytes the install adds to Python and pip."""
    return pip.install(wheel, tmp_path_factory.mktemp("installed") / "venv")


def test_the_wheel_has_every_file_and_only_the_top_level_package_muster(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "deploy", "trainer", "muster"]
    files = subprocess.run(listed, cwd=HOME, capture_output=True, text=True).stdout.split() or [
        str(path.relative_to(HOME)) for top in ("deploy", "trainer", "muster") for path in (HOME / top).rglob("*.py")
    ]
    assert len(files) > 50
    assert {name.partition("/")[0] for name in inside} == {"muster"}
    due = {name.removeprefix("muster/") for name in files if (HOME / name).exists()}
    due |= {f"deploy/pages/{page.name}" for page in (HOME / "docs/how-to").glob("*.md")}
    due |= {f"deploy/tutorial/{page.name}" for page in (HOME / "docs/tutorial").glob("*.md")}
    assert inside == {f"muster/{name}" for name in due}


def test_muster_lists_the_tasks_without_torch_and_stays_small(installed, tmp_path):
    muster, grown = installed
    done = run(str(muster), "--list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"deploy", "status", "fetch"} <= {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert not list(muster.parent.parent.glob("lib/python*/site-packages/torch"))
    assert 10e6 < grown <= MOST_BYTES


def test_pages_are_included_and_their_links_are_commands_that_print_pages(installed, tmp_path):
    listed = run(str(installed[0]), "docs", cwd=tmp_path)
    names = re.findall(r"^  (\S+) ", listed.stdout, re.MULTILINE)
    assert {"laptop", "resume", "it-hangs"} <= set(names), listed.stderr
    page = run(str(installed[0]), "docs", "resume", cwd=tmp_path).stdout
    assert page.startswith("# Resume a run\n")
    assert set(re.findall(r"`muster docs (\S+)`", page)) <= set(names)


def test_the_python_api_works_and_uses_the_installed_command_names(installed, tmp_path):
    code = (
        "from muster import UsageError as U; from muster.deploy.job.option_words import command_of as c; print(c('up'))"
    )
    code += "; print(U.__module__)"
    done = run(str(installed[0].parent / "python"), "-c", code, cwd=tmp_path)
    assert done.stdout.split() == ["muster", "up", "muster.deploy.core.errors"], done.stderr


def test_hosts_get_the_same_trainer_from_the_wheel_as_from_the_checkout(installed, tmp_path):
    code = (
        "from {0}.send.folder.folder_push import HostFolders, outgoing_trainer as agent; "
        "print(agent().content.digest, agent().content.listing, agent().plan(HostFolders('/', None, {{}})).stream.size)"
    )
    wheel = run(str(installed[0].parent / "python"), "-c", code.format("muster.deploy"), cwd=tmp_path)
    checkout = run(sys.executable, "-c", code.format("deploy"), cwd=HOME)
    assert wheel.returncode == checkout.returncode == 0, wheel.stderr + checkout.stderr
    assert wheel.stdout == checkout.stdout


def test_runs_are_in_the_users_own_folder(installed, tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "record.json").write_text('{"id": "mine", "backend": "hosts", "nodes": ["a"]}')
    done = run(str(installed[0]), "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout


def test_a_missing_torch_gives_a_readable_error(installed, tmp_path):
    done = run(str(installed[0]), "up", "--backend", "processes", "--args=--steps 1", cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot import torch" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [["-- train.py"], ["deploy", "--hots", "a"], ["status", "--", "train.py"]])
def test_wrong_usage_ends_with_code_2_and_a_hint(installed, tmp_path, words):
    done = run(str(installed[0]), *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "muster " in done.stderr.partition("hint: ")[2]
