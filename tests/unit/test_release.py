"""The tools of a release: locks are read completely, the SBOM says where each part is from, renewed pins are exact."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release import renew, sbom

HOME = Path(__file__).resolve().parents[2]


def test_the_sbom_has_each_pin_of_each_lock_with_its_hashes():
    listed = json.loads(sbom.list_parts(1_700_000_000))
    parts = {(part["name"], part["version"]): part for part in listed["components"]}
    for lock in (HOME / "requirements").glob("*.txt"):
        pins = re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock.read_text(), re.MULTILINE)
        assert pins, lock
        assert not [pin for pin in pins if (pin[0].lower().replace("_", "-"), pin[1]) not in parts]
    assert f'version = "{listed["metadata"]["component"]["version"]}"\n' in (HOME / "pyproject.toml").read_text()
    click = next(part for (name, _), part in parts.items() if name == "click")
    assert click["scope"] == "required"
    assert all(re.fullmatch(r"[0-9a-f]{64}", each["value"]) for each in click["properties"])
    assert sbom.list_parts(1_700_000_000) == sbom.list_parts(1_700_000_000)


def test_a_pin_is_loosened_and_then_exact_again_and_a_bound_stays():
    text = '# why\nclick==8.1.0\n-c control.txt\nresiliency<0.5\nzstd==1.0 ; python_version < "3.14"\n'
    assert renew.loosen(text).splitlines()[1:] == [
        "click>=8.1.0",
        "-c control.txt",
        "resiliency<0.5",
        'zstd>=1.0 ; python_version < "3.14"',
    ]
    assert "click==8.5.1\n" in renew.pin(text, {"click": "8.5.1"})
    assert "zstd==1.0 ;" in renew.pin(text, {"click": "8.5.1"})


def test_each_changed_pin_is_reported_on_its_own_line():
    before, after = {"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "3"}
    assert renew.tell_changes(before, after) == ["b 1 -> 2", "c 1 is gone", "d 3 is new"]


def test_the_images_that_are_renewed_are_pinned_by_digest():
    assert len(renew._IMAGE.findall(renew.DOCKERFILE.read_text())) >= 2


@pytest.mark.long
@pytest.mark.parametrize("uv", ["echo click==9.0; exit 2", None], ids=["fails", "is not there"])
def test_if_a_lock_cannot_be_made_the_previous_one_stays(tmp_path, uv):
    """An empty lock would be accepted: all hashes would be lost without a message."""
    requirements = shutil.copytree(HOME / "requirements", tmp_path / "requirements")
    shutil.copytree(HOME / "deploy/send/packages", tmp_path / "deploy/send/packages")
    before = {file: file.read_text() for file in tmp_path.rglob("*.txt")}
    if uv:
        (tmp_path / "uv").write_text(f"#!/bin/sh\n{uv}\n")
        (tmp_path / "uv").chmod(0o755)
    done = subprocess.run([requirements / "lock.sh"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True)
    assert done.returncode != 0
    assert {file: file.read_text() for file in tmp_path.rglob("*.txt")} == before
    assert not list(requirements.glob("*.new"))


@pytest.mark.long
def test_if_pins_cannot_be_renewed_they_stay_and_the_command_says_so(monkeypatch, capsys, tmp_path):
    for name in ("requirements", "deploy/send/packages"):
        shutil.copytree(HOME / name, tmp_path / name)
    monkeypatch.setattr(renew, "REQUIREMENTS", tmp_path / "requirements")
    monkeypatch.setattr(renew, "HOSTS_LOCK", tmp_path / "deploy/send/packages/uv.txt")
    (tmp_path / "requirements/lock.sh").write_text(
        '#!/bin/sh\ncd "$(dirname "$0")"\n: >dev.txt\n: >../deploy/send/packages/uv.txt\nexit 2\n'
    )
    before = {file: file.read_text() for file in tmp_path.rglob("*.txt")}
    assert renew.main() == 1
    assert {file: file.read_text() for file in tmp_path.rglob("*.txt")} == before
    assert "all pins are as before" in capsys.readouterr().err


def test_a_wheel_asks_for_ranges_and_the_lock_is_within_them():
    """An exact pin there would conflict with the packages of the environment that `muster up` shares with a script."""
    locked = {name: version for name, version, _ in sbom.read_lock((HOME / "requirements/control.txt").read_text())}
    lines = (HOME / "requirements/control.in").read_text().splitlines()
    asked = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert len(asked) > 5
    assert not [str(need) for need in asked if any(each.operator == "==" for each in need.specifier)]
    assert not [str(need) for need in asked if locked[canonicalize_name(need.name)] not in need.specifier]
