"""Logins whose environments link into uv's cache: a file changed there is noticed, although new files are not read."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.send.packages import install, requirements, uv
from deploy.send.packages.inside.wheel import remake
from deploy.send.packages.places import ProcessPlace
from deploy.send.packages.settings import Settings
from tests import index


def with_a_record(name: str, folder: Path) -> tuple[str, bytes]:
    """A wheel whose record has the hashes of its files."""
    file, content = index.wheel(name, "1.0", "x = 1\n")
    (folder / file).write_bytes(content)
    made = remake(folder / file, folder)
    return file, (folder / made.sha256 / file).read_bytes()


def changed_behind_its_record(name: str, folder: Path) -> tuple[str, bytes]:
    """A wheel of a project that writes its version into a file after the wheel was finished."""
    file, content = with_a_record(name, folder)
    with zipfile.ZipFile(io.BytesIO(content)) as made, zipfile.ZipFile(written := io.BytesIO(), "w") as again:
        for inside in made.namelist():
            again.writestr(inside, "version = 1.0" if inside == f"{name}.py" else made.read(inside))
    return file, written.getvalue()


@pytest.fixture
def bring(tmp_path, tmp_path_factory, monkeypatch):
    """Install packages at places with these names; returns the site-packages folder of each, by name."""
    monkeypatch.setenv("MUSTER_ROOT", "/.")  # as for a process of a login, whose paths are links to others
    tool, folder, own = Path(uv.program(tmp_path_factory.mktemp("uv"))).parents[1], tmp_path / "f", tmp_path / "own"
    folder.mkdir()
    own.mkdir(0o700)
    (own / tool.name).symlink_to(tool)

    def at(*names: str, needs: str) -> dict[str, Path]:
        (folder / "requirements.txt").write_text(needs)
        read = requirements.read(folder, "requirements.txt", {"requirements.txt"})
        places = [ProcessPlace(name, sys.executable, tmp_path / name / "environments", folder) for name in names]
        settings = Settings({"UV_DEFAULT_INDEX": address, "NO_PROXY": "127.0.0.1"})
        done = install.install_packages(places, install.PackageRequest(read, settings, lambda *_: None, folder), own)
        return {name: next(Path(made).glob("lib/python*/site-packages")) for name, made in done.environments.items()}

    files = dict(with_a_record(name, tmp_path) for name in ("plain", "other", "third"))
    files |= [changed_behind_its_record("patched", tmp_path)]
    with index.serve("127.0.0.1", files) as address:
        yield at


def test_a_file_changed_on_one_host_is_noticed_at_the_next_change_of_packages(bring):
    file = bring("a", needs="plain\n")["a"] / "plain.py"
    assert file.stat().st_nlink > 1, "uv's cache has the same file"
    bring("a", "b", needs="plain\nother\n")  # b, where it is new, has the hash that a reads from the file
    file.write_text("x = 2\n")
    with pytest.raises(DeployError, match="c: the installed files differ from those of a") as refused:
        bring("a", "c", needs="plain\nother\nthird\n")
    assert refused.value.hint.startswith("muster clean --hosts a,c --caches")


def test_hosts_agree_on_a_wheel_with_a_wrong_record_even_if_one_had_it_before(bring):
    """A new install took the hash from the record, an older one read the file, so "the installed files differ"."""
    bring("a", needs="patched\n")
    bring("a", "b", needs="patched\nother\n")
