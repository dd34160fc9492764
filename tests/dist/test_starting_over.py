"""Muster reports at which step a script continues, however it resumes, or immediately that it starts over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.trainer.node.ending.test_rank_lives import node

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
# A start trains up to step 30 and saves after step 20, so that a start which resumes repeats 10 steps.
HEAD = """
import torch
from pathlib import Path
model = torch.nn.Linear(4, 1)
def adam(): return torch.optim.AdamW(model.parameters(), 0.01)
def sgd(**more): return torch.optim.SGD(model.parameters(), 0.01, **more)
def train(optimizer, begin, save=None, end=30):
    for step in range(begin, end):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if save and step + 1 == 20: save()
def whole(optimizer, **more):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **more}
here = os.path.exists("last.pt")
"""
FILE = """
o = {optimizer}
begin = 0
if here:
    saved = torch.load("last.pt")
    model.load_state_dict(saved["model"]); {load}
    begin = {begin}
train(o, begin, lambda: torch.save(whole(o, {more}), "last.pt"))
"""
DCP = """
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states
dist.init_process_group("gloo")
o = adam()
"""
LOADS = "o.load_state_dict(saved['optimizer'])"
SCRIPTS = {
    "adam, by a file": (FILE.format(optimizer="adam()", load=LOADS, begin="saved['step']", more="step=20"), 20),
    "adam, by epochs": (FILE.format(optimizer="adam()", load=LOADS, begin="saved['epoch'] * 10", more="epoch=2"), 20),
    "momentum, by a file": (
        FILE.format(optimizer="sgd(momentum=0.9)", load=LOADS, begin="saved['iter_num']", more="iter_num=20"),
        20,
    ),
    "sgd, by a file": (FILE.format(optimizer="sgd()", load=LOADS, begin="saved['step']", more="step=20"), 20),
    "weights alone": (FILE.format(optimizer="adam()", load="pass", begin="saved['step']", more="step=20"), 20),
    "dcp, states": (
        DCP
        + """
begin = 20 if here else 0
if here:
    saved = torch.load("last.pt")
    states.set_model_state_dict(model, saved["m"])
    states.set_optimizer_state_dict(model, o, optim_state_dict=saved["o"])
def save():
    made = {"m": states.get_model_state_dict(model), "o": states.get_optimizer_state_dict(model, o)}
    torch.save(made, "last.pt")
train(o, begin, save)
""",
        20,
    ),
    "dcp, a folder": (
        DCP
        + """
begin = 20 if os.path.exists("dcp") else 0
if begin:
    m, s = states.get_state_dict(model, o)
    state = {"m": m, "o": s}
    dcp.load(state, checkpoint_id="dcp")
    states.set_state_dict(model, o, model_state_dict=state["m"], optim_state_dict=state["o"])
def save():
    m, s = states.get_state_dict(model, o)
    dcp.save({"m": m, "o": s}, checkpoint_id="dcp")
train(o, begin, save)
""",
        20,
    ),
    "a flag, adam": ("o = adam(); train(o, 0, lambda: torch.save(whole(o, step=20), 'last.pt'))", 0),
    "a flag, momentum": ("o = sgd(momentum=0.9); train(o, 0, lambda: torch.save(whole(o), 'last.pt'))", 0),
    "a flag, sgd": ("o = sgd(); train(o, 0, lambda: torch.save(whole(o), 'last.pt'))", 0),
    "a flag, beside a model of others": (
        "torch.load('given.pt'); o = adam(); train(o, 0, lambda: torch.save(whole(o), 'last.pt'))",
        0,
    ),
    "another file than it writes": (
        "o = adam()\nif os.path.exists('ckpt/last.pt'): torch.load('ckpt/last.pt')\n"
        "train(o, 0, lambda: torch.save(whole(o), 'last.pt'))",
        0,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_step_at_which_a_start_continues_is_reported_or_that_it_starts_over(tmp_path, name):
    text, step = SCRIPTS[name]
    subprocess.run([sys.executable, "-c", "import torch; torch.save({}, 'given.pt')"], cwd=tmp_path, check=True)
    os.utime(tmp_path / "given.pt", (0, 0))
    for _ in range(2):
        code, _, events, said = node(tmp_path, HEAD + text, 1, GLOO_SOCKET_IFNAME="lo")
        assert code == 0, said
    (place,) = [event for event in events if event["kind"] == "continues"]
    assert (place["step"], place["before"], place["known"]) == (step, 30, True)
    assert place.get("anew", False) == (step == 0)
    assert [event["step"] for event in events if event["kind"] == "step"][-1] == 30


OWN_FLAG = """
import os, signal, sys, time, torch
model = torch.nn.Linear(4, 1); o = torch.optim.AdamW(model.parameters(), 0.01); begin = 0
print("words", sys.argv[1:], flush=True)
if "--resume" in sys.argv:
    saved = torch.load("last.pt")
    model.load_state_dict(saved["m"]); o.load_state_dict(saved["o"]); begin = saved["step"]
for step in range(begin + 1, 31):
    o.zero_grad(); model(torch.randn(8, 4)).square().mean().backward(); o.step(); time.sleep(0.1)
    if step == 20:
        torch.save({"m": model.state_dict(), "o": o.state_dict(), "step": step}, "last.pt")
        if not os.path.exists("died"): torch.save(torch.load("last.pt"), "same.pt")
    if step == 25 and not os.path.exists("died"):
        open("died", "w").close(); __import__("time").sleep(1); os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("more", [(), ("--restart-with=--resume",)], ids=["with the same words", "with other words"])
def test_a_restart_that_starts_over_is_reported_and_keeps_files_and_restart_with_continues(tmp_path, more):
    (tmp_path / "train.py").write_text(OWN_FLAG)
    up = [FAB, "--search-root", HOME, "up", "--backend", "processes", "--requirements", "no", "--run", "r1"]
    line = [*up, "--restarts", "1", *more, "--script", "train.py --lr 1"]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("words ['--lr', '1']\n") == (1 if more else 2)
    assert ("words ['--lr', '1', '--resume']\n" in done.stdout) == bool(more)
    over = (
        "the script starts over from the beginning: it loaded no checkpoint, and its optimizer is empty; steps 1 to 25"
    )
    assert (over in done.stdout) == (not more)
    earlier = tmp_path / "runs/r1/earlier/1/work"
    assert sorted(path.name for path in earlier.glob("*")) == ([] if more else ["died", "last.pt", "same.pt"])
    if not more:
        assert (earlier / "last.pt").read_bytes() != (tmp_path / "runs/r1/work/last.pt").read_bytes()
        assert "3 files (" in done.stdout
        assert "from earlier starts on master are kept in earlier/1/" in done.stdout
    assert ("the script continues after step 20" in done.stdout) == bool(more)
    assert "done" in done.stdout
    assert "step 30" in done.stdout
    assert "all starts" not in done.stdout
