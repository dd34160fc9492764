"""A script's libraries are pointed to the kept caches only if these are mounted and nobody has set another place."""

from __future__ import annotations

import os

import pytest

from trainer.node.agent import handover
from trainer.node.files import caches


def test_caches_are_set_only_with_a_mount_and_never_over_a_given_variable(tmp_path, monkeypatch):
    assert caches.variables({}, tmp_path) == {}, "a folder of the image is no kept cache"
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path)
    given = caches.variables({"HF_HOME": "/models"}, tmp_path)
    assert "HF_HOME" not in given
    assert given["TRITON_CACHE_DIR"] == f"{tmp_path}/triton"
    assert "TORCH_EXTENSIONS_DIR" not in given


def test_secrets_that_are_files_are_written_for_this_user_alone_and_are_no_variables(tmp_path):
    environment = {"MUSTER_SECRET_NAMES": "KEY,account.json", "MUSTER_SECRET_FILES": "account.json"}
    secrets = {"KEY": "value-of-key", "account.json": "line one\nline two\n"}
    assert handover.put_files(environment, secrets, tmp_path) == {"KEY": "value-of-key"}
    written = tmp_path / "account.json"
    assert written.read_text() == "line one\nline two\n"
    assert written.stat().st_mode & 0o777 == 0o400
    assert handover.put_files(environment, secrets, tmp_path), "a node that starts again writes them again"
    with pytest.raises(FileNotFoundError):
        handover.put_files(environment, secrets, tmp_path / "absent")


def test_all_secrets_are_masked_including_those_of_local_processes():
    environment = {"MUSTER_SECRETS_PRESENT": "A,GONE", "A": "value-of-a"}
    assert handover.secret_values(environment, {"KEY": "value-of-key"}) == ["value-of-key", "value-of-a"]
    assert handover.secret_names(environment) == {"A", "GONE"}
