"""A script that makes each host train alone is told before the push by its line; one that does not is not."""

from pathlib import Path

import pytest

from deploy.run import alone

HOME = Path(__file__).resolve().parents[3]
DDP = "import torch\nimport torch.distributed as dist\ndist.init_process_group()\n"


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n", 2, "mp.spawn"),
        ("from torch.multiprocessing import spawn as go\ngo(main, nprocs=2)\n", 2, "mp.spawn"),
        ("from torch import nn\nm = 1\nm = nn.DataParallel(m)\n", 3, "DistributedDataParallel joins"),
        ("import torch\nm = torch.nn.parallel.DataParallel(m)\n", 2, "DistributedDataParallel joins"),
        (DDP + "dist.init_process_group('gloo', init_method='tcp://localhost:1234')\n", 4, "meets only itself"),
        (DDP + "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:1234')\n", 4, "meets only itself"),
        ("import os\nos.environ['MASTER_ADDR'] = 'localhost'\nimport torch\n", 2, "MASTER_ADDR"),
        ("import lightning as L\nt = L.Trainer(max_epochs=3)\n", 2, "num_nodes=3"),
        ("from pytorch_lightning import Trainer\nt = Trainer()\n", 2, "num_nodes=3"),
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'torch.distributed.launch', 't.py'])\n",
            2,
            "tor",
        ),
        ("import os\nos.system('torchrun --nproc-per-node 2 t.py')\n", 2, "torchrun"),
        ("import torch\nm = torch.nn.Linear(1, 1)\n", 0, "nothing in it joins ranks"),
    ],
)
def test_the_line_is_named(source, line, words):
    ((where, why),) = alone.signs(source, 3)
    assert where == line
    assert words in why


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize(
    "text",
    [
        "dist.init_process_group('gloo', init_method='tcp://10.0.0.1:1234')",
        "dist.init_process_group('gloo', init_method=f'tcp://{host}:1234')",
        "os.environ['MASTER_PORT'] = '29500'",
        "os.environ['MASTER_PORT'] = str(29500)",
    ],
)
def test_a_port_of_the_scripts_own_is_named_where_nobody_listens(text, hosts):
    ((where, why),) = alone.signs(f"import os\n{DDP}{text}\n", hosts)
    assert where == 5
    assert "nobody listens" in why


@pytest.mark.parametrize(
    "source",
    [
        DDP,
        "import lightning as L\nt = L.Trainer(num_nodes=3)\n",
        "import lightning as L\nt = L.Trainer(**options)\n",
        "import torch\nfrom mine import train\ntrain()\n",
        "from transformers import Trainer\nTrainer()\n",
        "import os\nos.environ.setdefault('MASTER_ADDR', 'localhost')\n" + DDP,
        "import os\nos.environ.setdefault('MASTER_PORT', '29500')\n" + DDP,
        "import os\nos.environ['MASTER_PORT'] = os.environ.get('PORT', '29500')\n" + DDP,
        "import os\nif 'MASTER_PORT' not in os.environ:\n    os.environ['MASTER_PORT'] = '29500'\n" + DDP,
        "import os\nif 'RANK' in os.environ:\n    pass\nelse:\n    os.environ['MASTER_ADDR'] = 'localhost'\n" + DDP,
        DDP + "dist.init_process_group('nccl', init_method=f'tcp://{args.master}:{args.port}')\n",
        DDP + "dist.init_process_group('nccl', init_method='env://')\n",
        "def f(:\n",
        "print('no torch')\n",
        "x = " + "(" * 5000 + ")" * 5000,
    ],
)
def test_what_may_train_together_is_left_alone(source):
    assert alone.signs(source, 3) == []


@pytest.mark.parametrize("path", sorted(set((HOME / "examples").glob("*.py")) - {HOME / "examples/my_recipe.py"}))
def test_our_own_examples_are_left_alone(path):
    assert alone.signs(path.read_text(), 3) == []


def test_a_warning_names_the_file_and_the_line(tmp_path):
    (tmp_path / "train.py").write_text(f"import os\n{DDP}os.environ['MASTER_PORT'] = '1234'\n")
    (warning,) = alone.warnings(tmp_path, ["train.py", "--lr", "1"], 1)
    assert warning.startswith("the ranks may not train together: train.py:5: MASTER_PORT")


def test_only_a_script_of_the_folder_is_read(tmp_path):
    folder = tmp_path / "folder"
    (folder / "pkg").mkdir(parents=True)
    (tmp_path / "out.py").touch()
    (folder / "pkg/train.py").touch()
    assert alone.file_of(folder, ["-m", "pkg.train"]) == folder / "pkg/train.py"
    assert alone.file_of(folder, ["pkg/train.py", "--lr", "1"]) == folder / "pkg/train.py"
    for words in (["../out.py"], ["--no-python", "bash", "run.sh"], ["-m"], [], ["gone.py"]):
        assert alone.file_of(folder, words) is None
    (folder / "large.py").write_text("#" * (alone.MOST + 1))
    assert alone.read(folder / "large.py") == ""
