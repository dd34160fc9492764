"""`make test` repeats failed tests alone: a test that then passes is reported, and the run still counts."""

import subprocess
import sys

import pytest

from tests import once_more

pytestmark = pytest.mark.long
ONCE = """
import pathlib
def test_{name}():
    times = pathlib.Path("{name}")
    times.write_text(times.read_text() + "x" if times.exists() else "x")
    assert len(times.read_text()) > {needed}
"""


@pytest.fixture
def tests(tmp_path, monkeypatch):
    """Returns a function: run `make test` on tests that fail this number of times (by name) before they pass.

    It returns the exit code.
    """

    def called(words):
        command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".", "-q", *words]
        return subprocess.call(command, cwd=tmp_path)

    def run(**fails):
        for name, times in fails.items():
            (tmp_path / f"test_{name}.py").write_text(ONCE.format(name=name, needed=times))
        return once_more.main(["."])

    monkeypatch.setattr(once_more, "_pytest", called)
    monkeypatch.setattr(once_more, "_FAILED", tmp_path / ".pytest_cache/v/cache/lastfailed")
    run.times = lambda name: len((tmp_path / name).read_text())
    return run


def test_a_test_that_passes_alone_is_reported_and_the_exit_code_is_0(tests, capsys):
    assert tests(good=0, race=1) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "FAILED ONCE test_race.py::test_race"
    assert (tests.times("good"), tests.times("race")) == (1, 2)


def test_a_test_that_fails_again_makes_the_exit_code_1(tests, capsys):
    assert tests(good=0, race=1, wrong=9) == 1
    assert "FAILED ONCE" not in capsys.readouterr().out


def test_many_failures_are_not_repeated(tests):
    assert tests(**{f"race{number}": 1 for number in range(6)}) == 1
    assert tests.times("race0") == 1


def test_passing_tests_run_only_once(tests):
    assert tests(good=0) == 0
    assert tests.times("good") == 1
