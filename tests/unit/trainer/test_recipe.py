"""A wrong recipe is refused before it is run, and the error of one that fails while running names its own line."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.errors import Refused, TrainError
from trainer import recipe as recipes

ROOT = Path(__file__).parents[3]
GOOD = """\
import torch
from torch.utils.data import TensorDataset
DEFAULTS = {"steps": 7, "lr": 0.5}
def model():
    return torch.nn.Linear(1, 1)
def datasets(data):
    return TensorDataset(torch.ones(4, 1)), TensorDataset(torch.ones(2, 1))
def loss(model, batch):
    return model(batch[0]).mean()
"""
REFUSED_UNREAD = {
    "no function": (GOOD.replace("def loss", "def cost"), "my.py: lacks loss"),
    "no functions": ("x = 1", "my.py: lacks model and datasets and loss"),
    "syntax": (GOOD + "def broken(:\n", "my.py:10: not Python: "),
    "zero byte": ("x = 1\0", "my.py"),
    "too few parameters": (
        GOOD.replace("loss(model, batch)", "loss(batch)"),
        "my.py:8: loss: called as loss(model, batch)",
    ),
    "too many parameters": (GOOD.replace("datasets(data)", "datasets(data, k)"), "got def datasets(data, k)"),
    "named only": (GOOD.replace("model()", "model(*, width)", 1), "my.py:4: model: called as model()"),
    "odd optimizer": (
        GOOD + "def optimizer(model):\n    return 1\n",
        "my.py:10: optimizer: called as optimizer(model, lr)",
    ),
    "only inside": ("def outer():\n" + "".join(f"    {line}\n" for line in GOOD.splitlines()), "lacks model"),
}
ALLOWED = {
    "more with defaults": GOOD.replace("loss(model, batch)", "loss(model, batch, weight=1.0)"),
    "any arguments": GOOD.replace("loss(model, batch)", "loss(*both)").replace(
        "model(batch[0])", "both[0](both[1][0])"
    ),
    "assigned": GOOD.replace("def model():\n    return", "model = lambda:"),
    "in an if": GOOD + "if True:\n    def metrics(model, batch):\n        return {}\n",
    "decorated": GOOD.replace("def loss(model, batch)", "import functools\n@functools.cache\ndef loss(*a, **k)"),
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes `my.py` into a new working folder and returns the path as a user would type it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write_recipe(text: str) -> str:
        Path("my.py").write_text(text)
        return "my.py"

    return write_recipe


@pytest.mark.torch
def test_a_good_recipe_is_loaded_with_what_it_has(write):
    recipe = recipes.load(write(GOOD))
    assert (recipe.defaults, recipe.path) == ({"steps": 7, "lr": 0.5}, Path("my.py").resolve())
    assert (recipe.optimizer, recipe.metrics, recipe.collate) == (None, None, None)
    assert recipes.compute_metrics(recipe, recipes.build_model(recipe), None) == {}
    training, held_out = recipes.build_datasets(recipe, None)
    assert (len(training), len(held_out)) == (4, 2)


@pytest.mark.torch
@pytest.mark.parametrize("text", ALLOWED.values(), ids=ALLOWED)
def test_functions_that_can_be_called_as_needed_are_not_refused(write, text):
    recipes.check(write(text))
    assert callable(recipes.load("my.py").loss)


@pytest.mark.parametrize(("text", "message"), REFUSED_UNREAD.values(), ids=REFUSED_UNREAD)
def test_a_bad_recipe_is_refused_without_being_run(write, text, message):
    path = write(text)
    with pytest.raises(Refused) as caught:
        recipes.check(path)
    assert message in caught.value.message
    assert caught.value.hint
    with pytest.raises(Refused):
        recipes.load(path)


def test_reading_a_recipe_runs_none_of_it(write):
    path = write(GOOD + "raise SystemExit('ran')\n")
    recipes.check(path)
    assert recipes.defaults(path) == {"steps": 7, "lr": 0.5}


def test_a_missing_function_is_reported_with_all_signatures(write):
    with pytest.raises(Refused) as caught:
        recipes.check(write("x = 1"))
    for signature in (
        "model()",
        "datasets(data)",
        "loss(model, batch)",
        "optimizer(model, lr)",
        "metrics(model, batch)",
    ):
        assert signature in caught.value.hint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("digitz", "--recipe digitz: no such recipe"),
        ("gone.py", "--recipe gone.py: no such file"),
        ("folder.py", "got a folder"),
        ("notes.txt", "--recipe notes.txt: no such recipe"),
    ],
)
def test_an_unknown_recipe_lists_the_built_in_ones(tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    Path("folder.py").mkdir()
    for ask in (recipes.check, recipes.defaults, recipes.load):
        with pytest.raises(Refused) as caught:
            ask(given)
        assert message in caught.value.message
        assert "digits, text" in caught.value.hint


@pytest.mark.parametrize("value", ["dict(steps=1)", "[1, 2]", "{1: 2}", "make()", "{[]: 1}"])
def test_defaults_that_are_no_plain_dict_are_refused(write, value):
    with pytest.raises(Refused, match=r"my\.py:1: DEFAULTS: ") as caught:
        recipes.defaults(write(f"DEFAULTS = {value}\n"))
    assert "plain dict" in caught.value.hint


@pytest.mark.parametrize(
    "more", ["if False:\n    DEFAULTS = {'steps': 9}", "DEFAULTS |= {'steps': 9}", "DEFAULTS['steps'] = 9"]
)
def test_defaults_that_are_set_twice_are_refused(write, more):
    with pytest.raises(Refused, match=r"my\.py:[23]: DEFAULTS: set twice"):
        recipes.defaults(write(f"DEFAULTS = {{'steps': 7}}\n{more}\n"))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["digits", "text"])
def test_a_built_in_recipe_is_the_module_of_its_name(name):
    loaded = recipes.load(name)
    assert loaded.model is importlib.import_module(f"trainer.recipes.{name}").model
    assert loaded.path == Path(sys.modules[f"trainer.recipes.{name}"].__file__)


def test_defaults_may_be_annotated_or_absent(write):
    assert recipes.defaults(write('DEFAULTS: dict[str, float] = {"lr": 1e-3}\n')) == {"lr": 1e-3}
    assert recipes.defaults(write("x = 1\n")) == {}
    assert recipes.defaults("digits")["batch"] == 96


def test_checking_needs_no_torch():
    code = (
        "import sys; import trainer.recipe as r; r.check('digits'); r.defaults('text'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 / 0", "my.py:10: on import: ZeroDivisionError: division by zero"),
        ("import no_such_package", "my.py:10: on import: ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_a_recipe_that_raises_on_import_is_blamed_by_its_line(write, line, message):
    with pytest.raises(TrainError) as caught:
        recipes.load(write(GOOD + line + "\n"))
    assert caught.value.message == message
    assert caught.value.code == 1
    assert caught.value.__cause__ is not None


@pytest.mark.torch
def test_a_name_that_is_no_function_is_refused_once_known(write):
    with pytest.raises(Refused, match=r"my\.py: loss: not a function, got int"):
        recipes.load(write(GOOD + "loss = 3\n"))


@pytest.mark.torch
def test_a_recipe_may_import_a_file_next_to_it(write, tmp_path):
    (tmp_path / "neighbour_of_my.py").write_text(GOOD)
    assert callable(recipes.load(write("from neighbour_of_my import *\n")).loss)


@pytest.mark.torch
def test_a_function_that_raises_deep_in_torch_is_blamed_by_the_recipes_line(write):
    import torch

    recipe = recipes.load(write(GOOD))
    model = recipes.build_model(recipe)
    with pytest.raises(TrainError) as caught:
        recipes.compute_loss(recipe, model, [torch.ones(4, 3)])
    assert caught.value.message.startswith("my.py:9: loss: RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.torch
def test_a_refusal_that_a_recipe_raises_itself_passes_unchanged(write):
    text = "from muster.errors import Refused\n" + GOOD.replace(
        "    return TensorDataset", "    raise Refused('no', 'yes')#"
    )
    with pytest.raises(Refused) as caught:
        recipes.build_datasets(recipes.load(write(text)), None)
    assert (caught.value.message, caught.value.hint) == ("no", "yes")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("changed", "into", "message"),
    [
        ("torch.nn.Linear(1, 1)", "3", "model: returned a int, not an nn.Module"),
        ("TensorDataset(torch.ones(4, 1)),", "", "datasets: returned a TensorDataset, not two datasets"),
        ("TensorDataset(torch.ones(4, 1))", "iter([])", "datasets: returned a list_iterator, which has no length"),
        (".mean()", "", "loss: returned a Tensor of shape (4, 1), not a scalar tensor"),
    ],
)
def test_a_wrong_return_value_is_reported(write, changed, into, message):
    import torch

    recipe = recipes.load(write(GOOD.replace(changed, into)))

    def call_all() -> None:
        model = recipes.build_model(recipe)
        recipes.build_datasets(recipe, None)
        recipes.compute_loss(recipe, model, [torch.ones(4, 1)])

    with pytest.raises(TrainError) as caught:
        call_all()
    assert f"my.py: {message}" in caught.value.message


@pytest.mark.torch
@pytest.mark.parametrize("returned", ["3", '{"a": model(batch).mean()}', '{"a": 0.5}'])
def test_a_metric_that_is_not_one_value_per_sample_is_reported(write, returned):
    import torch

    recipe = recipes.load(write(GOOD + f"def metrics(model, batch):\n    return {returned}\n"))
    with pytest.raises(TrainError, match=r"my\.py: metrics: returned"):
        recipes.compute_metrics(recipe, recipes.build_model(recipe), torch.ones(4, 1))


LONELY = """
import os, sys, torch.distributed as dist
from pathlib import Path
from trainer import recipe as recipes
from muster.errors import TrainError
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
dist.barrier()
if sys.argv[2] == "1":
    os._exit(0)
recipe = recipes.load("my.py")
try:
    recipes.compute_loss(recipe, None, None)
except TrainError as error:
    print("blamed", error)
except RuntimeError as error:
    print("passed", error)
os._exit(0)
"""


@pytest.mark.torch
def test_a_recipe_is_not_blamed_for_a_rank_that_vanishes(write, tmp_path):
    write(GOOD.replace("return model(batch[0]).mean()", "torch.distributed.all_reduce(torch.ones(1))"))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", LONELY, str(tmp_path / "store"), str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert outputs[0].startswith("passed ")


@pytest.mark.torch
def test_torchs_own_communication_errors_pass_unchanged(write):
    from torch import distributed

    recipe = recipes.load(write(GOOD))
    with pytest.raises(distributed.DistNetworkError), recipes.blame(recipe, "loss"):
        raise distributed.DistNetworkError("The client socket has timed out after 60000ms while trying to connect")
