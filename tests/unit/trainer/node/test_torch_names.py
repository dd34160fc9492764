"""Private names of torch: if a new torch moves one, its name is reported, and all uses can be switched off."""

import ast
from pathlib import Path

import pytest

from tests.sources import nodes
from trainer.node import torch_names
from trainer.node.ending import training_alone


@pytest.mark.torch
def test_this_torch_has_every_name_that_is_patched():
    assert torch_names.missing_names() == []


@pytest.mark.torch
def test_a_name_that_moved_is_reported_with_what_is_lost(monkeypatch):
    for gone in ("torch.distributed:_gone", "torch._gone:name"):
        monkeypatch.setitem(torch_names.NAMES, gone, "speed")
    assert torch_names.missing_names() == ["torch.distributed:_gone (speed)", "torch._gone:name (speed)"]


def test_ranks_of_a_plain_torchrun_are_not_observed():
    assert "PYTHONPATH" in training_alone.with_watcher({})
    assert training_alone.with_watcher({torch_names.PLAIN: "1"}) == {torch_names.PLAIN: "1"}


HOME = Path(__file__).parents[4]
# Only a torch for GPUs has this name.
OF_GPUS = {"torch._C._distributed_c10d:_dump_nccl_trace": "which collectives of NCCL do not agree in a run that hangs"}
# Names on objects that a script makes or has; tests that compare what the watcher sees with what it knows need them.
OF_OBJECTS = {
    "_torchdynamo_inline": "torch.compile looks into the function of torch that is watched, and not into the watching",
    "_scale": "the scale of a GradScaler, which a script's loss is divided by",
}
# Python's own private names.
OF_PYTHON = {"_make", "_exit", "_current_frames", "_getframe", "_thread", "_run_module_as_main"}
# Private names of pysyncobj, in the one version that requirements/control.in pins (test_register.py).
OF_PYSYNCOBJ = {"_onTick", "_TcpConnection__processRead"}


def private_names(path):
    """Yield the names that a module imports, and the private attributes that it reads from objects not its own."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr[0] == "_" and ast.unparse(node.value) not in ("self", "cls"):
            yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr"):
            yield ast.literal_eval(node.args[1]) if isinstance(node.args[1], ast.Constant) else ""


def test_each_private_name_of_torch_in_our_code_is_in_the_table_and_the_table_is_short():
    assert len(torch_names.NAMES | OF_GPUS | OF_OBJECTS) <= 12
    listed = {part for name in torch_names.NAMES for part in name.replace(":", ".").split(".")}
    listed |= OF_OBJECTS.keys()
    for path in sorted([*(HOME / "trainer").rglob("*.py"), *(HOME / "muster").rglob("*.py")]):
        used = {name for name in private_names(path) if name[:1] == "_" and name[:2] != "__"}
        assert not used - listed - OF_PYTHON - OF_PYSYNCOBJ, path
