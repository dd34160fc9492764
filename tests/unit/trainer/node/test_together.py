"""A script whose ranks each trained alone does not end in `done`, and one whose ranks trained together does."""

import json

import pytest

from tests.unit.trainer.node.test_ends import node
from trainer.node.ends import Life
from trainer.node.together import trained_alone

STEP = """
import torch
def step():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(4, 2)).mean().backward()
    optimizer.step()
"""
SPAWN = """
import torch.distributed as dist, torch.multiprocessing as mp
def main(local, port):
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"  # else it asks torchrun's own store, and waits
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=local, world_size=1)
    step()
if __name__ == "__main__":
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(main, args=(port,), nprocs=1)
"""
LAUNCH = """
import subprocess
if "INNER" in os.environ:
    step()
else:
    subprocess.run([sys.executable, "train.py"], env={**os.environ, "INNER": "1"}, check=True)
"""
SILENT = """
import torch.distributed as dist
dist.init_process_group()
step()
dist.destroy_process_group()
"""
TOGETHER = SILENT.replace("dist.destroy", "dist.all_reduce(torch.ones(1))\ndist.destroy")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (STEP + "step()", "no process group was formed"),
        (STEP + SPAWN, "its largest process group was of 1 rank"),
        (STEP + LAUNCH, "no process group was formed"),
        (STEP + SILENT, "sent nothing through it"),
    ],
)
def test_ranks_that_train_alone_have_failed(tmp_path, body, words):
    code, verdict, _, said = node(tmp_path, body, GLOO_SOCKET_IFNAME="lo")
    assert (code, verdict["verdict"]) == (1, "failed"), said
    assert verdict["message"].startswith("train.py trained alone: ")
    assert words in verdict["message"]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("body", "more"),
    [
        (STEP + TOGETHER, {}),
        (STEP + TOGETHER.replace("dist.destroy_process_group()", ""), {}),
        (STEP + TOGETHER.replace("step()", ""), {}),
        (STEP + "step()", {"MUSTER_SEPARATE": "1"}),
        ("print('no training')", {}),
    ],
)
def test_ranks_that_train_together_or_apart_on_purpose_are_done(tmp_path, body, more):
    code, verdict, _, said = node(tmp_path, body, GLOO_SOCKET_IFNAME="lo", **more)
    assert (code, verdict["verdict"]) == (0, "done"), said


def lives(*ranks, world=4, attempt=0):
    return [Life(rank, local, attempt, world, 1, 1.0, 2.0, 0) for local, rank in enumerate(ranks)]


def noted(folder, *notes):
    lines = [json.dumps({"attempt": 0, **note}) + "\n" for note in notes]
    (folder / "together.jsonl").write_text("".join(lines))


def test_a_group_that_is_whole_on_one_of_several_hosts_is_that_hosts_alone(tmp_path):
    noted(tmp_path, {"rank": 0, "size": 4, "member": 0}, {"rank": 1, "size": 4, "member": 1})
    assert trained_alone(tmp_path, lives(0, 1), 2) == ""
    every = [{"rank": 0, "size": 4, "member": member} for member in range(4)]
    noted(tmp_path, *every)
    assert "on this host" in trained_alone(tmp_path, lives(0, 1), 2)
    assert trained_alone(tmp_path, lives(0, 1, 2, 3), 1) == ""


def test_what_an_earlier_attempt_formed_proves_nothing(tmp_path):
    noted(tmp_path, {"rank": 0, "attempt": 0, "size": 4, "member": 0}, {"rank": 0, "attempt": 1, "stepped": True})
    assert "no process group" in trained_alone(tmp_path, lives(0, attempt=1), 4)


def test_where_it_cannot_be_told_nothing_is_said(tmp_path):
    assert trained_alone(tmp_path, lives(0), 4) == ""
    noted(tmp_path, {"rank": 0, "stepped": True, "otherwise": True})
    assert trained_alone(tmp_path, lives(0), 4) == ""
    (tmp_path / "together.jsonl").write_text("torn {")
    assert trained_alone(tmp_path, lives(0), 4) == ""
