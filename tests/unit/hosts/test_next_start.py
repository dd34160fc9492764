"""The command that the follower of a run that lost a host is told to type."""

from types import SimpleNamespace

import pytest

from deploy.core.names import NodeName
from deploy.hosts.backend import HostsBackend, RunHandle
from deploy.hosts.look import attach
from deploy.job.inventory import Host
from deploy.report.console import Console
from deploy.report.script_lines import shown_ranks
from deploy.run.files import folders, record
from deploy.run.outcome import Result

# A host in cluster.toml has a name in addition to its address.
HOSTS = (Host("gpu-a", "10.0.0.1", None, "me"), Host("gpu-b", "10.0.0.2", 2222, "me"))


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ("gpu-b", "continue with the files that it wrote: muster deploy --hosts me@10.0.0.1 --resume r1"),
        ("", "muster deploy --hosts me@10.0.0.1,me@10.0.0.2:2222 --resume r1"),
    ],
)
def test_the_next_start_leaves_out_the_lost_host_whatever_its_name(lost, words, tmp_path, monkeypatch):
    """Once, it named the dead host again: it was looked up by name, but the record has users, addresses and ports."""
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    handle = RunHandle(tmp_path / "r1", {host.name: NodeName(host.name) for host in HOSTS}, True, ("train.py",))
    record.make_runs(tmp_path)
    attach.open_record(handle, [host.destination for host in HOSTS], {})
    backend = HostsBackend([SimpleNamespace(name=host.name, host=host) for host in HOSTS], handle, pytest.fail)
    monkeypatch.setattr(HostsBackend, "silent_hosts", [lost] if lost else [])
    monkeypatch.setattr(backend, "remove", list)
    ended = []
    monkeypatch.setattr(attach.follow, "follow", lambda *_: Result("failed", "gpu-b is lost"))
    monkeypatch.setattr(attach.host_nodes, "existing_paths", lambda *_: {})
    monkeypatch.setattr(attach.ending, "write", lambda run_dir, result, *_: ended.append(result))
    monkeypatch.setattr(attach.ending, "show", lambda *_: 1)
    monkeypatch.setattr(attach, "may_continue", lambda state: True)
    interrupts = SimpleNamespace(
        leave_by_ctrl_c=lambda *_: None, requests=lambda: 0, take_passed=lambda: (), tell_way_back=lambda: None
    )
    assert attach.follow_until_done(backend, Console(), interrupts, shown_ranks("")) == 1
    assert words in ended[0].hint
