"""What a deploy does under its hosts' locks if others have started or resumed runs since it looked."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.core.results import Results
from deploy.host.facts import Container
from deploy.hosts.backend import HostsBackend, RunHandle
from deploy.hosts.node.container import Work
from deploy.hosts.start import new_run, plan
from deploy.hosts.start.new_run import DeployRequest, NewRun
from deploy.job.cluster import Cluster
from deploy.job.inventory import Host, hosts_of_flag
from deploy.report.console import Console
from deploy.send.folder.credentials import SendChoice
from tests.hosts import FACTS

RUNS = Container("r1", "a", 0, 1, "muster-r1", "running", None, 29500)


@pytest.fixture
def locked(monkeypatch, tmp_path):
    """lock(now, resumed): take a run's locks while its host has the containers `now`; return the host's new facts."""

    def lock(now, resumed):
        monkeypatch.setattr(new_run.lock, "lock_hosts", lambda *words: nullcontext())
        monkeypatch.setattr(new_run.observe, "containers", lambda sessions: Results({"a": now}))
        host = Host("a", "a")
        about = (
            Cluster((host,)),
            [SimpleNamespace(name=host.name, host=host)],
            {"a": FACTS},
            "base",
            "tag",
            None,
            SendChoice(),
        )
        claims = SimpleNamespace(take=lambda: None, narrow_facts=lambda facts: facts)
        handle = RunHandle(tmp_path / "r1", {"a": "a"}, True, ("train.py",), resumed)
        run = NewRun(
            DeployRequest(*about, work=Work("", "")), handle, claims, Console(), SimpleNamespace(at=lambda *words: None)
        )
        with run.lock():
            return run._request.facts["a"]

    return lock


def test_a_run_that_was_resumed_meanwhile_is_left_alone(locked):
    """Two terminals resume one run: the second one would have removed the nodes of the first."""
    with pytest.raises(DeployError, match="r1: it is still running on a") as fault:
        locked((RUNS,), resumed=True)
    assert "muster attach --hosts a --run r1" in fault.value.hint
    locked((replace(RUNS, status="exited", code=1),), resumed=True)


def test_the_rendezvous_does_not_use_the_port_of_a_run_that_has_started_meanwhile(locked):
    facts = locked((replace(RUNS, run="other"),), resumed=False)
    assert plan.choose_port(facts) == 29501


def test_a_suggested_command_logs_in_as_the_deploy_did(tmp_path):
    """With a node's name alone, `attach`, `stop`, `fetch` and `logs` once asked as another user, on another port."""
    typed = "me@10.0.0.1:2222,b"
    sessions = [SimpleNamespace(name=host.name, host=host) for host in hosts_of_flag(typed)]
    nodes = {session.name: session.name for session in sessions}
    run = HostsBackend(sessions, RunHandle(tmp_path / "r1", nodes, True, ()), print)
    assert f"muster attach {run.run_options}" == f"muster attach --hosts {typed} --run r1"
    assert hosts_of_flag(run.run_options.split()[1]) == hosts_of_flag(typed)
