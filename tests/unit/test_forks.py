"""The tests that forks share: each runs once, and a fork that dies hides nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


def run(folder, **files):
    """Let two forks run these files of tests; the exit code and the output."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.forks", "--forks", "2", "-q", "--rootdir", str(folder)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(folder)], cwd=HOME, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout


def test_every_test_runs_once_and_a_failure_shows_what_it_printed(tmp_path):
    counts = "import os\ndef test_it(): open({!r}, 'a').write('x')\n"
    files = {f"n{number}": counts.format(str(tmp_path / "count")) for number in range(9)}
    code, output = run(tmp_path, **files, bad="def test_it():\n    print('these words')\n    assert 1 == 2\n")
    assert (code, (tmp_path / "count").read_text()) == (1, "x" * 9), output
    assert "these words" in output
    assert "1 failed, 9 passed" in output


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_fork_that_dies_is_a_failure_of_its_test_and_of_those_that_it_did_not_run(tmp_path, end):
    dies = f"import os\ndef test_first(): {end}\ndef test_second(): pass\n"
    code, output = run(tmp_path, dies=dies, other="def test_it(): pass\n")
    assert code == 1
    assert "test_first: its process ended" in output
    assert "test_second: not run: the process that had it is gone" in output
    assert "2 failed, 1 passed" in output
