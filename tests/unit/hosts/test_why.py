"""What `fab why` answers where no rank can say anything any more."""

import pytest

from deploy.core.errors import DeployError
from deploy.host.facts import Container
from deploy.hosts import why
from deploy.report.console import Console


def container(place, code):
    return Container("r1", f"h{place}", place, 2, "muster-r1", "exited" if code is not None else "running", code, 29500)


def test_a_run_whose_nodes_have_all_ended_is_refused_once_with_the_command_that_shows_its_end():
    with pytest.raises(DeployError, match=r"r1 has ended: h0 ended with code 1, h1 was killed by SIGKILL") as refusal:
        why._refuse_over("r1", {"h0": container(0, 1), "h1": container(1, 137)})
    assert "attach --hosts h0,h1 --run r1" in refusal.value.hint
    why._refuse_over("r1", {"h0": container(0, 1), "h1": container(1, None)})


def test_a_run_of_this_machine_that_has_ended_is_refused_with_its_end_and_its_page(tmp_path, monkeypatch):
    monkeypatch.setattr(why.folders, "RUNS", tmp_path)
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1/record.json").write_text('{"format": 1}')
    (tmp_path / "r1/outcome.json").write_text('{"verdict": "stopped", "message": "train.py was asked to stop"}')
    with pytest.raises(DeployError, match=r"r1 has ended: train\.py was asked to stop") as refused:
        why.why_here("r1", False, Console())
    assert "report --run r1" in refused.value.hint
