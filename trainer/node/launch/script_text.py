"""Whether a script needs a new Python instead of a fork: it sets variables that torch reads, or hides a loaded module.

A fork comes too late for a script that sets variables which torch reads when it is imported, because a fork has torch
already. It also comes too late if a module of the script's folder has the name of one that torchrun has imported.

The text of the script decides this, before a line of it has run. The code that runs before torch is imported counts:
the script up to its first `import torch`, and its own modules that it imports above that line. A script for which a
fork comes too late gets a new Python, as under plain torchrun. So does a script that cannot be read or is too large:
that costs a second, and is always correct.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

# The beginnings of the variables that `import torch` reads (recorded with torch 2.13: getenv and os.environ). Those
# in _READ_LATER match too, but only NCCL, CUDA and process groups read them, which is later.
_READ_ON_IMPORT = re.compile(
    r"OMP_|GOMP_|KMP_|MKL|DNNL_|ONEDNN_|OPENBLAS_|GOTO_|NPY_|NUMPY_|TORCH|PYTORCH_|ATEN_|C10_|KINETO_|FX_|COMPILE_STROBE"
)
_READ_LATER = re.compile(r"TORCHELASTIC_|TORCH_ELASTIC|TORCH_NCCL_|TORCH_GLOO_|TORCH_DISABLE_SHARE|TORCH_HOME$")
_TORCH_LINE = re.compile(rb"^(?:import|from)[ \t]+torch\b[^\n]*\n?", re.MULTILINE)
_CHANGES = ("setdefault", "update", "pop", "putenv", "unsetenv", "__setitem__")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MOST_BYTES, _MOST_FILES = 1 << 20, 200


def needs_new_python(words: Sequence[str], folder: Path, path: Sequence[str] = ()) -> bool:
    """Whether a fork comes too late for `python WORDS` in `folder`.

    `words`: a script and its arguments, or -m, a module and its arguments. `path`: more folders from which it imports
    (PYTHONPATH).
    """
    module = words[0] == "-m"
    script = folder / words[0]
    roots = [folder if module else script.resolve().parent, *(folder / each for each in path if each)]
    try:
        look = _Look(roots)
        files = [*look.files_of(words[1]), *look.files_of(f"{words[1]}.__main__")] if module else [script]
        with warnings.catch_warnings():  # about invalid escapes: Python warns of them when the rank runs
            warnings.simplefilter("ignore")
            return _hides(roots[0]) or any(map(look.writes, files))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return True


def _hides(folder: Path) -> bool:
    """Whether a module in this folder, such as a secrets.py, has the name of one that this process has imported."""
    names = {name.partition(".")[0] for name in os.listdir(folder)} & sys.modules.keys() - {"__main__", "muster"}
    return any((folder / place).is_file() for name in names for place in (f"{name}.py", f"{name}/__init__.py"))


class _Look:
    """One search, which reads each file once. `torch_is_there`: a line above has imported torch."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots, self._seen, self.torch_is_there = roots, set[Path](), False

    def writes(self, file: Path) -> bool:
        """Whether this file, when it runs, sets such a variable before torch is imported."""
        if file in self._seen or self.torch_is_there:
            return False
        self._seen.add(file)
        text = _text(file)
        if len(self._seen) > _MOST_FILES or text is None:
            raise ValueError("more text than a look may take")
        return any(self._runs(statement, file) for statement in _beginning(text).body)

    def _runs(self, statement: ast.stmt, file: Path) -> bool:
        for node, later in _parts(statement):
            if self.torch_is_there:
                return False
            if _sets(node, self._roots):
                return True
            for name, beside in _imports(node, file):
                if name == "torch" or name.startswith("torch."):
                    self.torch_is_there = not later
                elif any(map(self.writes, self.files_of(name, beside))):
                    return True
            self.torch_is_there = self.torch_is_there and not later
        return False

    def files_of(self, module: str, beside: Path | None = None) -> list[Path]:
        """The files that run when one of the script's own modules is imported: its packages' and the module's own."""
        for root in [beside] if beside else self._roots:
            files, place = list[Path](), root
            for part in module.split(".") if module else ():
                place = place / part
                files += [each for each in (place / "__init__.py", place.with_suffix(".py")) if each.is_file()]
            if files:
                return files
        return []


def _beginning(text: bytes) -> ast.Module:
    """The syntax tree up to the first line that imports torch; the whole tree if the text up to it does not parse."""
    first = _TORCH_LINE.search(text)
    with suppress(SyntaxError):  # that line may be inside a string or a block
        return ast.parse(text[: first.end()] if first else text)
    return ast.parse(text)


def _parts(node: ast.AST, later: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes in the order of the text, and whether each runs later: in a function, or only for a type checker."""
    yield node, later
    later = later or isinstance(node, _FUNCTIONS)
    later = later or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    for inside in ast.iter_child_nodes(node):
        yield from _parts(inside, later)


def _imports(node: ast.AST, file: Path) -> Iterator[tuple[str, Path | None]]:
    """The modules that a statement imports; for a relative import, with the folder that it is relative to."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        beside = file.parents[node.level - 1] if node.level else None
        base = node.module or ""
        yield base, beside
        yield from ((f"{base}.{alias.name}".lstrip("."), beside) for alias in node.names)


def _sets(node: ast.AST, roots: Sequence[Path]) -> bool:
    """Whether this node changes a variable that torch reads early, or one whose name the text does not show."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
        named = isinstance(node.slice, ast.Constant)
        return _is_read(node.slice) if named else _is_environment(node.value)
    if isinstance(node, ast.AugAssign):
        return _is_environment(node.target) and _may_hold(node.value)
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "load_dotenv":
        return bool(node.args or node.keywords) or any(_file_sets(root / ".env") for root in roots)
    if name not in _CHANGES or not (name.endswith("env") or _is_environment(node.func)):
        return False
    if name == "update":
        return any(map(_may_hold, node.args)) or any(_torch_reads(each.arg or "") for each in node.keywords)
    return not node.args or _is_read(node.args[0])


def _is_environment(node: ast.AST) -> bool:
    return "environ" in ast.unparse(node)


def _may_hold(node: ast.AST) -> bool:
    """Whether a mapping may have such a variable; only a dict that is written out shows its names."""
    if isinstance(node, ast.Dict):
        return any(key is None or _is_read(key) for key in node.keys)
    return True


def _is_read(name: ast.AST) -> bool:
    return not isinstance(name, ast.Constant) or _torch_reads(str(name.value))


def _torch_reads(name: str) -> bool:
    return bool(_READ_ON_IMPORT.match(name)) and not _READ_LATER.match(name)


def _file_sets(file: Path) -> bool:
    """Whether a .env file sets a variable that torch reads early."""
    if not file.exists():
        return False
    lines = (_text(file) or b"TORCH").decode(errors="replace").splitlines()
    return any(_torch_reads(line.strip().removeprefix("export ").strip()) for line in lines)


def _text(file: Path) -> bytes | None:
    """A file's content; None if it is not a regular file, or too large."""
    if not file.is_file():  # reading a pipe would block
        return None
    with file.open("rb") as opened:
        text = opened.read(_MOST_BYTES + 1)
    return text if len(text) <= _MOST_BYTES else None
