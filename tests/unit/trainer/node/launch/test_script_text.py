"""A look at a script's text tells whether it sets variables that torch reads when it is imported."""

import os
import time

import pytest

from trainer.node.launch import script_text

YES = {
    "sets": "import os\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch\n",
    "from os": "from os import environ\nenviron['TORCH_DISTRIBUTED_DEBUG'] = 'DETAIL'\nimport torch\n",
    "another name": "import os as o\ne = o.environ\ne['PYTORCH_JIT'] = '0'\nimport torch\n",
    "setdefault": "import os\nos.environ.setdefault('TORCHINDUCTOR_FX_GRAPH_CACHE', '0')\nimport torch\n",
    "update": "import os\nos.environ.update(OMP_NUM_THREADS='2')\nimport torch\n",
    "update of a dict": "import os\nos.environ.update({'A': '1', 'MKL_NUM_THREADS': '2'})\nimport torch\n",
    "update of anything": "import os, config\nos.environ.update(config.ALL)\nimport torch\n",
    "or": "import os\nos.environ |= {'PYTORCH_JIT': '0'}\nimport torch\n",
    "pop": "import os\nos.environ.pop('OMP_NUM_THREADS', None)\nimport torch\n",
    "del": "import os\ndel os.environ['OMP_NUM_THREADS']\nimport torch\n",
    "putenv": "import os\nos.putenv('KMP_BLOCKTIME', '0')\nimport torch\n",
    "loop": "import os\nfor name in ('OMP_NUM_THREADS',):\n    os.environ[name] = '2'\nimport torch\n",
    "in a condition": "import os\nif 'DEBUG' in os.environ:\n    os.environ['TORCH_LOGS'] = 'all'\nimport torch\n",
    "in a function": "import os\ndef main():\n    os.environ['OMP_NUM_THREADS'] = '2'\n    import torch\nmain()\n",
    "def below": "import os\ndef t():\n    import torch\ndef f():\n    os.environ['PYTORCH_JIT'] = '2'\nf(); t()\n",
    "for a type checker": "import os\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"
    "os.environ['OMP_NUM_THREADS'] = '2'\nimport torch\n",
    "docstring": '"""\nimport torch\n"""\nimport os\nos.environ["PYTORCH_JIT"] = "0"\nimport torch\n',
    "own module": "import settings\nimport torch\n",
    "own module in a function": "def main():\n    import settings\n    import torch\nmain()\n",
    "own package": "from pack import inner\nimport torch\n",
    "relative": "import pack.outer\nimport torch\n",
    "dotenv": "from dotenv import load_dotenv\nload_dotenv()\nimport torch\n",
    "torch in vain": "import torchless_thing, os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch.nn as nn\n",
}
NO = {
    "nothing": "import torch\n",
    "other names": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nos.environ['NCCL_DEBUG'] = 'INFO'\n"
    "os.environ['MASTER_PORT'] = '1'\nos.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')\nimport torch\n",
    "update": "import os\nos.environ.update({'WANDB_MODE': 'offline'}, HF_HOME='x')\nimport torch\n",
    "later": "import os\nimport torch\nos.environ['OMP_NUM_THREADS'] = '2'\n",
    "later, in a try": "import os\ntry:\n    import torch\nfinally:\n    pass\nos.environ['PYTORCH_JIT'] = '0'\n",
    "reads": "import os\nthreads = os.environ.get('OMP_NUM_THREADS', os.environ['PYTORCH_JIT'])\nimport torch\n",
    "own module behind torch": "import torch\nimport settings\n",
    "own module that imports torch": "import model, os\nos.environ['OMP_NUM_THREADS'] = '2'\n",
    "in a string": "text = \"os.environ['OMP_NUM_THREADS'] = '2'\"\nimport torch\n",
    "a dict of its own": "rows = {}\nrows['a'] = 1\nrows.update(b=2)\nrows.pop('a')\nimport torch\n",
    "read later": "import os\nos.environ['TORCH_NCCL_ASYNC_ERROR_HANDLING'] = '1'\nimport torch\n",
    "no torch": "print(1)\n",
}


