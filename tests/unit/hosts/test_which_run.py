"""Which of the runs on the hosts a command means."""

import pytest

from deploy.core.errors import DeployError
from deploy.host.facts import Container
from deploy.hosts import which_run


def container(run, code=None):
    return Container(run, "a", 0, 1, f"muster-{run}", "running" if code is None else "exited", code, 29500)


def test_a_run_is_chosen_by_its_name_or_as_the_only_running_one():
    going, ended = container("r1"), container("r0", code=0)
    runs = which_run.runs_of({"a": [going, ended], "b": [container("r1")]})
    assert which_run.choose_run(runs, "") == "r1"
    assert which_run.choose_run(runs, "r0") == "r0"
    with pytest.raises(DeployError, match=r"r7.*r0, r1"):
        which_run.choose_run(runs, "r7")
    with pytest.raises(DeployError, match="no runs"):
        which_run.choose_run({}, "")
