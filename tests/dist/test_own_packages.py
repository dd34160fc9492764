"""A user's packages with the names of Muster's folders: ranks import the user's, wherever they are stored."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
# The packages and modules at the top of a checkout, and `node`, a package inside one of them.
NAMES = ("trainer", "node", "deploy", "lab", "tests", "benchmarks", "examples", "gpu_check", "fabfile", "setup")
LOOKS = f"""
import importlib, json, os, pkgutil, sys
import muster.stop
owners = {{name: importlib.import_module(name).OWNER for name in {NAMES!r}}}
path = [place for place in os.environ["PYTHONPATH"].split(os.pathsep) if place]
names = {{place: sorted(module.name for module in pkgutil.iter_modules([place])) for place in path}}
with open(f"seen-{{os.environ['RANK']}}.json", "w") as file:
    json.dump([owners, names], file)
"""


def packages(folder, owner):
    """Make packages with all these names in a folder."""
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"OWNER = {owner!r}\n")
    return folder


@pytest.fixture(params=["installed", "beside the script", "a module of the folder", "the user's PYTHONPATH"])
def project(request, tmp_path):
    """A folder with train.py, the arguments that run it, the variables of the user's shell, and the packages' owner."""
    folder, script, shell = tmp_path / "project", ["train.py"], {}
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts/train.py").write_text(LOOKS)
    (folder / "train.py").write_text(LOOKS)
    if request.param == "installed":
        shell["VIRTUAL_ENV"] = str(tmp_path / "venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", shell["VIRTUAL_ENV"]], check=True)
        (libraries,) = (tmp_path / "venv").glob("lib/python*/site-packages")
        (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    elif request.param == "the user's PYTHONPATH":
        libraries = tmp_path / "libraries"
        shell["PYTHONPATH"] = str(libraries)
    else:
        libraries = folder
    if request.param == "a module of the folder":
        script = ["-m", "scripts.train"]
    packages(libraries, request.param)
    return folder, script, shell, request.param


@pytest.mark.parametrize("fresh", ["", "1"], ids=["forked", "started"])
def test_ranks_import_the_users_packages_and_only_muster_from_ours(project, fresh):
    folder, script, shell, owner = project
    outer = ("PET_", "MUSTER_", "PYTHON", "VIRTUAL_ENV", "CONDA_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    environment |= {"MUSTER_PLAIN_TORCHRUN": fresh, **shell}
    line = [
        str(FAB),
        "--search-root",
        str(HOME),
        "up",
        "--backend=processes",
        "--workers=1",
        "--run=own",
        "--",
        *script,
    ]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in (0, 1):
        owners, names = json.loads((folder / f"runs/own/work/seen-{rank}.json").read_text())
        assert owners == dict.fromkeys(NAMES, owner)
        ours = [name for place, found in names.items() if place != shell.get("PYTHONPATH") for name in found]
        assert sorted(ours) == ["muster"] + ["sitecustomize"] * (not fresh)
