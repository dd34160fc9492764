"""`muster fetch --state FILE` refuses, before it fetches anything, a file that it cannot write."""

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.local import one_file, script


def test_an_existing_file_and_a_missing_folder_are_refused_first(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "has_torch", lambda python: True)
    (tmp_path / "state.pt").touch()
    for name, words in (("state.pt", "exists"), ("no/state.pt", "no such folder")):
        with pytest.raises(UsageError, match=words):
            one_file.refuse(str(tmp_path / name))
    one_file.refuse(str(tmp_path / "other.pt"))


def test_a_machine_without_torch_is_refused_before_a_long_fetch(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "has_torch", lambda python: False)
    with pytest.raises(UsageError, match="no torch"):
        one_file.refuse(str(tmp_path / "state.pt"))


def test_if_the_system_kills_the_join_the_hint_says_what_it_needs(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(script, "python", lambda: str(program))
    with pytest.raises(DeployError, match="not written: the program that joins it was killed by SIGKILL") as fault:
        one_file.gather(tmp_path, "state.pt", lambda _: None)
    assert "memory" in fault.value.hint
