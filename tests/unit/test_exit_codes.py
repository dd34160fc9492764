"""Exit codes have names, and one home in each half."""

import ast
import re
from pathlib import Path

from deploy.core import errors as deploy
from muster import errors as trainer
from tests.sources import nodes

ROOT = Path(__file__).resolve().parents[2]
HOMES = {"deploy/core/errors.py", "muster/errors.py"}
# Sent to hosts as text of their own; what a shell says of a program that is not there.
FOREIGN = {"deploy/ssh/command.py", "trainer/rehearsal.py"}
FOREIGN |= {f"deploy/preflight/probe/{name}.py" for name in ("probe", "facts")}
FILES = [path for half in ("deploy", "trainer", "muster") for path in sorted((ROOT / half).rglob("*.py"))]


def _is_code(node: ast.expr) -> bool:
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name in ("code", "exitcode", "returncode")


def _numbers(node: ast.expr) -> list[int]:
    """Numbers other than 0, which every program means the same by."""
    values = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return [value for value in values if type(value) is int and value]


def _literals(path: Path) -> list[int]:
    """Numbers that a code is compared with, or that a process exits with."""
    numbers = []
    for node in nodes(path):
        if isinstance(node, ast.Compare) and _is_code(node.left):
            numbers += [number for right in node.comparators for number in _numbers(right)]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("exit", "_exit"):
            numbers += [number for word in node.args if isinstance(word, ast.Constant) for number in _numbers(word)]
    return numbers


def test_no_module_has_an_exit_code_of_its_own() -> None:
    files = [path for path in FILES if re.search(r"code\b|exit\(", path.read_text())]
    numbers = {str(path.relative_to(ROOT)): _literals(path) for path in files}
    assert not {name: own for name, own in numbers.items() if own and name not in HOMES | FOREIGN}


def test_both_halves_mean_the_same() -> None:
    shared = ("DONE", "FAILED", "STOPPED", "SIGNALLED", "TAKEN", "NOBODY_WAITS")
    assert [getattr(deploy, name) for name in shared] == [getattr(trainer, name) for name in shared]
    assert deploy.USAGE == trainer.REFUSED
