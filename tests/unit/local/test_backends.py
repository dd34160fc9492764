"""The backends of this machine: how a run without a driving command is ended."""

import json
from pathlib import Path

import pytest

from deploy.local import backends


@pytest.mark.parametrize(("at_once", "waits_s"), [(False, 310.0), (True, 0.0)])
def test_containers_get_the_grace_period_that_the_run_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool, waits_s: float
) -> None:
    asked = list[float]()
    monkeypatch.setattr(backends.client, "stop", lambda run, seconds: asked.append(seconds))
    monkeypatch.setattr(backends.client, "down", lambda run: 0)
    (tmp_path / "record.json").write_text(json.dumps({"id": tmp_path.name, "again": "--grace 5m"}))
    backends.ComposeBackend.end(tmp_path, print, at_once)
    assert asked == [waits_s]
