"""Images whose site-packages have a user's packages with names of Muster's folders: ranks import the user's."""

import json
import subprocess

import pytest

from tests.cluster.control import BASE

NAMES = ("trainer", "node", "deploy", "lab", "tests")
LOOKS = f"""
import importlib, json, muster.stop, os, pkgutil
owners = {{name: importlib.import_module(name).OWNER for name in {NAMES!r}}}
path = [place for place in os.environ["PYTHONPATH"].split(os.pathsep) if place]
print("sees", json.dumps([owners, sorted(module.name for module in pkgutil.iter_modules(path))]), flush=True)
"""


@pytest.fixture(params=["Muster's", "another"])
def image(control, request):
    """An image with these packages, built from Muster's own image, with or without Muster in it."""
    name = f"muster-{control.run}:1"
    make = f"for name in {' '.join(NAMES)}; do mkdir $name && echo OWNER = 1 > $name/__init__.py; done"
    where = "cd $(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    lines = [f"FROM {BASE}", "USER root", f"RUN {where} && {make}"]
    lines += ["RUN rm -r /muster", "ENV PYTHONPATH="] if request.param == "another" else ["USER muster"]
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", name, "-"], input="\n".join((*lines, "")), text=True, check=True
    )
    yield name
    subprocess.run(["docker", "rmi", "--force", name], check=True, capture_output=True)


def test_ranks_import_the_images_packages_and_only_muster_from_ours(control, image, tmp_path):
    (tmp_path / "train.py").write_text(LOOKS)
    words = ("--run", control.run, "--image", image, "--folder", str(tmp_path), "--script", "train.py")
    done = control.fab("deploy", *words)
    assert done.returncode == 0, done.stderr
    seen = json.dumps([dict.fromkeys(NAMES, 1), ["muster", "sitecustomize"]])
    for host in control.hosts:
        assert f"sees {seen}" in (control.dir / "logs" / f"{host}.log").read_text()
