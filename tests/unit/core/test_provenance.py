"""Only records that this user made here are run again: a changed record, or another user's, is not trusted."""

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from deploy.core import provenance
from deploy.core.provenance import is_ours, sealed

RECORD = {"command": ["train.py"], "nodes": 2}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "not/there/yet"))
    return tmp_path / "not/there/yet"


def test_a_record_is_ours_until_any_part_of_it_changes(state):
    ours = sealed(RECORD)
    assert is_ours(ours)
    assert is_ours(dict(reversed(ours.items())))
    assert sealed(ours) == ours
    for change in (
        {"nodes": 3},
        {"more": 1},
        {"seal": ours["seal"][::-1]},
        {"seal": None},
        {"seal": ["x"]},
        {"seal": "ä"},
    ):
        assert not is_ours({**ours, **change})
    assert not is_ours(RECORD)


def test_another_users_key_proves_nothing_here_and_the_key_is_private(state, monkeypatch, tmp_path):
    ours = sealed(RECORD)
    key = state / "muster/key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert os.listdir(key.parent) == ["key"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert not is_ours(ours)
    assert not (tmp_path / "another").exists(), "to ask makes no key"
    assert sealed(RECORD) != ours


def test_without_a_whole_key_nothing_is_sealed_or_trusted(state, monkeypatch):
    ours = sealed(RECORD)
    (state / "muster/key").write_bytes(b"half")
    assert sealed(RECORD) == RECORD
    assert not is_ours(ours)
    (state / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(state / "file"))
    assert sealed(ours) == RECORD, "a seal of before would look like ours"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setattr(provenance.os.path, "expanduser", lambda path: path)
    assert sealed(RECORD) == RECORD
    assert not os.path.exists("relative")


def test_an_empty_key_left_by_a_power_cut_is_replaced(state):
    sealed(RECORD)
    (state / "muster/key").write_bytes(b"")
    assert is_ours(sealed(RECORD))


def test_a_key_that_another_command_makes_at_the_same_time_stays(state, monkeypatch):
    """Earlier, that key was removed again, and records sealed with it were foreign for ever."""
    mkdir, first = Path.mkdir, []

    def begins_too(path, *given, **named):
        mkdir(path, *given, **named)
        if not first:
            first.append("begun")
            first.append(sealed(RECORD))

    monkeypatch.setattr(Path, "mkdir", begins_too)
    assert sealed(RECORD) == first[1]
    assert is_ours(first[1])
    assert os.listdir(state / "muster") == ["key"]


@pytest.mark.parametrize("before", [None, b""])
def test_two_commands_that_start_together_seal_with_the_same_key(before, state, monkeypatch):
    (state / "muster").mkdir(parents=True)
    if before is not None:
        (state / "muster/key").write_bytes(before)
    both, mkdir, size, made = threading.Barrier(2), Path.mkdir, Path.stat, []

    def together(path, *given, **named):
        mkdir(path, *given, **named)
        if path.name == "muster":
            both.wait(20)

    def slow(path, **named):
        seen = size(path, **named)
        time.sleep(0.1 * (path.name == "key"))
        return seen

    monkeypatch.setattr(Path, "mkdir", together)
    monkeypatch.setattr(Path, "stat", slow)
    threads = [threading.Thread(target=lambda: made.append(sealed(RECORD))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert made[0] == made[1]
    assert is_ours(made[0])
