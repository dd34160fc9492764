"""If torch moves a private name, Muster loses only what its table says, and never the run: no script notices."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.dist.conftest import HOME, environment
from tests.unit.trainer.node.test_torch_names import OF_GPUS, OF_OBJECTS
from trainer.node.torch_names import NAMES

# Uses everything that Muster watches.
SCRIPT = """
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader
torch.manual_seed(1)
dist.init_process_group("gloo", init_method=f"file://{OUT}.group", rank=0, world_size=1)
model = nn.Linear(4, 1)
for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS):
    optimizer, scaler = kind(model.parameters(), 0.01), torch.amp.GradScaler("cpu", init_scale=2.0)
    for batch in DataLoader(torch.randn(8, 4), batch_size=2):
        def closure():
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            (loss if kind is torch.optim.LBFGS else scaler.scale(loss)).backward()
            print(float(loss))
            return loss
        if kind is torch.optim.LBFGS:
            optimizer.step(closure)
        else:
            closure()
            scaler.step(optimizer)
            scaler.update()
dist.all_reduce(torch.ones(1))
@torch.compile(backend="eager")
def compiled(batch):
    return model(batch).sum()
compiled(torch.ones(1, 4)).backward()
dist.destroy_process_group()
print([float(each.detach().sum()) for each in model.parameters()], flush=True)
"""
# Forks a Python that has imported torch for each watcher in sites.json, by the name that its torch lacks.
DRIVER = """
import json, os, runpy, sys
import torch, torch._dynamo, torch.distributed.rpc, torch.utils.data
for name, site in json.load(open("sites.json")).items():
    if not (pid := os.fork()):
        file = os.open(f"{name}.out", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1), os.dup2(file, 2)
        if site:
            os.environ["MUSTER_OUTCOME_DIR"] = os.path.abspath(f"{name}.notes")
            os.mkdir(os.environ["MUSTER_OUTCOME_DIR"])
            runpy.run_path(site)["watch"]()
        runpy.run_path("train.py", {"OUT": os.path.abspath(name)}, "__main__")
        sys.exit()
    open(f"{name}.code", "w").write(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
"""
PRIVATE = {row.rpartition(":")[2].rpartition(".")[2]: row for row in {**NAMES, **OF_GPUS, **OF_OBJECTS}}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The script's output and exit code, by the name that torch lacks; `bare`: not watched, `whole`: it lacks none."""
    folder = tmp_path_factory.mktemp("moves")
    sites = {"bare": "", "whole": str(HOME / "trainer/node/rank/site/sitecustomize.py")}
    for name in PRIVATE:
        rank = folder / name / "rank"
        shutil.copytree(HOME / "trainer/node/rank", rank, ignore=shutil.ignore_patterns("__pycache__"))
        texts = {path: path.read_text() for path in rank.rglob("*.py")}
        moved = {path: re.sub(rf"(?<=[.\" ]){name}\b", f"{name}_elsewhere", text) for path, text in texts.items()}
        assert moved != texts, f"nothing reads {name}: its row can go"
        for path, text in moved.items():
            path.write_text(text)
        sites[name] = str(rank / "site/sitecustomize.py")
    (folder / "sites.json").write_text(json.dumps(sites))
    (folder / "train.py").write_text(SCRIPT)
    given = environment(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MUSTER_LIFE="0-0-1")
    subprocess.run([sys.executable, "-c", DRIVER], cwd=folder, env=given, check=True, timeout=240)
    return {
        name: ((folder / f"{name}.out").read_text(), (folder / f"{name}.code").read_text(), folder) for name in sites
    }


@pytest.mark.parametrize("name", ["whole", *PRIVATE])
def test_a_script_prints_and_ends_as_usual_if_torch_lacks_a_private_name(scripts, name):
    said, code, folder = scripts[name]
    assert (said, code) == scripts["bare"][:2]
    assert code == "0"
    assert os.listdir(folder / f"{name}.notes"), "it was watched"
