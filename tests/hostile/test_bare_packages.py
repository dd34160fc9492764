"""Packages for a login without an engine: what environments share, and what a host crash leaves of an environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.send.packages import install, uv
from deploy.send.packages.local_runner import LocalRunner
from deploy.send.packages.places import DockerPlace
from deploy.send.packages.requirements import Requirements
from deploy.send.packages.settings import Settings
from lab.waiting import until
from tests import index
from tests.hostile.test_bare_engine import CODE, ENGINE
from tests.hostile.test_indexes import each, served

FILES = dict([index.wheel("plain", "1.0", "VALUE = 1"), index.wheel("more", "1.0", "VALUE = 2")])


@pytest.fixture(scope="module")
def tool(tmp_path_factory) -> Path:
    """uv, downloaded once."""
    return Path(uv.program(tmp_path_factory.mktemp("uv"))).parents[1]


@pytest.fixture
def login(tmp_path, tool, monkeypatch):
    """A home with its own engine; login.bring(LINES) returns the site-packages made there from these requirements."""
    home, own = tmp_path / "home", tmp_path / "own"
    (home / "bin").mkdir(parents=True)
    own.mkdir(mode=0o700)
    (own / tool.name).symlink_to(tool)
    docker = home / "bin/docker"
    docker.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S -c '{CODE}' {ENGINE} \"$@\"\n")
    docker.chmod(0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    LocalRunner().run(("docker", "image", "add", "muster-bare:python", ""))
    with served(FILES) as (address, _):
        yield Login(home, own, f"{address}/simple")


class Login:
    """One user on a host that has no engine."""

    def __init__(self, home: Path, own: Path, address: str) -> None:
        self.root, self.marks, self._own = home / ".muster/bare" / os.uname().nodename, home / ".muster/packages", own
        self._settings = Settings({"UV_DEFAULT_INDEX": address, "NO_PROXY": "127.0.0.1"})
        self.place = DockerPlace(
            "host", LocalRunner(), "muster-bare:python", "me", (os.getuid(), os.getgid()), bare=True
        )

    def bring(self, lines: str) -> Path:
        needs = Requirements("needs.txt", "torch", (("needs.txt", lines.encode()),))
        asked = install.PackageRequest(needs, self._settings, lambda *_: None, self._own, each=each)
        made = install.install_packages([self.place], asked, self._own)
        return next((self.root / "volumes" / made.environments["host"] / "data").glob("lib/python*/site-packages"))

    def sizes(self) -> list[int]:
        """The bytes of each volume, as the engine reports them."""
        asked = b"GET /system/df HTTP/1.1\r\n\r\n"
        done = subprocess.run(["docker", "system", "dial-stdio"], input=asked, capture_output=True, check=True)
        return [each["UsageData"]["Size"] for each in json.loads(done.stdout.split(b"\r\n\r\n")[1])["Volumes"]]

    def is_whole(self) -> bool:
        return bool(self.place.look().environments)


def test_environments_share_package_files_but_not_files_written_per_environment(login) -> None:
    first = login.bring("plain")
    second = login.bring("plain\nmore")
    assert first != second
    assert os.path.samefile(first / "plain.py", second / "plain.py")
    own = ("plain-1.0.dist-info/RECORD", "zz_muster_base.pth")
    assert not any(os.path.samefile(first / name, second / name) for name in own)
    assert {(first / name).stat().st_nlink for name in own} == {1}, "nor has uv's cache them"
    files = [path for path in login.root.glob("volumes/muster-[!b]*/**/*") if path.is_symlink() or path.is_file()]
    on_disk = {at.st_ino: at.st_blocks * 512 for at in map(os.lstat, files)}
    assert sum(login.sizes()) == pytest.approx(sum(on_disk.values()), abs=2048), "what is shared is counted once"


@pytest.mark.parametrize(
    ("mark", "counts"), [("", True), (None, False), (str(uuid4()), False)], ids=["on the disk", "cut", "other boot"]
)
def test_an_environment_counts_after_a_crash_only_if_it_was_on_the_disk(login, mark, counts) -> None:
    login.bring("plain")
    assert login.is_whole()
    (made,) = login.marks.iterdir()
    until(lambda: not made.read_text(), "the files to be on the disk", 120)
    made.unlink() if mark is None else made.write_text(mark)
    assert login.is_whole() == counts
    assert (login.bring("plain") / "plain.py").is_file()
    assert login.is_whole()
