"""A model sharded over two hosts of the rack: each has its part of a checkpoint on its own disk."""

import pytest

from lab import waiting
from tests.cluster.control import BASE, Control

torch = pytest.importorskip("torch")
TRAIN = "--recipe text --batch 4 --mesh dp_shard=2 --checkpoint-every 10 --eval-every 0 --steps"


@pytest.fixture
def run(rack):
    made = Control(rack)
    yield made
    made.clean()


def parts(run, host, step):
    """The parts of a checkpoint on a host."""
    folder = f"~/.muster/runs/{run.run}/checkpoints/step-{step:08}"
    return run.rack.on(host, f"cd {folder} && ls shard-*; true").split()


def test_a_sharded_run_continues_with_reordered_hosts_and_is_fetched_as_one_file(run, tmp_path):
    first, second = run.hosts
    done = run.deploy("--args", f"{TRAIN} 20")
    assert done.returncode == 0, done.stderr
    assert (parts(run, first, 20), parts(run, second, 20)) == (["shard-0.pt"], ["shard-1.pt"])
    again = ("--resume", run.run, "--image", BASE, "--args", f"{TRAIN} 30")
    swapped = run.fab("deploy", *again, hosts=[second, first])
    assert swapped.returncode == 0, swapped.stderr
    state = tmp_path / "state.pt"
    fetched = run.fab("fetch", "--run", run.run, "--state", str(state))
    assert fetched.returncode == 0, fetched.stderr
    assert [event["step"] for event in waiting.events(run.dir / "hosts" / second, 0, "resumed")] == [20]
    weights = torch.load(state, weights_only=True)["model"]
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_damaged_part_is_named_with_its_host_and_the_step_before_is_used(run):
    second = run.hosts[1]
    done = run.deploy("--args", f"{TRAIN} 20")
    assert done.returncode == 0, done.stderr
    newest = f"~/.muster/runs/{run.run}/checkpoints/step-00000020/shard-1.pt"
    run.rack.root(second, "sh", "-c", f"printf x | dd of=/home/muster/{newest[2:]} bs=1 seek=4000 conv=notrunc")
    again = run.fab("deploy", "--resume", run.run, "--image", BASE, "--args", f"{TRAIN} 30")
    assert again.returncode == 0, again.stderr
    assert (
        f"shard-1.pt was altered: its SHA-256 is not the one in the manifest (on {second})"
        in again.stderr + again.stdout
    )
    assert [event["step"] for event in waiting.events(run.dir, 0, "resumed")] == [10]
