"""A release has the same bytes whoever builds it, and the source archive has only files of the checkout."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from release import dist

HOME = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (HOME / ".git").exists(), reason="an archive without git has no list of its files")
def test_two_builds_with_another_umask_and_time_have_the_same_bytes(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first/muster_train-0.1.0-py3-none-any.whl").touch()  # an earlier release
    first = dist.build(tmp_path / "first")
    before = os.umask(0o077)
    try:
        second = dist.build(tmp_path / "second")
    finally:
        os.umask(before)
    assert dist.digests(first) == dist.digests(second)
    with tarfile.open(first[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    known = subprocess.run(["git", "ls-files"], cwd=HOME, text=True, capture_output=True, check=True).stdout.split("\n")
    assert {"PKG-INFO", "pyproject.toml", "setup.py", "LICENSE"} <= names
    assert names - {"PKG-INFO"} <= set(known)
