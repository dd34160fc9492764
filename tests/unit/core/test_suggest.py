"""Suggestions of what a user may have meant: only existing names, and none if nothing is similar."""

import os

import pytest

from deploy.core.suggest import hint_of, near_file, near_match, near_path, near_program


def test_the_name_most_like_the_typed_one_is_suggested_or_none():
    assert near_match("wrker", ["worker", "master"]) == "worker"
    assert near_match("x", ["worker", "master"]) == ""
    assert near_match("wrk", ["worker"], alike=0.9) == ""
    assert hint_of("wrker", ["worker", "master"]) == "did you mean worker?"
    assert hint_of("x", ["b", "a"]) == "there are b, a"


def test_a_file_next_to_the_typed_path_with_its_suffix_is_suggested(tmp_path):
    (tmp_path / "src").mkdir()
    for name in ("src/train.py", "src/train.toml", "trian.py"):
        (tmp_path / name).write_text("")
    assert near_file(tmp_path, "src/trian.py", ".py") == "src/train.py"
    assert near_file(tmp_path, "src/trian.toml", ".toml") == "src/train.toml"
    assert near_file(tmp_path, "nowhere/train.py", ".py") == ""
    # Once, a long folder and the ending made any two files alike.
    (tmp_path / "basic_networks/archs").mkdir(parents=True)
    (tmp_path / "basic_networks/archs/train.py").touch()
    assert near_file(tmp_path, "basic_networks/archs/version.py", ".py") == ""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with data files and a key."""
    (tmp_path / "data").mkdir()
    for name in ("data/corpus.bin", "data/corpus.txt", "data/notes", "key.pem"):
        (tmp_path / name).write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_for_a_missing_path_a_neighbour_with_its_suffix_is_suggested(home):
    assert near_path("~/data/corpsu.bin") == str(home / "data/corpus.bin")
    assert near_path(str(home / "data/corpsu.txt")) == str(home / "data/corpus.txt")
    assert near_path(str(home / "data/zzz.bin")) == ""
    assert near_path(str(home / "nowhere/a.bin")) == near_path("a\0b") == ""


def test_a_folder_for_a_file_suggests_its_usual_file_and_a_file_for_a_folder_its_folder(home):
    assert near_path(str(home / "data"), ["cluster.toml", "notes"]) == str(home / "data/notes")
    assert near_path(str(home / "data")) == ""
    assert near_path(str(home / "data/corpus.bin")) == str(home / "data/corpus.bin"), "a file may be meant itself"
    assert near_path(str(home / "data/corpus.bin"), folder=True) == str(home / "data")
    assert near_path(str(home / "dta"), folder=True) == str(home / "data"), "a file is no folder"
    assert near_path(str(home / "kye.pem"), folder=True) == ""


PROJECT = '[project]\nname = "a"\n[project.scripts]\ntrain-it = "a:b"\n'


@pytest.mark.parametrize(
    ("text", "typed", "meant"),
    [
        (PROJECT, "train-ti", "train-it"),
        (PROJECT, "train-it", ""),
        (PROJECT, "python", ""),
        ("[project]\nscripts = 1\n", "train-ti", ""),
        ("[project]\n", "train-ti", ""),
        ("project = [", "train-ti", ""),
        ("project = 1", "train-ti", ""),
        (PROJECT + "#" * (1 << 20), "train-ti", ""),
        ("\x00\xff", "train-ti", ""),
    ],
)
def test_a_program_of_the_project_is_suggested_whatever_its_pyproject_contains(tmp_path, text, typed, meant):
    (tmp_path / "pyproject.toml").write_bytes(text.encode("latin-1"))
    assert near_program(tmp_path, typed) == meant


def test_a_pyproject_that_leads_out_of_the_folder_is_not_read(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    os.symlink(tmp_path / "pyproject.toml", tmp_path / "other/pyproject.toml")
    assert near_program(tmp_path / "other", "train-ti") == ""
