"""What each Python below a rank runs at its start: nothing where the user has switched that off, and quietly if old."""

import ast
import os
import subprocess
import sys

from trainer.node.ending import training_alone


def test_without_observation_a_script_has_its_environment_as_it_was():
    own = {"MUSTER_OBSERVE": "0", "PYTHONPATH": "/mine"}
    assert training_alone.observed(own) == own
    assert "/mine:" in training_alone.observed({"PYTHONPATH": "/mine"})["PYTHONPATH"]


def test_a_python_of_any_age_can_read_it():
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
