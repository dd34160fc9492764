"""A script on this machine finds its user's caches, although its home is a folder of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local import script


def test_a_process_uses_its_users_caches_unless_the_shell_sets_others() -> None:
    places = script.own_caches({"HF_HOME": "/models"}, Path("/home/me"))
    assert "HF_HOME" not in places
    assert places["TORCH_HOME"] == "/home/me/.cache/torch"
    assert script.own_caches({"XDG_CACHE_HOME": "/big"}, Path("/home/me"))["HF_HOME"] == "/big/huggingface"


def test_a_machine_too_slow_to_check_the_trainers_options_leaves_that_to_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "_LOOK_S", 0.0)
    script.refuse_arguments(["--recipe", "digits"], tmp_path)
