"""tests.forks shares the tests among forked processes: each runs once, and a fork that dies hides no test."""

import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
COUNTS = "def test_it(): open({!r}, 'a').write('x')\n"
FAILS = "def test_it():\n    print('these words')\n    assert 1 == 2\n"
DIES = "import os\ndef test_first(): os.kill(os.getpid(), 9)\ndef test_second(): pass\n"


@pytest.mark.long
def test_every_test_runs_once_and_a_dead_fork_fails_its_test_and_those_it_did_not_run(tmp_path):
    files = {f"n{number}": COUNTS.format(str(tmp_path / "count")) for number in range(9)}
    for name, text in {**files, "fails": FAILS, "z_dies": DIES}.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.forks", "--forks", "2", "-q", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)], cwd=HOME, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, (tmp_path / "count").read_text()) == (1, "x" * 9), done.stdout
    for words in ("these words", "test_first: its process ended", "test_second: not run: the process that had it is"):
        assert words in done.stdout
    assert "3 failed, 9 passed" in done.stdout
