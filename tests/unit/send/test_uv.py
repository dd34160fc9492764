"""uv is fetched to this machine once, whatever pip's settings for user packages, and no partial folder is left."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from deploy.core.errors import DeployError
from deploy.send.packages import store, uv
from tests import index

NAME, WHEEL = index.wheel("uv", uv.VERSION, "", more={f"uv-{uv.VERSION}.data/scripts/uv": "#!/bin/sh\n"})


@pytest.fixture(autouse=True)
def links(tmp_path, monkeypatch):
    """A folder with a fake wheel of uv, in place of an index."""
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / NAME).write_bytes(WHEEL)
    monkeypatch.setattr(uv, "PINS", f"uv=={uv.VERSION} --hash=sha256:{hashlib.sha256(WHEEL).hexdigest()}\n")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "links"), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return tmp_path / "links"


@pytest.mark.long
@pytest.mark.parametrize("setting", ["PIP_USER", "PIP_REQUIRE_VIRTUALENV"])
def test_pip_settings_for_the_users_own_packages_do_not_matter(tmp_path, monkeypatch, setting):
    monkeypatch.setenv(setting, "1")
    assert os.path.isfile(uv.program(tmp_path))
    assert [path.name for path in tmp_path.glob("uv-*")] == [f"uv-{uv.VERSION}"]


@pytest.mark.long
def test_an_environment_without_pip_is_enough(tmp_path, monkeypatch):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    monkeypatch.setattr(uv, "find_spec", lambda name: None if name == "pip" else find_spec(name))
    assert os.path.isfile(uv.program(tmp_path))


@pytest.mark.long
def test_pips_error_is_quoted_and_no_partial_folder_is_left(tmp_path, links):
    shutil.rmtree(links)
    with pytest.raises(DeployError, match=rf"this machine: pip cannot get uv {uv.VERSION} .*No matching distribution"):
        uv.program(tmp_path)
    assert not list(tmp_path.glob("uv-*"))


@pytest.mark.long
def test_the_hinted_command_for_a_wheel_of_another_processor_works_here(tmp_path, links):
    shutil.rmtree(links)
    with pytest.raises(DeployError) as refused:
        uv.program(tmp_path, "aarch64")
    assert " --only-binary :all: --platform manylinux2014_aarch64 --target " in refused.value.hint


def test_old_leftovers_of_killed_commands_are_removed_later(tmp_path):
    for name in ("uv-a.part", "key.1.part", "uv-b.part"):
        (tmp_path / name / "bin").mkdir(parents=True)
    for name in ("uv-a.part", "key.1.part"):
        os.utime(tmp_path / name, (1, 1))
    store.own(tmp_path)
    assert [path.name for path in tmp_path.glob("*.part")] == ["uv-b.part"]
