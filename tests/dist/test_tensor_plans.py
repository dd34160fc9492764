"""A plan for tensor parallelism that changes the loss or a gradient is refused before the first step."""

import json
from pathlib import Path

import pytest

from lab.waiting import losses
from tests.dist.test_meshes import RECIPE, case, finish, start

GOOD = {
    "blocks.*.by_head": "ColwiseParallel()",
    "blocks.*.mix": "RowwiseParallel()",
    "blocks.*.think.0": "ColwiseParallel()",
    "blocks.*.think.2": "RowwiseParallel()",
}
COLUMNS, ROWS = "ColwiseParallel", "RowwiseParallel"
# What each wrong plan changes in the good one, and a word of the reason.
WRONG = {
    "swapped": ({"blocks.*.by_head": f"{ROWS}()", "blocks.*.mix": f"{COLUMNS}()"}, "plan"),
    "half-a-net": ({"blocks.*.think.2": None}, "could not be tried"),
    "half-attention": ({"blocks.*.mix": None}, "could not be tried"),
    "no-sum": ({"blocks.*.think.2": f"{ROWS}(output_layouts=Shard(-1))"}, "could not be tried"),
    "sequence-too-early": ({"blocks.*.norm": "SequenceParallel()"}, "plan"),
    "rows-of-whole-input": ({"blocks.*.mix": f"{ROWS}(input_layouts=Replicate())"}, "plan"),
    "columns-that-are-cut": ({"blocks.*.think.0": f"{COLUMNS}(input_layouts=Shard(-1))"}, "plan"),
    "table-that-is-read-as-well": ({"table": f"{ROWS}(input_layouts=Replicate())"}, "plan"),
    "unknown-module": ({"blocks.*.qkv": f"{COLUMNS}()"}, "no such module"),
    "no-style": ({"blocks.*.mix": "'rowwise'"}, "not a ParallelStyle"),
    "nothing": (dict.fromkeys(GOOD), "cuts no weight"),
}
FUSED = ".unflatten(-1, (3, -1, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)"
BY_HEAD = ".unflatten(-1, (-1, 3, WIDTH // HEADS)).permute(3, 0, 2, 1, 4)"


def recipe(folder, name, changes, *edits):
    """The small recipe with another plan."""
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


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("plans")
    fused = recipe(root, "fused", {}, (BY_HEAD, FUSED))
    named = {name: recipe(root, name, changes) for name, (changes, _) in WRONG.items()}
    cases = [
        case(root / f"run-{name}", "--recipe", path, "--mesh", "tp=2")
        for name, path in {**named, "fused": fused}.items()
    ]
    cases.append(case(root / "run-trusted", "--recipe", fused, "--mesh", "tp=2", "--trust-plan"))
    cases.append(case(root / "run-none", "--recipe", str(Path("examples/my_recipe.py")), "--mesh", "tp=2"))
    finish(start(2, *cases))
    return root


@pytest.mark.parametrize("name", [*WRONG, "fused"])
def test_a_wrong_plan_is_refused_before_the_first_step(root, name):
    texts = {(root / f"run-{name}" / f"refused-{rank}").read_text() for rank in (0, 1)}
    assert all(WRONG.get(name, ("", "plan"))[1] in text for text in texts), texts
    assert not losses(root / f"run-{name}")


def test_a_plan_that_is_trusted_trains_as_it_is(root):
    assert len(losses(root / "run-trusted")) == 8


def test_a_recipe_without_a_plan_is_refused_by_name(root):
    assert "no tensor_plan(model)" in (root / "run-none/refused-0").read_text()


@pytest.mark.parametrize(("rank", "call"), [(0, 2), (1, 1)])
def test_a_rank_that_fails_alone_in_the_trial_ends_the_others_in_their_collective(torchrun, tmp_path, rank, call):
    path = Path(recipe(tmp_path, "alone", {}))
    # Rank 0 computes the whole model's loss first.
    path.write_text(
        f"{path.read_text()}\n\nimport os\n\n_loss, calls = loss, 0\n\n\n"
        "def loss(model, batch):\n    global calls\n    calls += 1\n"
        f'    if os.environ["RANK"] == "{rank}" and calls == {call}:\n        raise OSError("no such disk")\n'
        "    return _loss(model, batch)\n"
    )
    run = torchrun(2, "--recipe", str(path), "--mesh", "tp=2", "--steps", 2, "--join-timeout", 600, SEEN=str(tmp_path))
    assert run.wait() != 0
    ended = json.loads((run.run_dir / "outcome/here-0.json").read_text())
    other = json.loads((run.run_dir / "outcome/here-1.json").read_text())
    assert "OSError: no such disk" in ended["message"]
    assert f"on rank {rank} alone" in ended["message"]
    assert ended == other
    assert ended["rank"] == rank
