"""A script tries to reveal its secret: neither the console nor any file of the run may show it."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dist.conftest import environment

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
KEY = "Zk4/9aQ+xT7-bW2mPq8RsV"
SCRIPT = r"""
import base64, json, logging, os, sys, textwrap, threading, time
S = os.environ["API"]
print("plain", S)
sys.stderr.write("err " + S + "\n")
logging.warning("log %s", S)
print("url https://x/?k=" + S.replace("/", "%2f").replace("+", "%2b"), json.dumps(S).replace("/", "\\/"))
print("numbers", "".join("\\u%04x" % ord(letter) for letter in S), ascii(S.encode()))
print("wrapped", "\r\n".join(textwrap.wrap(base64.b64encode(b"user:" * 9 + S.encode()).decode(), 64)))
print("".join("\x1b[3%dm%s" % (number % 8, letter) for number, letter in enumerate(S)) + "\x1b[0m")
for cut in (2, 11, 20):
    print("pause", S[:cut], end="", flush=True)
    time.sleep(1.6)
    print(S[cut:], flush=True)
name = S.replace("-", "_").replace("/", "_").replace("+", "_")
os.environ["COPY_OF_KEY"] = os.environ["MUSTER_COPY"] = os.environ["NCCL_COPY"] = S
del os.environ["API"]
import torch, torch.distributed as dist
from tensorboardX import SummaryWriter
with SummaryWriter("tb") as board:
    board.add_scalar("loss/" + S, 1.0, 1)
open("metrics.csv", "w").write(f"step,{S},{name}\n1,2,3\n2,3,4\n")
def dies():
    raise type("E" + name, (Exception,), {})(S.lower())
thread = threading.Thread(target=dies, name="thread-" + S)
thread.start()
thread.join()
dist.init_process_group("gloo")
code = "dist.barrier(); time.sleep(5); raise ValueError('401 for https://u:' + S + '@host/')"
exec(compile(f"def f_{name}(): {code}", "key_" + S + ".py", "exec"))
locals()["f_" + name]()
"""


def letters(data):
    """The letters and digits of a text, lowercase, without colour codes, escapes and punctuation."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", data.decode("latin-1"))
    text = re.sub(r"%([0-9a-fA-F]{2})|\\u00([0-9a-f]{2})", lambda way: chr(int(way[1] or way[2], 16)), text)
    return re.sub(r"[^a-z0-9]", "", text.lower())


@pytest.mark.holds("secrets-masked")
def test_a_script_that_prints_its_secret_in_every_way_reveals_it_nowhere(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    fab = [str(FAB), "--search-root", str(HOME)]
    line = [*fab, "up", "--backend", "processes", "--nproc", "2", "--secret", "API"]
    done = subprocess.run(
        [*line, "--script", "train.py", "--run", "shows"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HOME), "API": KEY}, capture_output=True, timeout=180,
    )  # fmt: skip
    run, whole = tmp_path / "runs/shows", letters(KEY.encode())
    assert done.returncode == 1
    assert b"ValueError: 401 for https://u:***@host/" in done.stderr
    # Files that the script itself wrote are not masked.
    files = [path for path in run.rglob("*") if path.is_file() and not path.is_relative_to(run / "work")]
    seen = {"console": done.stdout + done.stderr, **{str(path): path.read_bytes() for path in files}}
    log = (run / "logs/rank-0.log").read_text()
    assert {"plain ***", "pause ***", 'url https://x/?k=*** "***"'} <= set(re.sub("Zk", "", log).splitlines())
    coded = base64.b64encode(b"user:" * 9 + KEY.encode()).decode()[61:-4].lower()
    coded = re.sub("[^a-z0-9]", "", coded)
    for name, data in seen.items():
        assert whole not in letters(data), name
        assert whole[4:] not in letters(data), name
        assert coded not in letters(data), name
        assert not any(part in letters(name.encode()) for part in (whole, whole[4:]))
    assert "***" in (run / "report.html").read_text()
    assert any(path.parent.name == "scalars" and "***" in path.read_text() for path in files)
    explained = subprocess.run([*fab, "explain", str(run / "logs")], cwd=tmp_path, capture_output=True, timeout=60)
    assert b"401 for https://u:***@host/" in explained.stdout + explained.stderr


RECIPE = r"""
import os
import torch
S = os.environ["API"]
DEFAULTS = {"steps": 4}
print("read", S)
def model():
    return torch.nn.Linear(1, 1)
def datasets(data):
    os.system("echo below $API")
    both = torch.utils.data.TensorDataset(torch.ones(64, 1))
    return both, both
def loss(model, batch):
    if torch.is_grad_enabled() and os.environ.get("FAILS"):
        raise ValueError("401 for https://u:" + S + "@host/")
    return model(batch[0]).sum()
"""


@pytest.mark.holds("secrets-masked")
@pytest.mark.parametrize("fails", ["", "1"])
def test_a_recipe_of_a_run_with_secrets_reveals_none_either(tmp_path, fails):
    """Once, a recipe's output went straight to its log, past the agent, and so past the mask."""
    (tmp_path / "own.py").write_text(RECIPE)
    given = {**environment(PYTHONPATH=str(HOME), API=KEY, FAILS=fails), "PET_NPROC_PER_NODE": "2"}
    given |= {"MUSTER_RUN_DIR": str(tmp_path / "run"), "MUSTER_NODE": "here", "MUSTER_SECRETS_PRESENT": "API"}
    (tmp_path / "run").mkdir()
    line = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--recipe", "own.py"]
    done = subprocess.run(line, cwd=tmp_path, env=given, stdin=subprocess.DEVNULL, capture_output=True, timeout=180)
    assert done.returncode == bool(fails), done.stderr
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    for name, data in {"console": done.stdout + done.stderr, **{path: path.read_bytes() for path in files}}.items():
        assert letters(KEY.encode()) not in letters(data), name
    log = (tmp_path / "run/logs/rank-0.log").read_text()
    assert {"read ***", "below ***"} <= set(log.splitlines())
    verdicts = [path.read_text() for path in (tmp_path / "run/outcome").glob("*.json")]
    assert not fails or any("ValueError: 401 for https://u:***@host/" in text for text in verdicts)
