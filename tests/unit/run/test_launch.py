"""A run starts completely or leaves nothing, on any backend: the order of `muster deploy` and `make up`."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path

import pytest
import rich.console

from deploy.core.errors import DeployError, EngineLost
from deploy.local import backends, up
from deploy.report.console import Console
from deploy.report.interrupts import Interrupts
from deploy.run import environment, follow
from deploy.run.files import folders, record
from deploy.run.follower import Follower
from deploy.run.progress import State
from deploy.run.start import launch
from tests.unit.run.memory_backend import MemoryBackend

ORDER = ["lock", "check", "prepare", "start", "unlock"]
# All verbs that are called if this one fails or is interrupted.
UNDONE = {
    "lock": ["lock"],
    "check": ["lock", "check", "unlock"],
    "prepare": ["lock", "check", "prepare", "unlock"],
    "start": ["lock", "check", "prepare", "start", "undo", "unlock"],
}


@pytest.fixture
def console() -> Console:
    return Console(out=rich.console.Console(file=io.StringIO()), err=rich.console.Console(file=io.StringIO()))


@pytest.fixture
def run(tmp_path: Path) -> environment.RunSpec:
    (tmp_path / "r1").mkdir()
    return environment.local_spec(tmp_path / "r1", 1, 2, [], 29500, 2, "Linux")


@pytest.fixture
def backend(run: environment.RunSpec) -> MemoryBackend:
    return MemoryBackend(run)


def start(backend: MemoryBackend, console: Console, resumed: bool = False) -> dict[str, bytes]:
    """Launch as `muster deploy` does: until the nodes run, the first Ctrl-C interrupts the start."""
    run = backend.run
    choice = record.Choice(None, run.arguments)
    opened = partial(record.open_start, run.run_dir, choice, "memory", "", run.names, 1.0)
    with Interrupts(console) as interrupts:
        return launch(backend, run.run_dir, resumed, opened, interrupts.hold)


def test_a_start_locks_checks_prepares_and_starts_in_this_order(backend: MemoryBackend, console: Console) -> None:
    start(backend, console)
    assert backend.verbs == ORDER
    assert backend.running == list(backend.run.names)
    assert record.facts(backend.run.run_dir)["nodes"] == list(backend.run.names)


@pytest.mark.parametrize("verb", UNDONE)
def test_a_failure_in_any_phase_leaves_nothing(backend: MemoryBackend, console: Console, verb: str) -> None:
    backend.fails = verb
    with pytest.raises(DeployError, match=f"{verb} failed"):
        start(backend, console)
    assert backend.verbs == UNDONE[verb]
    assert not backend.running
    assert not backend.run.run_dir.exists()


@pytest.mark.parametrize("verb", UNDONE)
def test_ctrl_c_in_any_phase_leaves_nothing(backend: MemoryBackend, console: Console, verb: str) -> None:
    backend.ctrl_c = verb
    with pytest.raises(KeyboardInterrupt):
        start(backend, console)
    assert backend.verbs == UNDONE[verb]
    assert not backend.running
    assert not backend.run.run_dir.exists()


def test_if_one_node_cannot_start_the_others_are_removed_again(backend: MemoryBackend, console: Console) -> None:
    backend.broken = "worker-2"
    with pytest.raises(DeployError, match="worker-2"):
        start(backend, console)
    assert backend.verbs[-2:] == ["undo", "unlock"]
    assert not backend.running
    assert not backend.run.run_dir.exists()


def test_a_start_that_cannot_be_undone_stays_recorded(backend: MemoryBackend, console: Console) -> None:
    backend.broken, backend.fails = "worker-2", "undo"
    with pytest.raises(DeployError, match="undo failed"):
        start(backend, console)
    assert record.facts(backend.run.run_dir)["id"] == "r1", "`make down` finds what is left by this folder"


@pytest.mark.parametrize("verb", ["check", "start"])
def test_a_resume_that_fails_leaves_the_run_as_it_was(backend: MemoryBackend, console: Console, verb: str) -> None:
    start(backend, console)
    record_before = (backend.run.run_dir / "record.json").read_bytes()
    again = MemoryBackend(backend.run)
    again.fails = verb
    with pytest.raises(DeployError):
        start(again, console, resumed=True)
    assert (backend.run.run_dir / "record.json").read_bytes() == record_before


def test_ctrl_c_after_the_start_asks_the_nodes_to_stop(backend: MemoryBackend, console: Console) -> None:
    start(backend, console)
    backend.verdict, backend.ctrl_c = "", "states"
    state = State(backend.run.names)
    with Interrupts(console) as interrupts:
        interrupts.hold()
        result = follow.follow(backend, Follower(backend.run.run_dir), state, lambda _: None, interrupts.requests)
    assert result.verdict == "stopped"
    assert backend.verbs[-1] == "stop"
    assert not backend.running


def test_a_backend_that_vanishes_ends_follow(backend: MemoryBackend, console: Console) -> None:
    start(backend, console)
    backend.vanishes = True
    with pytest.raises(EngineLost):
        follow.follow(backend, Follower(backend.run.run_dir), State(backend.run.names), lambda _: None, int)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[MemoryBackend]:
    """Add the memory backend, by one line in the table, for `make up BACKEND=memory`; return the backends made."""
    made: list[MemoryBackend] = []

    class LocalMemory(MemoryBackend, backends.LocalBackend):
        def __init__(self, run: environment.RunSpec) -> None:
            super().__init__(run)
            backends.LocalBackend.__init__(self, run)
            made.append(self)

    monkeypatch.setitem(backends.BACKENDS, "memory", LocalMemory)
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    return made


def outcome(tmp_path: Path) -> dict[str, object]:
    (path,) = (tmp_path / "runs").glob("*-digits/outcome.json")
    return dict(json.loads(path.read_text()))


def test_make_up_works_on_a_fourth_backend(made: list[MemoryBackend], console: Console, tmp_path: Path) -> None:
    assert up.up(up.Options(backend="memory"), console) == 0
    (backend,) = made
    assert backend.verbs[:5] == ORDER
    assert backend.verbs[5:7] == ["collect_logs", "clean"]
    assert outcome(tmp_path)["verdict"] == "done"
    assert list((tmp_path / "runs").glob("*-digits/report.html"))


@pytest.mark.parametrize("verb", UNDONE)
def test_make_up_that_is_interrupted_before_the_run_starts_leaves_no_folder(
    made: list[MemoryBackend], console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(MemoryBackend, "ctrl_c", verb)
    with pytest.raises(KeyboardInterrupt, match="nothing of the run is left"):
        up.up(up.Options(backend="memory"), console)
    assert made[0].verbs == [*UNDONE[verb], "clean"]
    assert not (tmp_path / "runs").exists()


def test_make_up_stops_with_a_checkpoint_at_ctrl_c(
    made: list[MemoryBackend], console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryBackend, "ctrl_c", "states")
    monkeypatch.setattr(MemoryBackend, "verdict", "")
    assert up.up(up.Options(backend="memory"), console) == 75
    assert "stop" in made[0].verbs
    assert outcome(tmp_path)["verdict"] == "stopped"


def test_make_up_records_that_its_backend_vanished(
    made: list[MemoryBackend], console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryBackend, "vanishes", True)
    assert up.up(up.Options(backend="memory"), console) == 1
    assert made[0].verbs[-1] == "clean"
    assert outcome(tmp_path)["message"] == "the memory is gone"
