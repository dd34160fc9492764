"""Messages name the command that the user types, and leave the user's own text as it is."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import nodes

HOME = Path(__file__).resolve().parents[3]
REFUSED = """
import sys
sys.argv[0] = sys.argv[1]
from pathlib import Path
from deploy.core.errors import UsageError
from deploy.run import resumable
try:
    resumable.choose(Path("runs"), "no fab such make up folder RUN=1", resumable.Asked())
except UsageError as fault:
    print(fault.message, fault.hint, sep="\\n")
"""
PRINTED = """
import sys
sys.argv[0] = sys.argv[1]
from deploy.causes.table import ROWS, lines_of
for row in ROWS.values():
    print(*lines_of(row), sep="\\n")
"""


@pytest.mark.parametrize(
    ("program", "option", "command"), [(".venv/bin/fab", "RESUME", "make"), ("/opt/bin/muster", "--resume", "muster")]
)
def test_a_message_names_the_users_command_and_not_the_users_text(program, option, command):
    words = [sys.executable, "-c", REFUSED, program]
    message, hint = subprocess.run(words, cwd=HOME, capture_output=True, text=True, check=True).stdout.splitlines()
    assert message == f"{option}=no fab such make up folder RUN=1: no such run"
    assert f"`{command} runs`" in hint


def test_a_cause_that_is_printed_names_the_users_command():
    words = [sys.executable, "-c", PRINTED, "/opt/bin/muster"]
    text = subprocess.run(words, cwd=HOME, capture_output=True, text=True, check=True).stdout
    assert "`muster bootstrap`" in text
    assert "fab " not in text


def test_no_message_names_a_command_in_its_own_words():
    """A message takes the command's name from core/program.py; docstrings are for readers of the code.

    The rows of causes are a page, which says `fab`; causes/table.py says the user's own where a row is printed.
    """
    named = re.compile(r"\bfab (?=[a-z])|\bmake (?=(?:up|down|runs|report)\b)|\b(?:RESUME|WORKERS|BACKEND)=")
    commands = []
    for path in (HOME / "deploy").rglob("*.py"):
        if "causes/rows" in str(path) or not named.search(path.read_text()):
            continue
        every = nodes(path)
        plain = {id(node.value) for node in every if isinstance(node, ast.Expr)}
        texts = [node for node in every if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        commands += [
            f"{path.relative_to(HOME)}:{text.lineno}: {text.value}"
            for text in texts
            if id(text) not in plain and named.search(text.value)
        ]
    assert commands == []
