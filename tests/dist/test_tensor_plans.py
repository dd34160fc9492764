"""A plan for tensor parallelism that changes the loss or a gradient is refused before the first step."""

import json
from pathlib import Path

import pytest

from lab.waiting import losses
from tests.dist.tensor_plans import WRONG, recipe, wrong
from tests.dist.test_meshes import case, finish, start


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("plans")
    plans = wrong(root)
    cases = [case(root / f"run-{name}", "--recipe", path, "--mesh", "tp=2") for name, path in plans.items()]
    cases.append(case(root / "run-trusted", "--recipe", plans["fused"], "--mesh", "tp=2", "--trust-plan"))
    cases.append(case(root / "run-none", "--recipe", str(Path("examples/my_recipe.py")), "--mesh", "tp=2"))
    finish(start(2, *cases))
    return root


@pytest.mark.parametrize("name", [*WRONG, "fused"])
def test_a_wrong_plan_is_refused_before_the_first_step(root, name):
    texts = {(root / f"run-{name}" / f"refused-{rank}").read_text() for rank in (0, 1)}
    assert all(WRONG.get(name, ("", "plan"))[1] in text for text in texts), texts
    assert not losses(root / f"run-{name}")


def test_a_trusted_plan_trains_without_a_trial(root):
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
