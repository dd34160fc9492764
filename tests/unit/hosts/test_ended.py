"""What is known about a run whose containers are gone."""

import json

import pytest

from deploy.core.errors import DeployError
from deploy.core.names import RunId
from deploy.core.results import HostsFailed, Results
from deploy.host import logs as host_logs
from deploy.host.status import HostRun
from deploy.hosts.look import ended
from deploy.hosts.look import logs as deploy_logs
from deploy.job.inventory import Host as InventoryHost
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.run.files import folders, record, recorded_ends
from deploy.run.outcome import Result
from deploy.run.progress import State

RUN = RunId("r1")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    return tmp_path


def recorded(runs, backend):
    folder = runs / RUN
    folder.mkdir()
    record.open_start(folder, record.Choice(None, ()), backend, "why", ["a"], 1000.0)
    recorded_ends.close(folder, Result("failed"), State(("a",)), 9.0)
    return record.read_json(folder / "outcome.json")["t"]


def test_an_ended_run_is_reported_with_its_age_and_the_hosts_that_have_its_files(runs):
    t = recorded(runs, record.HOSTS)
    fault = ended.end_of(RUN, {"a": [HostRun(RUN, 5.0)], "b": [HostRun(RunId("other"), 5.0)]}, t + 20)
    assert "r1 ended (failed) 20.0 s ago" in fault.message
    assert "logs --hosts a --run r1" in fault.hint
    assert "r1" in ended.end_of(RUN, {"b": []}, t + 20).hint


def test_one_host_with_files_is_enough_to_know_a_run_has_ended(runs):
    fault = ended.end_of(RUN, {"a": [HostRun(RUN, 5.0)], "b": [HostRun(RUN)]}, 1.0)
    assert "r1 has ended" in fault.message
    assert "logs --hosts a --run" in fault.hint
    assert ended.end_of(RUN, {"a": []}, 1.0) is None


def test_a_local_run_says_nothing_about_a_run_on_hosts(runs):
    recorded(runs, "processes")
    assert ended.end_of(RUN, {"a": []}, 1.0) is None


class Host:
    """A session whose host answers with the last events of its ranks."""

    def __init__(self, name, *verdicts):
        self.name, self.host, self.home = name, InventoryHost(name, name, 2222, "me"), "/home/u/.muster"
        self.out = "\n".join(json.dumps({"verdict": verdict, "t": 5.0, "message": "it broke"}) for verdict in verdicts)

    def run(self, _, check=True):
        return self


def shown(end, sessions):
    console = Console(as_json=True)
    return ended.show(end, sessions, console)


def test_attach_shows_an_outcome_recorded_here_and_exits_with_the_runs_code(runs, capsys):
    t = recorded(runs, record.HOSTS)
    end = ended.end_of(RUN, {"a": [HostRun(RUN, 5.0)]}, t)
    assert shown(end, []) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "failed"


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [((["done"], ["done"]), 0), ((["done"], ["failed"]), 1), ((["stopped"], ["stopped"]), 75)],
)
def test_without_a_recorded_outcome_the_ranks_verdicts_on_the_hosts_count(runs, verdicts, code):
    sessions = [Host(name, *of) for name, of in zip("ab", verdicts, strict=True)]
    end = ended.end_of(RUN, {f"me@{name}:2222": [HostRun(RUN, 5.0)] for name in "ab"}, 9.0)
    assert shown(end, sessions) == code


def test_the_rank_that_ended_first_is_named_even_if_only_its_victims_left_a_verdict(runs, capsys):
    """The verdicts alone would name a rank that had lost the killed one."""

    def words(rank, node, t, **end):
        about = {"rank": rank, "node": node, "attempt": 0, "world": 2, "pid": 1}
        return [{"kind": "began", "t": 1.0, **about}, {"kind": "ended", "t": t, **about, **end}]

    lost = {"verdict": "failed", "t": 6.0, "node": "a", "rank": 0, "message": "train.py: Connection closed by peer"}
    of_a = [*words(0, "a", 5.5, code=1, victim=True, error="Connection closed by peer"), lost]
    of_b = words(1, "b", 5.0, code=-9, how="was killed by SIGKILL", cause="container-out-of-memory")
    hosts = [Host("a"), Host("b")]
    for host, lines in zip(hosts, (of_a, of_b), strict=True):
        host.out = "\n".join(map(json.dumps, lines))
    end = ended.end_of(RUN, {f"me@{name}:2222": [HostRun(RUN, 5.0)] for name in "ab"}, 9.0)
    assert shown(end, hosts) == 1
    assert json.loads(capsys.readouterr().out)["message"].startswith("b (rank 1) was killed by SIGKILL")


def test_a_run_is_not_done_if_a_hosts_ranks_left_no_verdict(runs):
    end = ended.end_of(RUN, {f"me@{name}:2222": [HostRun(RUN, 5.0)] for name in "ab"}, 9.0)
    with pytest.raises(ended.RunEnded):
        shown(end, [Host("a", "done"), Host("b")])
    with pytest.raises(ended.RunEnded):
        shown(end, [Host("a")])


def test_the_suggested_commands_log_in_as_this_one_did(runs, monkeypatch):
    """Once, they named gpu-a for me@gpu-a:2222: another user, on another port."""
    monkeypatch.setattr(ended.observe, "runs", lambda session: [HostRun(RUN, 5.0)] if session.name == "a" else [])
    with pytest.raises(ended.RunEnded) as end:
        ended.refuse(RUN, [Host("a"), Host("b")])
    hosts = "--hosts me@a:2222 --run r1"
    assert end.value.hint == f"its logs: muster logs {hosts}; its files: muster fetch {hosts}"


@pytest.mark.parametrize("has", [[], [HostRun(RUN, 5.0)]], ids=["nothing", "its files"])
def test_a_host_that_does_not_answer_may_have_a_run_that_the_others_lack(has, runs, monkeypatch):
    """`muster stop` once said that the hosts have no runs, or that it had ended, without naming the silent host."""
    monkeypatch.setattr(ended.observe, "runs", lambda session: has)
    opened = Results({"a": Host("a"), "b": DeployError("b: connection refused")})
    with pytest.raises(HostsFailed, match="b: connection refused"):
        ended.find_run(RUN, opened, Results({"a": ()}))
    recorded(runs, record.HOSTS)
    with pytest.raises(ended.RunEnded):  # the outcome recorded on this machine is reported
        ended.find_run(RUN, opened, Results({"a": ()}))


def test_a_host_that_cannot_list_its_runs_may_have_the_run(runs, monkeypatch):
    """`muster stop` once said that the run is not on these hosts because they have no runs."""

    def slow(session):
        raise DeployError("its disk hangs")

    monkeypatch.setattr(ended.observe, "runs", slow)
    with pytest.raises(HostsFailed, match="a: its disk hangs"):
        ended.find_run(RUN, Results({"a": Host("a")}), Results({"a": ()}))


class Known:
    """A session with only what a log reader needs before it reads."""

    def __init__(self, name):
        self.host = self
        self.name = name


def test_the_logs_of_an_ended_run_are_read_from_every_host_that_has_ranks_of_it():
    answers = {"a": [0, 1], "b": [2]}
    hosts = {
        host: host_logs.parse((), "\n".join(f"r1/logs/rank-{rank}.log" for rank in ranks))
        for host, ranks in answers.items()
    }
    readers, ranks = deploy_logs._readers({host: Known(host) for host in hosts}, hosts, RUN, {}, Options())
    assert [(reader.host, ranks[reader.source]) for reader in readers] == [("a", "0"), ("a", "1"), ("b", "2")]
