"""The one order of every start: look, plan, launch, follow; and what a dry run or a failure leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.run import environment
from deploy.run.files import folders, record
from deploy.run.start import Start, start_run
from tests.unit.run.memory_backend import MemoryBackend


class Remembered(Start[MemoryBackend]):
    """A start that records the steps it is asked for. `fails`: the step that fails."""

    def __init__(self, fails: str = "") -> None:
        self.steps, self.fails = list[str](), fails

    def _do(self, step: str) -> None:
        self.steps.append(step)
        if step == self.fails:
            raise DeployError(f"{step} failed")

    @contextmanager
    def reach(self) -> Iterator[None]:
        self._do("reach")
        try:
            yield
        finally:
            self.steps.append("leave")

    def show_plan(self) -> None:
        self._do("show")

    def choose_folder(self) -> Path:
        self._do("folder")
        return record.new_folder("r1", ("train.py",), True)

    @contextmanager
    def open_backend(self, run_dir: Path) -> Iterator[MemoryBackend]:
        self._do("hold")
        run = environment.local_spec(run_dir, 1, 1, [], 29500, 2, "Linux")
        try:
            yield MemoryBackend(run)
        finally:
            self.steps.append("release")

    def record_start(self, backend: MemoryBackend) -> dict[str, bytes]:
        self._do("record")
        run = backend.run
        return record.open_start(run.run_dir, record.Choice(None, ("train.py",)), "memory", "", run.names, 1.0)

    def tell_started(self, backend: MemoryBackend) -> None:
        self._do("tell")

    def follow(self, backend: MemoryBackend) -> int:
        self._do("follow")
        return 7


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    return tmp_path / "runs"


def test_a_start_reaches_records_launches_tells_and_follows_in_this_order(runs: Path) -> None:
    start = Remembered()
    assert start_run(start, lambda: None) == 7
    assert start.steps == ["reach", "folder", "hold", "record", "release", "tell", "follow", "leave"]
    assert (runs / "r1/record.json").exists()


def test_a_dry_run_creates_and_holds_nothing(runs: Path) -> None:
    start = Remembered()
    start.dry_run = True
    assert start_run(start, lambda: None) == 0
    assert start.steps == ["reach", "show", "leave"]
    assert not runs.exists()


def test_a_detached_run_is_announced_and_not_followed() -> None:
    start = Remembered()
    start.detach = True
    assert start_run(start, lambda: None) == 0
    assert start.steps[-2:] == ["tell", "leave"]


@pytest.mark.parametrize("step", ["reach", "folder", "hold", "record"])
def test_a_failure_before_the_nodes_run_releases_what_was_held_and_announces_nothing(step: str, runs: Path) -> None:
    start = Remembered(step)
    with pytest.raises(DeployError, match=f"{step} failed"):
        start_run(start, lambda: None)
    assert "tell" not in start.steps
    assert ("release" in start.steps) == (step == "record")
    assert not (runs / "r1/record.json").exists()


def test_a_name_that_is_taken_is_refused_whoever_took_it(runs: Path) -> None:
    (runs / "r1").mkdir(parents=True)
    start = Remembered()
    with pytest.raises(DeployError, match="a run of this name exists already"):
        start_run(start, lambda: None)
    with pytest.raises(DeployError, match="exists already"):
        record.new_folder("r2", (), False, {"r2"})
    assert not (runs / "r2").exists()
