"""Which stack frames are the script's own, as they are reported with a look, a collective or a joined world."""

import os
import sysconfig
from pathlib import Path

import pytest

from muster import training
from trainer.node.rank import own_code
from trainer.train import loop


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/me/train.py", True),
        ("/home/me/muster_runs/train.py", True),
        ("/home/me/site/train.py", True),
        (os.__file__, False),
        (f"{sysconfig.get_path('purelib')}/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("<frozen runpy>", False),
        (own_code.__file__, False),
        (loop.__file__, False),
        (training.__file__, False),
    ],
)
def test_a_file_is_the_scripts_own_unless_it_is_pythons_a_librarys_or_musters(file, own):
    assert own_code.is_own(file) == own


@pytest.mark.parametrize("library", ["muster", "muster/muster"])
def test_musters_library_is_not_the_scripts_own_code_but_files_next_to_it_are(library, tmp_path):
    """On bare hosts the library's folder contains the trainer; in a checkout, here named muster, it is next to it."""
    home = tmp_path / "muster/trainer/node/rank"
    home.mkdir(parents=True)
    (tmp_path / library).mkdir(exist_ok=True)
    (home / "own_code.py").write_text(Path(own_code.__file__).read_text())
    space = {"__file__": str(home / "own_code.py"), "__name__": "own_code"}
    exec((home / "own_code.py").read_text(), space)
    assert not space["is_own"](str(tmp_path / library / "training.py"))
    assert space["is_own"](str(tmp_path / "examples/train.py"))
    assert library == "muster" or space["is_own"](str(tmp_path / "muster/runs/r1/work/train.py"))
