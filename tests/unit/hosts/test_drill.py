"""A drill on hosts: what it takes of the user's job, whom it leaves alone, and the order of its faults."""

import pytest

from deploy.core.errors import DeployError
from deploy.core.names import RunId
from deploy.door.session import Done
from deploy.host.facts import Container
from deploy.hosts import drill
from deploy.job.load import containers_alone, folder_to_send
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.run import drill as judge
from deploy.run.progress import State

pytestmark = pytest.mark.usefixtures("allowed")


def container(code=None, ours=True):
    user = "" if ours else "eve"
    return Container("her-run", "b", 1, 2, "muster-her-run", "Up", code, 29500, ours=ours, user=user)


def test_a_run_of_anybody_refuses_the_drill_and_one_that_has_ended_does_not():
    drill.refuse_busy({"a": (), "b": (container(code=0),)})
    with pytest.raises(DeployError, match="b: her-run runs there"):
        drill.refuse_busy({"a": (), "b": (container(),)})
    with pytest.raises(DeployError, match="her-run of eve runs there"):
        drill.refuse_busy({"b": (container(ours=False),)})


def test_the_drill_takes_the_hosts_of_the_file_and_neither_script_nor_secret_nor_command(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[[hosts]]\nname = "a"\ninterface = "eth1"\n\n[job]\nscript = "train.py"\nfolder = "."\non_end = "mail me"\n'
        'secrets = ["HF_TOKEN"]\nmounts = ["/data:/data"]\nmemory = "4g"\nenvironment = { NCCL_DEBUG = "INFO" }\n'
    )
    own = Options(cluster=str(path), args="--steps 5")
    cluster = containers_alone(own)
    assert cluster.hosts[0].interface == "eth1"
    assert (cluster.job.memory, cluster.job.environment) == ("4g", {"NCCL_DEBUG": "INFO"})
    job = cluster.job
    assert (job.script, job.folder, job.on_end, job.secrets, job.mounts) == ("", None, "", (), ())
    assert folder_to_send(own, cluster) is None


class Hosts:
    """Sessions to hosts, which keep what they are asked to run."""

    def __init__(self):
        self.ran = []

    def __getitem__(self, host):
        return Session(host, self.ran)


class Session:
    def __init__(self, host, ran):
        self.name, self.ran = host, ran

    def run(self, argv, **_):
        self.ran.append((self.name, tuple(argv)))
        return Done(137, "killed\n", "")


@pytest.fixture
def now(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(drill.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(drill.audit, "note", lambda *_: None)
    return clock


class Drill:
    """A drill on three hosts that answer, and the events of its run."""

    def __init__(self, clock):
        self.clock, self.hosts, self.step = clock, Hosts(), 10
        self.state = State(("a", "b", "c"))
        self.planned = judge.assign("abc")
        self.scene = drill._Scene(RunId("drill-1"), self.hosts, self.planned, Console())
        self.tell(self.of(*"abc", kind="started", pid=40), self.of("a", kind="checkpoint"), self.trains())

    def of(self, *nodes, **fields):
        ranks = {"a": 0, "b": 1, "c": 2}
        return [{"t": 1.0, "rank": ranks[node], "node": node, "step": self.step, **fields} for node in nodes]

    def trains(self):
        self.step += 10
        return self.of(*"abc", kind="step")

    def tell(self, *groups, after=0.0):
        self.clock[0] += after
        events = [event for group in groups for event in group]
        for event in events:
            self.state.apply(event)
        self.scene.hear(self.state, events)

    def again(self):
        """All ranks start again, train, and are quiet for a while."""
        self.tell(self.of(*"abc", kind="started", pid=41), self.trains(), after=1.0)
        self.tell(after=judge.SETTLE_S)

    def kinds(self):
        return [
            (host, "unpause" if "unpause" in argv else argv[3] if argv[0] == "sh" else argv[1])
            for host, argv in self.hosts.ran
        ]


def test_the_faults_come_one_after_the_other_and_the_drill_is_over_when_all_are_back(now):
    on = Drill(now)
    assert on.hosts.ran[0][1][-1] == "40"
    on.again()
    on.tell()
    assert on.kinds() == [("c", "exec"), ("b", "pause")]
    on.tell(on.trains(), after=judge.PAUSE_S - 0.1)
    assert on.kinds()[2:] == []
    on.tell(after=0.2)
    assert on.kinds()[2:] == [("b", "unpause")]
    on.tell(on.trains(), after=1.0)
    on.tell(after=judge.SETTLE_S)
    on.tell()
    assert on.kinds()[3:] == [("a", "exec")]
    on.again()
    assert not on.scene.over
    on.tell()
    assert on.scene.over
    assert judge.passed(on.scene.trials)


def test_a_fault_that_the_run_does_not_survive_is_the_last_one(now):
    on = Drill(now)
    on.tell(after=judge.LIMIT_S)
    assert on.scene.over
    assert not judge.passed(on.scene.trials)
    assert len(on.hosts.ran) == 1


def test_a_run_that_ends_says_so_in_the_trial_that_was_going_on(now):
    on = Drill(now)
    on.scene.ended("c is lost")
    assert on.scene.trials[-1].end == "c is lost"


def test_a_fault_that_the_host_could_not_make_ends_the_drill(now, monkeypatch):
    monkeypatch.setattr(Session, "run", lambda *_, **__: Done(1, "", "no such container"))
    with pytest.raises(DeployError, match="no such container"):
        Drill(now)


def test_what_kills_the_agent_does_not_find_itself():
    """The script's own command line is searched, too."""
    argv = drill._command(judge.AGENT, "muster-x", None)
    assert "trainer.node.agent" not in " ".join(argv)
