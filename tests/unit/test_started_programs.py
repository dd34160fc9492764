"""Programs that Muster starts on this machine import nothing from the current folder, which may be somebody else's.

With `-c` and `-m`, Python imports from the current folder, unless it gets -P or -I, or starts in another folder.
Programs that a test starts end with it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import nodes
from tests.started import started

TESTS = Path(__file__).resolve().parents[1]
DEPLOY = TESTS.parent / "deploy"
# Without the parts of deploy/ that run in containers and on hosts, where no user's folder is current.
FILES = [path for path in DEPLOY.rglob("*.py") if not {"inside", "probe"} & set(path.parts)]
IS_PYTHON = ("sys.executable", "self.python", "python", "script.python()", "head.python", "'python3'", "'python'")


def starts(path: Path) -> list[tuple[int, str]]:
    """The commands in this module that start Python with -m or -c, without -P or -I, each with its line."""
    found = []
    for node in nodes(path):
        # Unparsing every list of the code base would take a second.
        if isinstance(node, ast.List | ast.Tuple) and any(
            getattr(word, "value", "") in ("-m", "-c") for word in node.elts
        ):
            words = [ast.unparse(word) for word in node.elts]
            begins = any(word in IS_PYTHON for word in words)
            if begins and {"'-m'", "'-c'"} & set(words) and not {"'-P'", "'-I'"} & set(words):
                found.append((node.lineno, ast.unparse(node)))
    return found


def elsewhere(path: Path) -> set[int]:
    """The lines of calls that set the folder to start in (cwd)."""
    calls = (node for node in nodes(path) if isinstance(node, ast.Call))
    named = [node for node in calls if any(word.arg == "cwd" for word in node.keywords)]
    return {line for node in named for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


@pytest.mark.holds("looking-runs-nothing")
def test_no_python_is_started_that_imports_from_the_current_folder():
    begun = {path: starts(path) for path in FILES}
    bad = {path: [row for row in rows if row[0] not in elsewhere(path)] for path, rows in begun.items() if rows}
    assert not {str(path): rows for path, rows in bad.items() if rows}


def test_the_search_finds_a_python_that_imports_from_the_current_folder(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip'])\n")
    assert starts(bad)
    (tmp_path / "json.py").write_text("raise SystemExit(7)\n")
    for words, code in ((("-c", "import json"), 7), (("-P", "-c", "import json"), 0)):
        assert subprocess.run([sys.executable, *words], cwd=tmp_path, check=False).returncode == code


# Each has its own limit.
WITH_LIMIT = {"started.py", "browser.py", "image/test_transfer_local.py", "hostile/server.py"}


def test_tests_start_programs_that_end_with_them():
    bare = "with subprocess." + "Popen("
    files = {str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if bare in path.read_text()}
    assert files <= WITH_LIMIT, "use tests/started.py"


@pytest.mark.parametrize(
    ("seconds", "awaited", "why"), [(60.0, "another line\n", "another line"), (0.5, "", "killed after 0.5 s")]
)
def test_a_test_that_fails_does_not_wait_for_its_program(seconds, awaited, why):
    """Earlier, it hung: the program waited for what the test would have sent."""
    programs = []

    def check():
        words = ["sh", "-c", "echo a line; exec sleep infinity"]
        with started(words, seconds, stdout=subprocess.PIPE, text=True) as program:
            programs.append(program)
            assert awaited in ("", program.stdout.readline())
            program.stdout.read()

    with pytest.raises(AssertionError, match=why):
        check()
    assert programs[0].returncode == -9
