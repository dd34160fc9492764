"""`muster fetch --state FILE` refuses, before anything is fetched, a file that it cannot write."""

import pytest

from deploy.core.errors import UsageError
from deploy.local import one_file, script


def test_a_file_that_exists_and_a_folder_that_does_not_are_refused_first(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "has_torch", lambda python: True)
    (tmp_path / "state.pt").touch()
    for name, words in (("state.pt", "exists"), ("no/state.pt", "no such folder")):
        with pytest.raises(UsageError, match=words):
            one_file.refuse(str(tmp_path / name))
    one_file.refuse(str(tmp_path / "other.pt"))


def test_a_machine_without_torch_is_told_so_before_a_long_fetch(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "has_torch", lambda python: False)
    with pytest.raises(UsageError, match="no torch"):
        one_file.refuse(str(tmp_path / "state.pt"))
