"""`muster down` on hosts records the end of the runs that it removed, and only of those."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from deploy.core.results import Results
from deploy.hosts.act import down
from deploy.hosts.nodes import Removed
from deploy.job.options import Options
from deploy.report.console import Console
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


def test_a_host_without_an_engine_is_not_said_to_have_had_containers(monkeypatch, capsys):
    monkeypatch.setattr(down, "known_cluster", lambda _: SimpleNamespace(hosts=()))
    monkeypatch.setattr(down, "open_all", lambda _: nullcontext(Results({})))
    monkeypatch.setattr(down.observe, "containers", lambda *_: Results({}))
    monkeypatch.setattr(down.host_nodes, "remove", lambda *_: Results({"box-1": Removed(2, ())}))
    monkeypatch.setattr(down.host_lock, "sweep", lambda _: Results({"box-1": ""}))
    assert down.down(Options(), Console()) == 0
    assert capsys.readouterr().err.strip() == "box-1: removed 2 nodes"
