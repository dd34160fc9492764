"""`muster stop` on hosts records how the run ended, unless a follower of the run has."""

from types import SimpleNamespace

import pytest

from deploy.hosts.act import stop
from deploy.hosts.start.resume import resume_fields
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.run.files import folders, record
from deploy.run.outcome import Result
from deploy.run.progress import State

TRACEBACK = "the traceback is in /muster/run/logs/rank-1.log"


@pytest.fixture
def end(tmp_path, monkeypatch):
    """Returns a function: record the end of a run whose rank 1 failed on host b, and return its fields."""
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "r").mkdir()
    record.write_record(
        tmp_path / "r", {"id": "r", "backend": record.HOSTS, "hosts": ["a", "b"], **resume_fields(Options())}
    )
    nodes = {host: SimpleNamespace(node=host) for host in ("a", "b")}

    def write(hint):
        result = Result("failed", "ValueError: x", hint, "b", 1)
        return stop.record_end("r", result, State(("a", "b")), nodes, (), Console())

    return write


def test_a_path_of_a_rank_is_on_the_host_of_this_rank(end, tmp_path):
    """Earlier, it was always on the first host, unlike for a follower of the run."""
    assert end(TRACEBACK)["hint"] == "the traceback is in b:~/.muster/runs/r/logs/rank-1.log"
    assert "ValueError: x" in (tmp_path / "r/report.html").read_text()


def test_a_log_is_named_as_a_follower_names_it(end):
    hint = end("logs/rank-1.log shows all that it printed")["hint"]
    assert hint.endswith("; the log of rank 1: muster logs --hosts a,b --run r --rank 1")


def test_a_page_that_cannot_be_written_does_not_hide_the_end(end, tmp_path, capsys):
    (tmp_path / "r/report.html").mkdir()
    assert end("")["message"] == "ValueError: x"
    assert record.read_json(tmp_path / "r/outcome.json")["verdict"] == "failed"
    assert "report.html: cannot be written" in capsys.readouterr().err


def test_the_record_of_a_follower_stays(end, tmp_path):
    record.write_json(tmp_path / "r/outcome.json", {"verdict": "done"})
    assert end("")["verdict"] == "failed"
    assert record.read_json(tmp_path / "r/outcome.json") == {"verdict": "done"}
