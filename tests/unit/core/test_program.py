"""Every message names the program `muster`, whichever command was typed."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.sources import nodes

HOME = Path(__file__).resolve().parents[3]
PRINTED = """
from deploy.causes.table import ROWS, lines_of
for row in ROWS.values():
    print(*lines_of(row), sep="\\n")
"""


def test_a_printed_cause_names_the_muster_command():
    words = [sys.executable, "-c", PRINTED]
    text = subprocess.run(words, cwd=HOME, capture_output=True, text=True, check=True).stdout
    assert "`muster bootstrap`" in text
    assert "fab " not in text


def test_no_message_names_another_program_of_ours():
    """`fab` runs the same commands, and `make up` works only in a checkout: neither exists after `pip install`."""
    named = re.compile(r"\bfab (?=[a-z])|\bmake (?=(?:up|down|runs|report)\b)|\b(?:RESUME|WORKERS|BACKEND)=")
    commands = []
    for path in (HOME / "deploy").rglob("*.py"):
        if not named.search(path.read_text()):
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
