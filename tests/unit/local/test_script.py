"""A script on this machine: what it finds of its user's, although its home is a folder of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.local import backends, script


def test_a_process_keeps_downloads_where_its_user_has_them_and_what_the_shell_says_holds() -> None:
    places = script.own_caches({"HF_HOME": "/models"}, Path("/home/me"))
    assert "HF_HOME" not in places
    assert places["TORCH_HOME"] == "/home/me/.cache/torch"
    assert script.own_caches({"XDG_CACHE_HOME": "/big"}, Path("/home/me"))["HF_HOME"] == "/big/huggingface"


def test_a_secret_that_is_a_file_is_refused_without_a_container_with_what_works() -> None:
    backends.ComposeBackend.refuse_without_container([], ["a.json"])
    backends.ProcessBackend.refuse_without_container([], [])
    with pytest.raises(UsageError, match=r"a\.json") as refused:
        backends.ProcessBackend.refuse_without_container([], ["a.json"])
    assert "--secret NAME=FILE" in refused.value.hint