@pytest.fixture
def folder(tmp_path):
    sets = "import os\nos.environ['OMP_NUM_THREADS'] = '2'\n"
    (tmp_path / "pack/deep").mkdir(parents=True)
    for path, text in {
        "settings.py": sets,
        "model.py": "import torch\n",
        "pack/__init__.py": "",
        "pack/inner.py": sets,
        "pack/outer.py": "from . import inner\n",
        "pack/__main__.py": "import os\nos.environ['PYTORCH_JIT'] = '0'\nimport torch\n",
        "pack/plain.py": "import torch\nfrom . import inner\n",
        ".env": "# keys\nexport TORCH_LOGS=all\n",
    }.items():
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", YES)
def test_a_script_that_sets_torchs_variables_first_is_recognised(folder, name):
    (folder / "train.py").write_text(YES[name])
    assert script_text.needs_new_python(["train.py", "--lr", "1"], folder)


@pytest.mark.parametrize("name", NO)
def test_all_other_scripts_are_forked(folder, name):
    (folder / "train.py").write_text(NO[name])
    assert not script_text.needs_new_python(["train.py"], folder)


@pytest.mark.parametrize(
    ("module", "answer"), [("pack", True), ("pack.inner", True), ("pack.plain", False), ("model", False), ("no", False)]
)
def test_a_module_started_with_m_is_looked_at_with_its_packages(folder, module, answer):
    assert script_text.needs_new_python(["-m", module], folder) == answer


def test_a_folder_of_pythonpath_is_looked_at(folder):
    (folder / "src").mkdir()
    (folder / "src/first.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '2'\n")
    (folder / "train.py").write_text("import first\nimport torch\n")
    assert not script_text.needs_new_python(["train.py"], folder)
    assert script_text.needs_new_python(["train.py"], folder, ["", "src"])


def test_an_env_file_without_such_a_variable_needs_no_python_of_its_own(folder):
    (folder / ".env").write_text("HF_TOKEN=x\nWANDB_KEY=y\n")
    (folder / "train.py").write_text(YES["dotenv"])
    assert not script_text.needs_new_python(["train.py"], folder)


@pytest.mark.parametrize(
    "text",
    [b"import os\n)", b"\0", b"\xff\xfe", b"a = " + b"(" * 5000, b"a = " + b"1+" * 20_000 + b"1", b"#" * (2 << 20)],
    ids=["syntax", "null", "no utf-8", "deep", "long", "large"],
)
def test_a_script_that_cannot_be_read_gets_a_python_of_its_own(folder, text):
    (folder / "train.py").write_bytes(text)
    assert script_text.needs_new_python(["train.py"], folder)


def test_no_pipe_blocks_the_look_and_no_import_cycle_is_endless(folder):
    os.mkfifo(folder / "pipe.py")
    assert script_text.needs_new_python(["pipe.py"], folder)
    assert script_text.needs_new_python(["none.py"], folder)
    (folder / "a.py").write_text("import b\n")
    (folder / "b.py").write_text("import a, loop\n")
    (folder / "loop.py").symlink_to("loop.py")
    assert not script_text.needs_new_python(["a.py"], folder)
    for number in range(300):
        (folder / f"m{number}.py").write_text(f"import m{number + 1}\n")
    assert script_text.needs_new_python(["m0.py"], folder)


def test_a_look_is_short(folder):
    """The script has a thousand lines and imports torch at its top. CPU time counts, which load hardly changes."""
    (folder / "train.py").write_text("import os, sys\nimport torch\n" + "x = [1, 2, (3, 4)]\n" * 1000)
    spent = []
    for _ in range(20):
        begun = time.process_time()
        script_text.needs_new_python(["train.py"], folder)
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.002
