"""A lock is stored with its git sources; one that is damaged, in another format or another user's is not used."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.send.packages import store, uv
from deploy.send.packages.store import Lock, Source

TAR = b"a source"
LINES = (f"other==1.0 --hash=sha256:{'c' * 64}", f"six==1.16.0 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}")
SOURCE = Source("a" * 32, "git", "git-0.tar", "mine", "1.0", ("six ; python_version > '3'",), ("x",), described=True)
KEPT = Lock(LINES, (SOURCE,), ("nvidia-nccl-cu12",), "2.13.0+cpu", "c" * 64, {"git-0.tar": TAR})


def changed(folder, **values):
    path = folder / "key" / "lock.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_lock_is_read_back_unchanged(tmp_path):
    store.keep("key", KEPT, tmp_path)
    assert store.find("key", tmp_path) == KEPT
    assert store.find("other", tmp_path) is None


def test_a_lock_with_a_damaged_or_missing_source_is_not_used(tmp_path):
    for damage in (lambda path: path.write_bytes(b"another"), lambda path: path.unlink()):
        store.keep("key", KEPT, tmp_path)
        damage(tmp_path / "key" / "git-0.tar")
        assert store.find("key", tmp_path) is None


def test_one_odd_entry_does_not_prevent_cleaning_the_rest(tmp_path):
    for name in ("a.part", "b.part", "c.part"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1, 1))
    listed = [path.name for path in tmp_path.glob("*.part")]  # in the order in which `store.own` cleans them
    (tmp_path / listed[0]).rmdir()
    (tmp_path / listed[0]).symlink_to("nowhere")
    store.own(tmp_path)
    assert [path.name for path in tmp_path.glob("*.part")] == [listed[0]]


def test_a_torn_lock_is_not_used(tmp_path):
    store.keep("key", KEPT, tmp_path)
    path = tmp_path / "key" / "lock.json"
    path.write_text(path.read_text()[:100])
    assert store.find("key", tmp_path) is None


@pytest.mark.holds("lock-lines")
@pytest.mark.parametrize("older", [1, 3, store.FORMAT + 1, "4", None])
def test_a_lock_of_another_format_is_never_trusted(tmp_path, older):
    store.keep("key", KEPT, tmp_path)
    changed(tmp_path, format=older)
    assert store.find("key", tmp_path) is None


@pytest.mark.holds("lock-lines")
@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")
@pytest.mark.parametrize("plant", [lambda path: os.chown(path, 12345, 12345), lambda path: path.chmod(0o666)])
def test_a_lock_that_another_user_could_write_is_never_trusted(tmp_path, plant):
    store.keep("key", KEPT, tmp_path)
    plant(tmp_path / "key" / "lock.json")
    assert store.find("key", tmp_path) is None


@pytest.mark.holds("lock-lines")
def test_a_lock_that_is_a_link_is_never_trusted(tmp_path):
    store.keep("key", KEPT, tmp_path)
    path = tmp_path / "key" / "lock.json"
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert store.find("key", tmp_path) is None


@pytest.mark.holds("lock-lines")
@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://evil.example",
        "-e /",
        "six==1.16.0",
        f"six==1.16.0 --hash=sha256:{'a' * 64}\n--index-url https://evil.example",
        f"six @ file:///etc/passwd --hash=sha256:{'a' * 64}",
        f"six==1.16.0 --hash=sha256:{'a' * 64} --find-links /",
        f"six==1.16.0 ; x --hash=sha256:{'a' * 64}",
    ],
)
def test_a_lock_has_only_names_versions_and_hashes(tmp_path, line):
    store.keep("key", replace(KEPT, lines=(line,)), tmp_path)
    assert store.find("key", tmp_path) is None


def test_the_same_lines_on_another_base_give_another_digest():
    assert KEPT.digest("a") == replace(KEPT, lines=tuple(reversed(LINES))).digest("a")
    assert KEPT.digest("a") != KEPT.digest("b")
    assert KEPT.digest("a") != replace(KEPT, sources=()).digest("a")


def test_hosts_and_this_machine_use_the_same_uv():
    locked = Path(__file__).resolve().parents[3] / "requirements/uv.txt"
    assert locked.read_text() == uv.PINS
    assert f"uv=={uv.VERSION} " in uv.PINS
