"""Limit how much code each part has: the limits only fall.

A unit is a node of the syntax tree without docstrings, or a word outside comments in a file that is not Python, so
comments, layout and dense lines do not change the count. To raise a limit, name in the same commit what was removed for
it; a new capability gets a line of its own. When a part has become smaller, `BUDGET=write pytest
tests/unit/test_budget.py` lowers its limit.
"""

import ast
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.sources import nodes, parsed

HOME = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("budget.txt")
_OTHERS = {".sh", ".toml", ".js", ".html", ".css", ".jinja", ".yml", ".yaml"}
_NO_CODE = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# How far a part may exceed its limit before this test fails, so that a fix of a few lines needs no negotiation.
_ROOM = 1.005
MOST_PARAMETERS = 8


def files(*suffixes):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOME, capture_output=True, text=True, check=True).stdout
    return [path for path in map(Path, listed.split("\0")) if path.suffix in suffixes and (HOME / path).is_file()]


def units(path):
    """How many units a file has."""
    if path.suffix != ".py":
        lines = path.read_text(errors="replace").splitlines()
        return sum(len(line.split()) for line in lines if not line.lstrip().startswith(("#", "//", "/*", "*")))
    documented = sum(isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None for node in nodes(path))
    return sum(not isinstance(node, _NO_CODE) for node in nodes(path)) - 2 * documented


def budget():
    """The limit of each part, from budget.txt."""
    rows = (line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#"))
    return {part: int(number.replace("_", "")) for part, number in rows}


def counted():
    """How many units each part with a limit has now; a part is a folder, or a file that is a capability of its own."""
    parts, counts = budget(), Counter()
    for path in files(".py", *_OTHERS):
        for part in {str(path), *map(str, path.parents)} & parts.keys():
            counts[part] += units(HOME / path)
    return {part: counts[part] for part in parts}


@pytest.fixture(scope="module")
def counts():
    """The units of each part; with BUDGET=write, the limits in the table are lowered to them."""
    now = counted()
    if os.environ.get("BUDGET") == "write":
        text = TABLE.read_text()
        for part, number in now.items():
            lower = min(number, budget()[part])
            text = re.sub(rf"^({re.escape(part)} +)[\d_]+$", rf"\g<1>{lower:_}", text, flags=re.MULTILINE)
        TABLE.write_text(text)
    return now


def test_no_part_exceeds_its_limit(counts):
    over = {part: (number, budget()[part]) for part, number in counts.items() if number > budget()[part] * _ROOM}
    assert not over, "units now, and allowed"


def test_every_package_has_a_limit(counts):
    packages = {str(path.parent) for path in files(".py") if path.name == "__init__.py" and len(path.parts) == 3}
    assert {part for part in packages if part.startswith(("deploy/", "trainer/"))} <= counts.keys()


def test_a_function_has_few_parameters():
    many = []
    for path in files(".py"):
        if path.parts[0] in ("deploy", "muster"):
            for node in nodes(HOME / path):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                    own = [each.arg for each in named if each.arg not in ("self", "cls")]
                    many += [f"{path}:{node.lineno} {node.name}"] if len(own) > MOST_PARAMETERS else []
    assert not many


def test_the_count_ignores_comments_and_docstrings(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('"""Words."""\n\n# More words.\ndef add(a):\n    """Add."""\n    return a + 1\n')
    assert parsed(path)
    bare = tmp_path / "b.py"
    bare.write_text("def add(a): return a + 1\n")
    assert units(path) == units(bare)
