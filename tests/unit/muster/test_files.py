"""What others may put in the place of a file, and how a process is told from a later one, whatever its name."""

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
def test_a_folder_in_the_place_of_a_file_costs_a_reader_that_looks_again_and_again_nothing(tmp_path, read):
    (tmp_path / JOURNAL).mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with suppress(OSError):
            read(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_the_script_calls_unasked_is_no_word_of_an_agent(tmp_path, monkeypatch):
    monkeypatch.delenv("MUSTER_OUTCOME_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unasked").touch()
    assert not stop.Stop.is_restarted()
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(tmp_path))
    assert stop.Stop.is_restarted()


def test_a_process_whose_name_is_cut_in_the_middle_of_a_letter_has_a_beginning():
    libc, own = ctypes.CDLL(None), ctypes.create_string_buffer(16)
    began = stop.began(os.getpid())
    libc.prctl(16, own)
    libc.prctl(15, "обучение_модели".encode()[:15])
    try:
        assert stop.began(os.getpid()) == began != ""
    finally:
        libc.prctl(15, own)
