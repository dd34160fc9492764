"""A follower's connection to a host is lost and opened again."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.core.names import NodeName
from deploy.core.results import Results
from deploy.door import session
from deploy.hosts import backend
from deploy.hosts.backend import HostsBackend, RunHandle
from deploy.job.inventory import Host


@pytest.fixture
def following(tmp_path, monkeypatch):
    """A follower of one host. `answers`: the results of the next attempts; `open`: the open connections."""
    made = SimpleNamespace(answers=[], open=[], said=[])

    @contextmanager
    def open_all(hosts):
        answer = made.answers.pop(0)
        if isinstance(answer, Exception) and type(answer) is not DeployError:
            raise answer
        made.open.append(answer)
        yield Results({"a": answer})
        made.open.remove(answer)

    monkeypatch.setattr(session, "open_all", open_all)
    monkeypatch.setattr(backend, "AGAIN_S", 0.0)
    handle = RunHandle(tmp_path, {"a": NodeName("a")}, True, (), away=[Host("a", "a")])
    made.backend = HostsBackend([], handle, made.said.append)
    return made


@pytest.mark.parametrize(
    "fault", [DeployError("a: no route"), UsageError("no room in /tmp"), OSError(24, "Too many open files")]
)
def test_opening_a_connection_is_retried_after_any_failure(fault, following):
    """Once, a momentary shortage on this machine ended the thread that retries: the host was lost for good."""
    following.answers = [fault, fault, "first"]
    following.backend._reopen("a")
    assert following.backend.sessions == ["first"]
    assert following.said.pop() == "a: connected again"
    assert following.said == ([] if type(fault) is DeployError else [f"a: {fault}"]), "once, and of silence no word"


def test_a_host_that_was_lost_many_times_has_one_connection_and_none_at_the_end(following):
    """Once, each connection left a thread, a folder and a settings file behind until the run had ended."""
    following.answers = list("abcdefgh")
    for _ in range(8):
        following.backend._reopen("a")
    assert following.open == ["h"]
    following.backend.close()
    assert following.open == []
