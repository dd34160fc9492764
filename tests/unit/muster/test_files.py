"""Something else in a file's place does no harm, and a process has a start time, whatever its name."""

import ctypes
import os
from contextlib import suppress

import pytest

from muster import files, stop
from muster.reserve import JOURNAL
from trainer.node.beside import scalars
from trainer.node.notes import Journal


def of_scalars(folder):
    with scalars._regular(folder):
        pass


@pytest.mark.parametrize("read", [files.read, of_scalars, lambda folder: Journal(folder).newest("verdict")])
def test_reading_a_folder_in_a_files_place_leaks_no_file_descriptor(tmp_path, read):
    (tmp_path / JOURNAL).mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with suppress(OSError):
            read(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_scripts_own_file_named_unasked_is_not_taken_for_the_agents(tmp_path, monkeypatch):
    monkeypatch.delenv("MUSTER_OUTCOME_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unasked").touch()
    assert not stop.Stop.is_restarted()
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(tmp_path))
    assert stop.Stop.is_restarted()


def test_a_process_whose_name_is_cut_within_a_character_has_a_start_time():
    libc, own = ctypes.CDLL(None), ctypes.create_string_buffer(16)
    began = stop.began(os.getpid())
    libc.prctl(16, own)
    libc.prctl(15, "обучение_модели".encode()[:15])
    try:
        assert stop.began(os.getpid()) == began != ""
    finally:
        libc.prctl(15, own)
