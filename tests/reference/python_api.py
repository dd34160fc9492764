"""Makes docs/reference/python-api.md from the signatures and docstrings of the modules that a program may import.

The source is parsed and not imported: making the page needs neither torch nor hosts.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
HEAD = """\
# Python API

Made from `deploy/api.py` and `muster/` by `python -m tests.reference`; do not edit by hand.

`from muster import Cluster` is for a program that starts runs; the other modules are for a training script. Each works
alone, and `import muster` loads none of them. Names that begin with `_`, and modules that are not here, may change.
"""
# For each import line: its file, and the names of it that are stable.
MODULES = {
    "from muster import Cluster, Run": ("deploy/api.py", ("Cluster", "Run", "Outcome", "RunFailed")),
    "from muster import Training": ("muster/training.py", ("Training",)),
    "from muster.data import ...": ("muster/data.py", ("StreamSampler", "batches", "share")),
    "from muster.metrics import Metrics": ("muster/metrics.py", ("Metrics",)),
    "from muster.stop import Stop": ("muster/stop.py", ("Stop",)),
    "from muster.lightning import OrderlyStop": ("muster/lightning.py", ("OrderlyStop",)),
}


def python_page() -> str:
    """The page, with a section for each import."""
    parts = [HEAD]
    for title, (file, names) in MODULES.items():
        tree = ast.parse((HOME / file).read_text())
        found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        parts.append(f"## {title}\n")
        for name in names:
            parts += describe(found[name])
    return "\n".join(parts)


def describe(node: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
    """Describe a class with its public methods and fields, or a function."""
    if isinstance(node, ast.FunctionDef):
        yield from _described(node, node.name, "###")
        return
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    made = next((each for each in methods if each.name == "__init__"), None)
    yield f"### {node.name}\n"
    yield f"```python\n{node.name}({_arguments(made)})\n```\n" if made else ""
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    yield "".join(f"- `{ast.unparse(each)}`\n" for each in fields)
    yield _text(node)
    for each in methods:
        if not each.name.startswith("_"):
            yield from _described(each, f"{node.name}.{each.name}", "####")


def _described(node: ast.FunctionDef, name: str, level: str) -> Iterator[str]:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    is_property = any(ast.unparse(each) == "property" for each in node.decorator_list)
    shown = f"{name}{returns.replace(' ->', ':')}" if is_property else f"{name}({_arguments(node)}){returns}"
    yield f"{level} {name}\n\n```python\n{shown}\n```\n"
    yield _text(node)


def _arguments(node: ast.FunctionDef | None) -> str:
    return ast.unparse(node.args).removeprefix("self, ").removeprefix("self") if node else ""


def _text(node: ast.ClassDef | ast.FunctionDef) -> str:
    return inspect.cleandoc(ast.get_docstring(node) or "") + "\n"
