"""Exit codes have names, which one file in each half defines."""

import ast
import re
from pathlib import Path

from deploy.core import errors as deploy
from muster import errors as trainer
from tests.sources import nodes, parsed

ROOT = Path(__file__).resolve().parents[2]
HOMES = {"deploy/core/errors.py", "muster/errors.py"}
# These are sent to hosts as text, or run by their path, so they import nothing of ours.
FOREIGN = {"trainer/node/launch/launcher.py", "trainer/node/probe/rehearsal.py"}
# This file checks the exit codes of grep.
FOREIGN |= {"deploy/local/within.py"}
# The bare engine uses the exit codes of engines and shells, and it is sent to a host without the rest of Muster.
FOREIGN |= {f"deploy/engine/bare/{name}.py" for name in ("keeper", "main", "processes")}
FOREIGN |= {f"deploy/preflight/probe/{name}.py" for name in ("probe", "facts")}
FILES = [path for half in ("deploy", "trainer", "muster") for path in sorted((ROOT / half).rglob("*.py"))]


def _is_code(node: ast.expr) -> bool:
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name in ("code", "exitcode", "returncode")


def _numbers(node: ast.expr) -> list[int]:
    """The numbers in an expression, without 0, which means the same to every program."""
    values = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return [value for value in values if type(value) is int and value]


def _mains(path: Path) -> list[ast.FunctionDef]:
    """The functions whose result is the process's exit code: `main`, and those whose result `main` returns."""
    functions = [node for node in nodes(path) if isinstance(node, ast.FunctionDef)]
    names, mains = {"main"}, list[ast.FunctionDef]()
    while more := [each for each in functions if each.name in names and each not in mains]:
        mains += more
        calls = (part for each in more for left in _returned(each) for part in ast.walk(left))
        names = {
            getattr(part.func, "attr", getattr(part.func, "id", "")) for part in calls if isinstance(part, ast.Call)
        }
    return mains


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    return [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]


def _constants(path: Path) -> dict[str, ast.expr]:
    """The values that the file assigns to names at its top level, one name at a time or several."""
    pairs = []
    for node in (node for node in parsed(path).body if isinstance(node, ast.Assign)):
        target, value = node.targets[0], node.value
        several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs += zip(target.elts, value.elts, strict=True) if several else [(target, value)]
    return {target.id: value for target, value in pairs if isinstance(target, ast.Name)}


def _literals(path: Path) -> list[int]:
    """The numbers that an exit code is compared with, that a process exits with, or that its main returns."""
    own = _constants(path)
    left = [own.get(getattr(value, "id", ""), value) for main in _mains(path) for value in _returned(main)]
    numbers = [number for value in left if isinstance(value, ast.Constant) for number in _numbers(value)]
    for node in nodes(path):
        if isinstance(node, ast.Compare) and _is_code(node.left):
            numbers += [number for right in node.comparators for number in _numbers(right)]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("exit", "_exit"):
            words = [own.get(getattr(word, "id", ""), word) for word in node.args]
            numbers += [number for word in words if isinstance(word, ast.Constant) for number in _numbers(word)]
    return numbers


def test_no_module_defines_its_own_exit_code() -> None:
    files = [path for path in FILES if re.search(r"code\b|exit\(|def main", path.read_text())]
    numbers = {str(path.relative_to(ROOT)): _literals(path) for path in files}
    assert not {name: own for name, own in numbers.items() if own and name not in HOMES | FOREIGN}


def test_both_halves_give_the_same_meaning_to_each_exit_code() -> None:
    shared = ("DONE", "FAILED", "STOPPED", "NOT_EXECUTABLE", "NOT_FOUND", "SIGNALLED", "TAKEN", "NO_RECEIVER")
    assert [getattr(deploy, name) for name in shared] == [getattr(trainer, name) for name in shared]
    assert deploy.USAGE == trainer.REFUSED
