"""Locks of this machine: one holder, in folders that are the user's alone, and no wait without an end or a word."""

import errno
import fcntl
import os
import pwd
import subprocess
import sys

import pytest

from deploy.core.errors import DeployError
from deploy.run.files import locks

HELD = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def other():
    """Another process keeps the lock at a path."""
    started = []

    def keep(path):
        started.append(subprocess.Popen([sys.executable, "-c", HELD, str(path)], stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "held\n"
        return started[-1].pid

    yield keep
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.holds("locks-end")
def test_a_wait_for_a_lock_that_another_keeps_ends_and_says_who_has_it(tmp_path, other):
    path, said = tmp_path / "lock", []
    other(tmp_path / "before")
    pid = other(path)
    other(tmp_path / "after")
    with (
        pytest.raises(DeployError, match=rf"process {pid} \(.*python") as caught,
        locks.wait_for(path, 0.3, said.append),
    ):
        raise AssertionError("we have it")
    assert str(path) in caught.value.message
    assert len(said) == 1
    assert f"process {pid}" in said[0]


def test_a_lock_that_is_given_back_is_taken(tmp_path):
    with locks.wait_for(tmp_path / "lock", 5, print):
        assert locks.hold(tmp_path / "lock") is None
    lock = locks.hold(tmp_path / "lock")
    assert lock
    lock.release()
    assert not (tmp_path / "lock").exists()


def test_a_lock_whose_file_went_with_its_last_holder_is_taken_anew(tmp_path, monkeypatch):
    """Who had opened the file before had a lock that nobody else could see: two commands drove one run."""
    path, flock = tmp_path / "lock", fcntl.flock

    def flock_after_its_end(*words):
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        flock(*words)

    monkeypatch.setattr(fcntl, "flock", flock_after_its_end)
    lock = locks.hold(path)
    assert locks.hold(path) is None
    lock.release()


@pytest.mark.holds("locks-end")
def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeployError, match="cannot be locked"), locks.wait_for(tmp_path / "lock", 5, print):
        raise AssertionError("we have it")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.holds("locks-end")
def test_the_lock_of_a_port_lies_where_nobody_else_comes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "muster").mkdir()
    (tmp_path / "muster" / "ports").mkdir(0o755)
    lock = locks.hold_port(29500)
    assert lock
    assert locks.hold_port(29500) is None
    (made,) = (tmp_path / "muster").iterdir()
    assert made.stat().st_mode & 0o777 == 0o700
    (file,) = made.iterdir()
    with file.open() as known, pytest.raises(BlockingIOError):
        fcntl.flock(known, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert os.stat(file).st_mode & 0o777 == 0o600
    lock.release()


def test_a_disk_without_locks_is_told_in_words(tmp_path, monkeypatch):
    """An NFS that is mounted without a lock server: every `muster up` ended with a traceback."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(DeployError, match="cannot be locked: No locks available"):
        locks.hold(tmp_path / "lock")
    assert locks.hold_followed(tmp_path) is None


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    """In a container whose user is a number, without HOME."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
    with pytest.raises(DeployError, match="this user has no home"):
        locks.hold_port(29500)
