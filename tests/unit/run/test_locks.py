"""Locks on this machine have one holder and are in the user's private folders; every wait is announced and ends."""

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
    """other(path): another process takes and keeps this lock; returns its process number."""
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
def test_waiting_for_a_held_lock_ends_and_names_the_holder(tmp_path, other):
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


@pytest.mark.parametrize("listed", [locks._LISTED, "/nowhere"])
def test_whether_a_lock_is_held_is_known_and_leaves_it_as_it_was(tmp_path, other, monkeypatch, listed):
    """A look must not make the command that starts a run believe that another one runs it."""
    monkeypatch.setattr(locks, "_LISTED", listed)
    path = tmp_path / "lock"
    assert not locks.is_held(path)
    path.touch()
    assert not locks.is_held(path)
    path.unlink(missing_ok=True)
    other(path)
    assert locks.is_held(path)
    own = locks.hold(tmp_path / "own")
    assert locks.is_held(tmp_path / "own")
    own.release()
    (tmp_path / "link").symlink_to(path)
    assert not locks.is_held(tmp_path / "link"), "a container may put a link to any file there"


def test_a_released_lock_can_be_taken(tmp_path):
    with locks.wait_for(tmp_path / "lock", 5, print):
        assert locks.hold(tmp_path / "lock") is None
    lock = locks.hold(tmp_path / "lock")
    assert lock
    lock.release()
    assert not (tmp_path / "lock").exists()


def test_a_lock_whose_file_was_removed_by_its_last_holder_is_created_again(tmp_path, monkeypatch):
    """Once, a process that had opened the removed file had a lock that nobody else saw: two commands drove one run."""
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
def test_a_link_at_the_path_of_a_lock_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeployError, match="cannot be locked"), locks.wait_for(tmp_path / "lock", 5, print):
        raise AssertionError("we have it")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.holds("locks-end")
def test_the_lock_of_a_port_is_in_a_folder_that_only_its_user_can_enter(tmp_path, monkeypatch):
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


def test_a_file_system_without_locks_is_reported_in_words(tmp_path, monkeypatch):
    """On an NFS mounted without a lock server, every `muster up` once ended with a traceback."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(DeployError, match="cannot be locked: No locks available"):
        locks.hold(tmp_path / "lock")
    assert locks.hold_followed(tmp_path) is None


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    """As in a container whose user is only a number, without HOME."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
    with pytest.raises(DeployError, match="this user has no home"):
        locks.hold_port(29500)
