"""Find, check, load and call a recipe, a Python file that defines what to train; take its batches, pinned for a GPU.

docs/reference/recipes.md lists the functions.

The agent uses `check` and `defaults`, which read the file without executing it and without torch. So it refuses a bad
recipe in milliseconds, before ranks start. A rank uses `load`, and calls the recipe's functions through `build_model`
and the functions after it, so that an error in the user's file is reported with a line of that file, not of Muster.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from muster.errors import Refused, TrainError

from .node.ending.peer_errors import error_reports_lost_peer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn, optim
    from torch.utils.data import Dataset

BUILT_IN = {name: Path(__file__).parent / "recipes" / f"{name}.py" for name in ("digits", "text")}
NEEDED = {"model": "model()", "datasets": "datasets(data)", "loss": "loss(model, batch)"}
OPTIONAL = {
    "optimizer": "optimizer(model, lr)",
    "metrics": "metrics(model, batch)",
    "collate": "collate(samples)",
    "tensor_plan": "tensor_plan(model)",
}
GUIDE = (
    f"a recipe has {', '.join(NEEDED.values())}; it may have {', '.join(OPTIONAL.values())}: "
    "see muster docs train-with-a-recipe"
)


@dataclass(frozen=True)
class Recipe:
    """A loaded recipe: its functions (None if an optional one is absent), and its defaults for trainer options."""

    path: Path
    defaults: dict[str, Any]
    model: Callable[[], nn.Module]
    datasets: Callable[[Path | None], tuple[Dataset[Any], Dataset[Any]]]
    loss: Callable[[nn.Module, Any], Tensor]
    optimizer: Callable[[nn.Module, float], optim.Optimizer] | None = None
    metrics: Callable[[nn.Module, Any], dict[str, Tensor]] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    tensor_plan: Callable[[nn.Module], dict[str, Any]] | None = None


def defaults(name_or_path: str) -> dict[str, Any]:
    """The recipe's DEFAULTS, read without executing it; empty if it has none.

    Raises Refused if it is not a plain dict.
    """
    path = find(name_or_path)
    values: dict[str, Any] = {}
    for number, node in enumerate(node for node in _top_level(_parse(path).body) if "DEFAULTS" in _binds(node)):
        where = f"{_display(path)}:{node.lineno}: DEFAULTS"
        hint = 'write it as a plain dict, such as DEFAULTS = {"steps": 500, "lr": 0.001}'
        if number:
            raise Refused(f"{where}: set twice, but Muster reads it without running the recipe", hint)
        try:
            values = ast.literal_eval(getattr(node, "value", None) or node)
        except (ValueError, TypeError):
            raise Refused(f"{where}: Muster cannot read it without running the recipe", hint) from None
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise Refused(f"{where}: not a dict with names as keys, got {values!r}", hint)
    return values


def check(name_or_path: str) -> None:
    """Check the recipe without executing it.

    Raises Refused if there is no such file, if it is not Python, or if a function is missing or has other parameters.
    """
    path = find(name_or_path)
    nodes = list(_top_level(_parse(path).body))
    bound = {name: node for node in nodes for name in _binds(node)}
    # The names that `from x import *` defines are known only after it ran: load() checks again.
    missing = [name for name in NEEDED if name not in bound and "*" not in bound]
    if missing:
        raise Refused(f"{_display(path)}: lacks {' and '.join(missing)}", GUIDE)
    for name, signature in (NEEDED | OPTIONAL).items():
        node = bound.get(name)
        # A decorator may change a function's parameters, and an assigned or imported name does not show any.
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and not _takes(node, signature):
            got = f"def {name}({ast.unparse(node.args)})"
            raise Refused(f"{_display(path)}:{node.lineno}: {name}: called as {signature}, got {got}", GUIDE)


def find(name_or_path: str) -> Path:
    """The absolute path of the recipe's file. Raises Refused for an unknown name or a path without a file."""
    if name_or_path in BUILT_IN:
        return BUILT_IN[name_or_path]
    path = Path(name_or_path)
    known = f"built-in: {', '.join(BUILT_IN)}; or give the path of a .py file"
    if path.suffix != ".py":
        raise Refused(f"--recipe {name_or_path}: no such recipe", known)
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing"
        raise Refused(f"--recipe {name_or_path}: no such file in {Path.cwd()}, got {got}", known)
    return path.resolve()


def load(name_or_path: str) -> Recipe:
    """Check the recipe and execute its file.

    Raises Refused like `check`, and TrainError if the file raises an error.
    """
    check(name_or_path)
    path = find(name_or_path)
    with blame(path, "on import"):
        built_in = name_or_path in BUILT_IN
        module = importlib.import_module(f"{__package__}.recipes.{name_or_path}") if built_in else _execute(path)
    functions = {name: getattr(module, name, None) for name in NEEDED | OPTIONAL}
    for name, function in functions.items():
        if not callable(function) and (name in NEEDED or function is not None):
            raise Refused(f"{_display(path)}: {name}: not a function, got {type(function).__name__}", GUIDE)
    return Recipe(path=path, defaults=defaults(name_or_path), **functions)  # type: ignore[arg-type]


def build_model(recipe: Recipe) -> nn.Module:
    """Build the recipe's model, on the CPU.

    Raises TrainError with the recipe's name if `model` fails or returns no model. The functions below raise TrainError
    in the same way.
    """
    from torch import nn

    with blame(recipe.path, "model"):
        model = recipe.model()
    if not isinstance(model, nn.Module):
        raise _returned(recipe, "model", f"returned {_kind(model)}, not an nn.Module")
    return model


