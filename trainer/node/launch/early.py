"""Two reasons for a new Python in place of a fork: the script sets what torch reads, or hides a loaded module.

Such a script sets variables that torch reads as it is imported, and a fork has torch before; or a module of its folder
has the name of one that torchrun has imported.

A look at the text decides, before a line of it has run. It follows what runs before torch is there: the script to its
first `import torch`, and its own modules that it imports above that. Such a script gets a Python of its own, which is
what torchrun alone would give it; so does one that cannot be read or is too large: that costs a second, and is right.
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

# What `import torch` reads (recorded with torch 2.13: getenv and os.environ), by its beginnings; what only NCCL, CUDA
# and process groups read comes later.
_READ = re.compile(
    r"OMP_|GOMP_|KMP_|MKL|DNNL_|ONEDNN_|OPENBLAS_|GOTO_|NPY_|NUMPY_|TORCH|PYTORCH_|ATEN_|C10_|KINETO_|FX_|COMPILE_STROBE"
)
_LATER = re.compile(r"TORCHELASTIC_|TORCH_ELASTIC|TORCH_NCCL_|TORCH_GLOO_|TORCH_DISABLE_SHARE|TORCH_HOME$")
_TORCH_LINE = re.compile(rb"^(?:import|from)[ \t]+torch\b[^\n]*\n?", re.MULTILINE)
_CHANGES = ("setdefault", "update", "pop", "putenv", "unsetenv", "__setitem__")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MOST_BYTES, _MOST_FILES = 1 << 20, 200


def comes_too_late(words: Sequence[str], folder: Path, path: Sequence[str] = ()) -> bool:
    """Whether a fork does, for `python WORDS` in `folder`. `words`: a script and its own, or -m and a module.

    `path`: more folders that it imports from (PYTHONPATH).
    """
    module = words[0] == "-m"
    script = folder / words[0]
    roots = [folder if module else script.resolve().parent, *(folder / each for each in path if each)]
    try:
        look = _Look(roots)
        files = [*look.files_of(words[1]), *look.files_of(f"{words[1]}.__main__")] if module else [script]
        with warnings.catch_warnings():  # of strange escapes Python speaks when the rank runs
            warnings.simplefilter("ignore")
            return _hides(roots[0]) or any(map(look.writes, files))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return True


def _hides(folder: Path) -> bool:
    """Whether a module here, such as a secrets.py, has the name of one that this process has imported."""
    names = {name.partition(".")[0] for name in os.listdir(folder)} & sys.modules.keys() - {"__main__", "muster"}
    return any((folder / place).is_file() for name in names for place in (f"{name}.py", f"{name}/__init__.py"))


class _Look:
    """One look, at each file once. `torch_is_there`: a line above has imported it."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots, self._seen, self.torch_is_there = roots, set[Path](), False

    def writes(self, file: Path) -> bool:
        """Whether running this file sets such a variable before torch is there."""
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
        """The files that run where one of the script's own modules is imported: those of its packages, and its own."""
        for root in [beside] if beside else self._roots:
            files, place = list[Path](), root
            for part in module.split(".") if module else ():
                place = place / part
                files += [each for each in (place / "__init__.py", place.with_suffix(".py")) if each.is_file()]
            if files:
                return files
        return []


def _beginning(text: bytes) -> ast.Module:
    """The syntax tree to the first line that imports torch, if the text above it stands by itself."""
    first = _TORCH_LINE.search(text)
    with suppress(SyntaxError):  # that line may be inside a string, or of a block
        return ast.parse(text[: first.end()] if first else text)
    return ast.parse(text)


def _parts(node: ast.AST, later: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes in the order of the text; whether each stands in a function, or for a type checker: it runs later."""
    yield node, later
    later = later or isinstance(node, _FUNCTIONS)
    later = later or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    for inside in ast.iter_child_nodes(node):
        yield from _parts(inside, later)


def _imports(node: ast.AST, file: Path) -> Iterator[tuple[str, Path | None]]:
    """The modules that a statement imports; a relative one with the folder that it is in."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        beside = file.parents[node.level - 1] if node.level else None
        base = node.module or ""
        yield base, beside
        yield from ((f"{base}.{alias.name}".lstrip("."), beside) for alias in node.names)


def _sets(node: ast.AST, roots: Sequence[Path]) -> bool:
    """Whether this changes a variable that torch reads early, or one whose name the text does not show."""
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
    """Whether a mapping may have such a name: one that is written out shows its names."""
    if isinstance(node, ast.Dict):
        return any(key is None or _is_read(key) for key in node.keys)
    return True


def _is_read(name: ast.AST) -> bool:
    return not isinstance(name, ast.Constant) or _torch_reads(str(name.value))


def _torch_reads(name: str) -> bool:
    return bool(_READ.match(name)) and not _LATER.match(name)


def _file_sets(file: Path) -> bool:
    """Whether a file of variables sets one."""
    if not file.exists():
        return False
    lines = (_text(file) or b"TORCH").decode(errors="replace").splitlines()
    return any(_torch_reads(line.strip().removeprefix("export ").strip()) for line in lines)


def _text(file: Path) -> bytes | None:
    """What is in a file; None if that is no file, or too much."""
    if not file.is_file():  # a pipe would keep us waiting
        return None
    with file.open("rb") as opened:
        text = opened.read(_MOST_BYTES + 1)
    return text if len(text) <= _MOST_BYTES else None
