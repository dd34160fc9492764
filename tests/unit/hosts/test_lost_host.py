"""When a host that falls silent ends a run, as a follower sees it: the message, and after how long."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy.core.facts import NodeState
from deploy.core.names import NodeName
from deploy.hosts.backend import HostsBackend, RunHandle
from deploy.hosts.mirror import Mirror
from deploy.run.follow import _Watch, changes
from deploy.run.outcome import Result, concluded
from deploy.run.progress import State

NAMES = ("a", "b", "c")
BEGAN = 1_000_000.0


@dataclass
class Watched:
    """A run on three hosts, looked at every half second. `silent`: since when each silent host has been silent."""

    run_dir: Path
    patch: pytest.MonkeyPatch
    script: bool = True
    least: int = 0
    wait_lost_s: float | None = None
    trains: bool = False
    stuck: bool = False
    silent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now, self.looks = BEGAN, 0
        for name in ("time", "monotonic"):
            self.patch.setattr(time, name, lambda: self.now)
        wait = {} if self.wait_lost_s is None else {"wait_lost_s": self.wait_lost_s}
        handle = RunHandle(
            self.run_dir, {name: NodeName(name) for name in NAMES}, self.script, (), least=self.least, **wait
        )
        self.backend = HostsBackend([], handle, lambda words: None)
        mirrors = {name: Mirror(self.run_dir, name, NodeName(name), lambda words: None) for name in NAMES}
        for name, mirror in mirrors.items():
            mirror.state = NodeState(name, "running")
        self.mirrors = self.backend._mirrors = mirrors
        self.state = State(NAMES, script=self.script, least=self.least, **wait)
        for rank, name in enumerate(NAMES):
            about = {"t": self.now, "rank": rank, "node": name}
            self.tell({"kind": "node_up", "t": self.now, "node": name, "address": f"10.0.0.{rank}"})
            kind = "began" if self.script else "started"
            self.tell(
                {"kind": kind, **about, "attempt": 0, "world": 3, "pid": rank}, {"kind": "step", **about, "step": 7}
            )

    def tell(self, *events: dict) -> None:
        for event in events:
            self.state.apply(event, self.now)

    def look(self) -> None:
        self.now += 0.5
        self.looks += 1
        for name, mirror in self.mirrors.items():
            at = self.silent.get(name, self.now)
            mirror._line_at = mirror._answer_at = at
            mirror._grew_at = {f"telemetry/{name}.jsonl": at}
        for rank, name in enumerate(NAMES):
            about = {"t": self.now, "rank": rank, "node": name}
            if self.trains and name not in self.silent:
                self.tell({"kind": "step", **about, "step": 7 + self.looks})
            if self.stuck and name not in self.silent and rank not in self.state.ranks.stuck:
                self.tell(
                    {"kind": "stuck", **about, "step": 7, "doing": "backward", "since_s": 8.0, "file": "train.py"}
                )

    def end(self, within_s: float) -> tuple[float, Result] | None:
        """How many seconds until the run is over, and its result; None if it does not end within `within_s`."""
        watch = _Watch(self.backend, self.state, lambda: 0)
        self.patch.setattr(self.backend, "stop", lambda: None)
        began = self.now
        while self.now - began < within_s:
            self.look()
            for event in changes(self.backend.states(self.state), self.state):
                self.state.apply(event, self.now)
            self.state.inquire(self.now)
            watch.step(self.now)
            if watch._result:
                return self.now - began, concluded(watch._result, self.state.case.finding)
        return None

    def goes_silent(self, *names: str) -> None:
        self.silent = dict.fromkeys(names, self.now)

    def node_ends(self, name: str, code: int) -> None:
        self.mirrors[name].state, self.mirrors[name].over = NodeState(name, "exited", code), True


@pytest.fixture
def watched(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()

    def make(**more) -> Watched:
        return Watched(tmp_path, monkeypatch, **more)

    return make


def test_ranks_that_wait_for_a_silent_host_end_after_wait_lost(watched):
    run = watched(wait_lost_s=60.0, stuck=True)
    run.goes_silent("b")
    after_s, result = run.end(90.0)
    assert 60.0 < after_s < 65.0
    assert (result.verdict, result.node, result.rank) == ("failed", "b", 1)
    assert result.message == "b (rank 1) is lost: it has not answered for 11 s, and ranks 0, 2 wait for it"
    assert result.message in [line.text for line in run.state.story]


def test_a_lost_host_is_waited_for_ten_minutes_by_default(watched):
    run = watched(stuck=True)
    run.goes_silent("b")
    assert run.end(600.0) is None
    assert run.end(5.0)[1].node == "b"


@pytest.mark.parametrize("script", [True, False])
def test_while_the_ranks_train_a_silent_host_ends_no_run(watched, script):
    run = watched(script=script, wait_lost_s=60.0, trains=True)
    run.goes_silent("b")
    assert run.end(900.0) is None


def test_ranks_of_musters_trainer_wait_as_long_although_they_report_no_hang(watched):
    run = watched(script=False, wait_lost_s=60.0)
    run.goes_silent("b")
    after_s, result = run.end(90.0)
    assert 60.0 < after_s < 65.0
    text = "b (rank 1) cannot be reached at step 7, and the run cannot continue without it"
    assert (result.node, result.message, result.hint) == ("b", text, "is its host up? logs/b.log has its last words")


@pytest.mark.parametrize("before_s", [20.0, 0.5, 0.0], ids=["long before", "a moment before", "last"])
def test_a_node_that_ended_because_it_lost_a_silent_host_is_not_blamed(watched, before_s):
    """`before_s`: how long before the host fell silent the ranks made their last step."""
    run = watched(wait_lost_s=600.0)
    assert run.end(before_s) is None
    run.goes_silent("b")
    run.node_ends("c", 1)
    after_s, result = run.end(60.0)
    assert 12.0 < after_s < 16.0
    assert (result.node, result.cause) == ("b", "node-lost")


def test_a_lost_host_ends_no_run_if_enough_nodes_are_left(watched):
    run = watched(wait_lost_s=60.0, least=2)
    run.goes_silent("b")
    run.tell(
        {
            "kind": "members",
            "t": run.now,
            "rank": 0,
            "node": "a",
            "epoch": 2,
            "planned": 3,
            "members": ["a", "c"],
            "before": list(NAMES),
        }
    )
    assert run.end(300.0) is None


def test_if_no_host_answers_this_machine_is_cut_off_and_the_run_continues(watched):
    run = watched(wait_lost_s=60.0)
    run.goes_silent(*NAMES)
    with pytest.raises(Exception, match=r"no host of .* has answered for 60 s; the run may still be running there"):
        run.end(90.0)
    assert not [node for node in run.state.nodes.states.values() if node.state == "lost"]
