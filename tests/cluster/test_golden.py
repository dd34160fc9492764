"""What a user sees of real hosts, recorded: what dry runs print, and the keys of `--json`, of a run and after it."""

import json
import re
import shlex

import pytest

from tests.cluster.control import BASE
from tests.golden.held import hold

SCRIPT = """import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    loss = model(torch.ones(4, 2)).square().mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
if not dist.get_rank(): torch.save(model.state_dict(), "model.pt")
dist.destroy_process_group()
"""
# What differs from one try to the next, and what stands for it.
_CHANGES = (
    (r"test-[0-9a-f]{8}", "RUN"),
    (r"sha256:[0-9a-f]{64}|\b[0-9a-f]{32,64}\b|\bcode-[0-9a-f]{12,}", "DIGEST"),
    (r"\b[0-9a-f]{16}\b", "TOKEN"),
    (r"\b172\.\d+\.\d+\.\d+|\bfd00:[0-9a-f:]+", "ADDRESS"),
    (r"\b\d{9,}b?\b", "NUMBER"),
    (r"\b(?:29|[3-6]\d)\d{3}\b", "PORT"),
    (r"\d+(?:\.\d+)? (?:ms|s|MB|kB|GB)\b", "SO-MUCH"),
    (r"/(?:tmp|dev/shm)/[\w./-]*?/folder\d*", "FOLDER"),
    (r"muster-folder\d+", "IMAGE"),
    (r'"control": "[^"]*"', '"control": "HERE"'),
)
DRY = {
    "a script": ("--script", "train.py --lr 0.1"),
    "after the dashes": ("--", "train.py", "--lr", "0.1"),
    "torchrun as it is typed": ("--", "torchrun", "--nproc_per_node=2", "train.py"),
    "a shell script": ("--script", "bash run.sh"),
    "one command a node": ("--each", "python train.py --rank {node_rank} --of {nodes}"),
    "two ranks a host": ("--nproc", "2", "--script", "train.py"),
    "restarts": ("--restarts", "2", "--script", "train.py"),
    "an end of its own": ("--max-hours", "0.5", "--on-end", "echo over", "--script", "train.py"),
    "a mount": ("--allow-folder", "--mount", "/tmp:/data:ro", "--script", "train.py"),
    "who may be missing": ("--min-nodes", "1", "--script", "train.py"),
    "variables and what is kept": ("--env", "A=b", "--style", "slurm", "--keep", "/opt/out", "--script", "train.py"),
    "Muster's own trainer": ("--args", "--steps 10"),
}


def alike(text):
    """A text without what differs from one try to the next."""
    for pattern, word in _CHANGES:
        text = re.sub(pattern, word, text)
    return text


@pytest.fixture
def folder(tmp_path_factory):
    """A user's folder with two scripts."""
    made = tmp_path_factory.mktemp("folder")
    (made / "train.py").write_text(SCRIPT)
    (made / "run.sh").write_text("torchrun train.py\n")
    return made


def test_dry_runs_print_what_they_printed(control, folder):
    blocks = []
    for name, words in DRY.items():
        done = control.deploy("--folder", str(folder), "--requirements", "no", "--dry-run", *words)
        blocks += [f"== {name}: {shlex.join(words)}: {done.returncode}", done.stdout, done.stderr]
    hold("dry_runs.txt", alike("\n".join(blocks)))


def shape(value):
    """The keys of a JSON value with the types of what they have."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


def shapes(name, text):
    """The kinds of a command's JSON lines, each with its keys."""
    found = set()
    for line in text.splitlines():
        value = json.loads(line)
        found.add(f"{name} {value.get('kind', '')}: {json.dumps(shape(value))}")
    return sorted(found)


def test_json_of_each_command_has_its_keys(control, folder):
    lines = []
    run = ("--run", control.run)
    started = ("--image", BASE, "--folder", str(folder), "--requirements", "no", "--script", "train.py")
    for name, words in (
        ("push", started[:-2]),
        ("preflight", ("--image", BASE)),
        ("deploy", (*run, *started)),
        ("status", run),
        ("logs", (*run, "--rank", "all")),
        ("runs", ()),
        ("fetch", run),
        ("why", run),
        ("gpus", ()),
        ("clean", ()),
        ("down", run),
    ):
        done = control.fab(name, "--json", *words)
        lines += [f"== {name}: {done.returncode}", *shapes(name, done.stdout)]
    hold("json.txt", "\n".join(lines))
