"""What each Python below a rank runs at its start: nothing if the user switched it off, and nothing noisy if old."""

import ast
import os
import subprocess
import sys

import pytest

from trainer.node.ending import training_alone


def test_without_observation_a_scripts_environment_stays_as_it_was():
    own = {"MUSTER_OBSERVE": "0", "PYTHONPATH": "/mine"}
    assert training_alone.with_watcher(own) == own
    assert "/mine:" in training_alone.with_watcher({"PYTHONPATH": "/mine"})["PYTHONPATH"]


def test_a_python_of_any_age_can_read_sitecustomize():
    tree = ast.parse((training_alone.SITE / "sitecustomize.py").read_text(), feature_version=(3, 4))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    assert not [node.name for node in functions if node.returns or any(each.annotation for each in node.args.args)]
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert {alias.name for node in imports for alias in node.names} == {"os", "sys"}


def test_a_folder_that_cannot_be_written_leaves_the_script_alone(tmp_path):
    environment = {**os.environ, "MUSTER_OUTCOME_DIR": str(tmp_path / "none"), "RANK": "one", "LOCAL_RANK": ""}
    environment["PYTHONPATH"] = str(training_alone.SITE)
    line = [sys.executable, "-c", "print('mine')"]
    process = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert (process.stdout, process.stderr) == ("mine\n", "")


# Imports each module that torch_hooks.py hooks. An error of ours, which a script never notices, ends this program.
DOORS = """
import sys

import pytest
hooks = sys.modules["_muster_watch.hooks"]
hooks._takes = lambda fault, fails: False
import torch, torch.distributed.checkpoint.state_dict, torch.distributed.launcher.api
from torch.utils.data.dataloader import _BaseDataLoaderIter
print(hasattr(_BaseDataLoaderIter.__next__, "__wrapped__"))
"""


@pytest.mark.torch
def test_a_rank_that_imports_torch_itself_is_watched_at_each_door(tmp_path):
    """A launcher in a shell script starts such ranks; others are forked from a process that has imported torch."""
    environment = {**os.environ, "MUSTER_OUTCOME_DIR": str(tmp_path), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    environment["PYTHONPATH"] = str(training_alone.SITE)
    process = subprocess.run([sys.executable, "-c", DOORS], env=environment, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, "True\n"), process.stderr
