"""A company's certificates and package index reach an image build, wherever pip reads them on this machine.

`docker` is a stub that writes its arguments to a file, one a line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
DOCKER = """#!/bin/sh
case "$*" in
*Size*) echo 7000000 ;;
build*) printf '%s\\n' "$@" >"$NOTES" ;;
esac
"""


@pytest.fixture
def build(tmp_path):
    """Run images/packages.sh with the stub; returns the arguments of `docker build`."""
    doubles = tmp_path / "doubles"
    doubles.mkdir()
    (doubles / "docker").write_text(DOCKER)
    (doubles / "docker").chmod(0o755)
    (tmp_path / "requirements.txt").write_text("x==1\n")

    def run(**variables):
        given = {"PATH": f"{doubles}:{os.environ['PATH']}", "NOTES": str(tmp_path / "notes"), "HOME": str(tmp_path)}
        script = [shutil.which("bash"), HOME / "images/packages.sh", "requirements.txt", "mine:1"]
        subprocess.run(script, env=given | variables, cwd=tmp_path, check=True, timeout=60, capture_output=True)
        return (tmp_path / "notes").read_text().splitlines()

    return run


@pytest.mark.parametrize(
    ("folder", "variable"),
    [
        (".config/pip", ""),
        ("of mine/pip", "XDG_CONFIG_HOME"),
        ("a home/.config/pip", "HOME"),
        ("a home/Library/Application Support/pip", "HOME"),
    ],
)
def test_pips_settings_are_passed_to_the_build_from_every_folder_pip_reads(build, tmp_path, folder, variable):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "pip.conf").write_text("[global]\nindex-url = https://index.example\n")
    words = build(**({variable: str(tmp_path / folder.partition("/")[0])} if variable else {}))
    assert f"--secret=id=pip_conf,src={tmp_path / folder}/pip.conf" in words
    assert len([word for word in words if not word.startswith("-")]) == 5, "build, 3 values of options, the context"


@pytest.mark.parametrize("named", ["PIP_CERT", "pip.conf", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_certificates_that_a_deploy_passes_on_reach_a_build_too(build, tmp_path, named):
    (tmp_path / "ca.pem").write_text("authority")
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\ncert = ~/ca.pem\n" if named == "pip.conf" else "[global]\n"
    )
    words = build(**({named: str(tmp_path / "ca.pem")} if named != "pip.conf" else {}))
    assert f"--secret=id=ca,src={tmp_path}/ca.pem" in words
