"""`muster down` on hosts records the end of the runs that it removed, and only of those."""

from types import SimpleNamespace

import pytest

from deploy.hosts.act import down
from deploy.run.files import record

NAMES = {"me@a": "a", "me@b": "b"}


@pytest.mark.parametrize(
    ("recorded", "codes", "ends"),
    [
        (["me@a", "me@b"], {"a": None, "b": None}, True),
        (["me@a", "me@b"], {"a": None}, True),
        (["me@a", "me@b"], {"a": 0, "b": 0}, False),
        (["me@a", "me@c"], {"a": None}, False),
        (["me@a"], {"b": None}, False),
        ([], {"a": None}, False),
    ],
    ids=[
        "all run",
        "the other has lost it",
        "all have ended",
        "it has a host elsewhere",
        "only a stranger has it",
        "unknown",
    ],
)
def test_only_a_running_run_of_these_hosts_gets_an_end(monkeypatch, recorded, codes, ends):
    monkeypatch.setattr(record, "facts", lambda run_dir: {"hosts": recorded})
    nodes = {host: SimpleNamespace(code=code) for host, code in codes.items()}
    assert list(down._running_runs({"r1": nodes}, NAMES)) == ["r1"] * ends
