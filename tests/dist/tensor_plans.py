"""Wrong plans for tensor parallelism, as changes to a good plan. Tests and a benchmark use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

RECIPE = Path(__file__).with_name("mesh_recipe.py")
GOOD = {
    "blocks.*.by_head": "ColwiseParallel()",
    "blocks.*.mix": "RowwiseParallel()",
    "blocks.*.think.0": "ColwiseParallel()",
    "blocks.*.think.2": "RowwiseParallel()",
}
COLUMNS, ROWS = "ColwiseParallel", "RowwiseParallel"
# The change, and a word from the reason why Muster refuses the plan. None: the module is not in the plan.
WRONG: dict[str, tuple[Mapping[str, str | None], str]] = {
    "swapped": ({"blocks.*.by_head": f"{ROWS}()", "blocks.*.mix": f"{COLUMNS}()"}, "plan"),
    "half-a-net": ({"blocks.*.think.2": None}, "could not be checked"),
    "half-attention": ({"blocks.*.mix": None}, "could not be checked"),
    "no-sum": ({"blocks.*.think.2": f"{ROWS}(output_layouts=Shard(-1))"}, "could not be checked"),
    "sequence-too-early": ({"blocks.*.norm": "SequenceParallel()"}, "plan"),
    "rows-of-whole-input": ({"blocks.*.mix": f"{ROWS}(input_layouts=Replicate())"}, "plan"),
    "columns-that-are-cut": ({"blocks.*.think.0": f"{COLUMNS}(input_layouts=Shard(-1))"}, "plan"),
    "table-that-is-read-as-well": ({"table": f"{ROWS}(input_layouts=Replicate())"}, "plan"),
    "unknown-module": ({"blocks.*.qkv": f"{COLUMNS}()"}, "no such module"),
    "no-style": ({"blocks.*.mix": "'rowwise'"}, "not a torch ParallelStyle"),
    "nothing": (dict.fromkeys(GOOD), "shards no weight"),
}
# A layer whose columns are ordered by q, k and v, not by head: if cut in two, each half has parts of different heads.
BY_HEAD = ".unflatten(-1, (-1, 3, WIDTH // HEADS)).permute(3, 0, 2, 1, 4)"
FUSED = ".unflatten(-1, (3, -1, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)"


def recipe(folder: Path, name: str, changes: Mapping[str, str | None], *edits: tuple[str, str]) -> str:
    """Write the small recipe with another plan, and with the code changed by `edits`; return its path."""
    plan = {module: style for module, style in {**GOOD, **changes}.items() if style}
    text = RECIPE.read_text()
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    lines = ", ".join(f"{module!r}: {style}" for module, style in plan.items())
    path = folder / f"{name}.py"
    path.write_text(
        f"{text}\nfrom torch.distributed.tensor import Replicate, Shard\n"
        "from torch.distributed.tensor.parallel import SequenceParallel\n\n\n"
        f"def tensor_plan(model):\n    return {{{lines}}}\n"
    )
    return str(path)


def wrong(folder: Path) -> dict[str, str]:
    """The path of a recipe for each wrong plan."""
    named = {name: recipe(folder, name, changes) for name, (changes, _) in WRONG.items()}
    return {**named, "fused": recipe(folder, "fused", {}, (BY_HEAD, FUSED))}