def build_plan(recipe: Recipe, model: nn.Module) -> dict[str, Any] | None:
    """The recipe's plan for tensor parallelism, by module name; None if it has none."""
    if recipe.tensor_plan is None:
        return None
    with blame(recipe.path, "tensor_plan"):
        plan = recipe.tensor_plan(model)
    if not isinstance(plan, dict):
        raise _returned(recipe, "tensor_plan", f"returned {_kind(plan)}, not a dict of module name: style")
    return plan


def build_datasets(recipe: Recipe, data: Path | None) -> tuple[Dataset[Any], Dataset[Any]]:
    """The recipe's training set and held-out set, both map-style."""
    with blame(recipe.path, "datasets"):
        pair = recipe.datasets(data)
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise _returned(recipe, "datasets", f"returned {_kind(pair)}, not two datasets: training, held out")
    for dataset in pair:
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise _returned(recipe, "datasets", f"returned {_kind(dataset)}, which has no length or cannot be indexed")
    return pair[0], pair[1]


def take_batches(
    recipe: Recipe,
    dataset: Dataset[Any],
    indices: Iterable[list[int]],
    device: torch.device,
    workers: int = 0,
    seeds: tuple[int, int, int] | None = None,
) -> Iterator[Any]:
    """Batches of `dataset` on the CPU, ready to copy to `device`."""
    from muster.data import batches

    with blame(recipe.path, "taking a sample from datasets()"):
        pin = device.type == "cuda"
        yield from batches(dataset, indices, collate=recipe.collate, workers=workers, pin=pin, seeds=seeds)


def compute_loss(recipe: Recipe, model: nn.Module, batch: Any) -> Tensor:
    """The batch's mean loss, shape (). An error about a lost peer passes unchanged."""
    with blame(recipe.path, "loss"):
        loss = recipe.loss(model, batch)
    if getattr(loss, "shape", None) != ():
        raise _returned(recipe, "loss", f"returned {_kind(loss)}, not a scalar tensor: the mean over the batch")
    return loss


def compute_metrics(recipe: Recipe, model: nn.Module, batch: Any) -> dict[str, Tensor]:
    """Each metric's values, shape (batch,); empty if the recipe has no `metrics`."""
    if recipe.metrics is None:
        return {}
    with blame(recipe.path, "metrics"):
        metrics = recipe.metrics(model, batch)
    if not isinstance(metrics, dict):
        raise _returned(recipe, "metrics", f"returned {_kind(metrics)}, not a dict of name: tensor")
    for name, values in metrics.items():
        if len(getattr(values, "shape", ())) != 1:
            raise _returned(recipe, "metrics", f"returned {_kind(values)} for {name!r}, not one value per sample")
    return metrics


@contextmanager
def blame(path: Path, action: str) -> Iterator[None]:
    """Turn an error in the recipe's file into a TrainError with its line.

    An error about a lost peer passes unchanged.
    """
    try:
        yield
    except TrainError:
        raise
    except Exception as error:
        if error_reports_lost_peer(error):
            raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{_display(path)}:{lines[-1]}" if lines else _display(path)
        hint = "correct the recipe; muster docs train-with-a-recipe says what each function receives and returns"
        if isinstance(error, ModuleNotFoundError):
            hint = f"install {error.name} where the ranks run: in the image, or in this Python environment"
        raise TrainError(f"{where}: {action}: {type(error).__name__}: {error}", hint) from error


def _execute(path: Path) -> ModuleType:
    """Run a user's file as a module, registered so that pickle can find the classes it defines."""
    # A recipe may import files in its own folder and in the current folder. These come last on the path, so that a
    # user's random.py does not replace Python's.
    sys.path += [folder for folder in dict.fromkeys((str(path.parent), str(Path.cwd()))) if folder not in sys.path]
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem}", path)
    assert spec is not None  # find() lets only .py files through
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parse(path: Path) -> ast.Module:
    """The file's syntax tree. Raises Refused, with the line, if the file is not Python."""
    try:
        return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise Refused(f"{_display(path)}:{error.lineno or 1}: not Python: {error.msg}", f"try: python {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        raise Refused(f"{_display(path)}: cannot be read: {error}", "give --recipe a readable Python file") from None


def _top_level(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Every statement that runs on import, including those in `if` and `try`, but not in functions and classes."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _top_level(ast.iter_child_nodes(node))


def _binds(node: ast.stmt) -> set[str]:
    """The names to which the statement assigns a value."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
        case ast.Assign(targets=targets):
            return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        case ast.AugAssign(target=ast.Name(id=name)):
            return {name}
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            return {name}
    return set()


def _takes(node: ast.FunctionDef, signature: str) -> bool:
    """Whether the function can be called with as many positional arguments as the signature has."""
    count = len(ast.parse(signature, mode="eval").body.args)  # type: ignore[attr-defined]
    arguments = node.args
    most = len(arguments.posonlyargs) + len(arguments.args)
    keyword_needed = any(default is None for default in arguments.kw_defaults)
    return most - len(arguments.defaults) <= count and (count <= most or bool(arguments.vararg)) and not keyword_needed


def _returned(recipe: Recipe, function: str, message: str) -> TrainError:
    return TrainError(f"{_display(recipe.path)}: {function}: {message}", GUIDE)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else "")


def _display(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
