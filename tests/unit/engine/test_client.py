"""Whether this machine has an engine that nodes can run on."""

from types import SimpleNamespace

import pytest

from deploy.engine import client


@pytest.mark.parametrize(
    ("compose", "usable"), [("", False), ("1.29.2", False), ("2.27.1+ds1", True), ("v5.0.0", True), ("6.1.0", True)]
)
def test_every_compose_version_from_2_on_is_usable(monkeypatch, compose, usable):
    monkeypatch.setattr(client.shutil, "which", lambda name: "/usr/bin/docker")
    monkeypatch.setattr(client, "Engine", lambda reach: SimpleNamespace(version=lambda seconds: "29.1.0"))
    monkeypatch.setattr(client.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=f"{compose}\n"))
    assert client.find_engine().answers is usable
