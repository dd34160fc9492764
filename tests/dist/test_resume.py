"""A run resumes after any interruption: it repeats nothing, misses nothing, and no bit is different."""

import json
import math
import os
import random
import signal
from collections import Counter

import pytest
import torch

from lab.waiting import alive, events, lines, losses, until
from muster.checkpoint import store
from muster.data import StreamSampler
from tests.dist.conftest import HOME

RECORD = """
def seen(ids):
    folder = os.environ["SEEN"]
    with open(f"{folder}/{RANK}", "a") as file:
        file.write(" ".join(str(int(i)) for i in ids) + "\\n")
"""


def weights(run_dir, step):
    """The weights of one checkpoint."""
    return store.load(run_dir / f"checkpoints/step-{step:08d}")[0]["model"]


def same(first, other):
    """Whether two sets of weights are equal to the last bit."""
    return first.keys() == other.keys() and all(torch.equal(first[name], other[name]) for name in first)


def trains_again(run, rank, starts):
    """Wait until a rank has started `starts` times and made a step since; return its process id."""
    until(lambda: len(events(run.run_dir, rank, "started")) == starts, f"start {starts} of rank {rank}")
    last = events(run.run_dir, rank, "started")[-1]
    until(lambda: any(e["t"] > last["t"] for e in events(run.run_dir, rank, "step")), "a step after the start")
    return last["pid"]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 4), (4, 1)])
def test_nothing_is_repeated_or_missed_across_a_change_of_world_size(torchrun, recipe_file, tmp_path, before, after):
    recipe = recipe_file(RECORD)
    options = ("--recipe", recipe, "--batch", 24, "--checkpoint-every", 5, "--eval-every", 0)
    taken, steps = Counter(), {before: 5, after: 20}
    for number, world in enumerate((before, after)):
        seen = tmp_path / f"seen-{number}"
        seen.mkdir()
        resume = ("--resume", tmp_path / "run-0") if number else ()
        run = torchrun(world, *options, *resume, "--steps", steps[world], folder=f"run-{number}", SEEN=str(seen))
        assert run.wait() == 0, run.output
        for rank in range(world):
            rows = [[int(i) for i in row.split()] for row in (seen / str(rank)).read_text().splitlines()]
            own = steps[world] - (0 if number == 0 else steps[before])
            for row in rows[1 : 1 + own]:  # the first row settles DDP's buckets; the last ones are evaluation
                taken.update(row)
    expected = Counter(
        StreamSampler(203, batch=24, micro_batches=1, world=1, rank=0, seed=0, consumed=0).indices(0, 24 * steps[after])
    )
    assert taken == expected
    (resumed,) = events(tmp_path / "run-1", 0, "resumed")
    assert f"world size {before} -> {after}" in resumed["changes"][0]


def test_a_run_resumed_after_kill_9_of_everything_has_the_same_weights_to_the_last_bit(nodes):
    options = ("--steps", 120, "--checkpoint-every", 10, "--keep", 50, "--eval-every", 0)
    whole = nodes(2, *options, folder="whole").start()
    until(lambda: None not in whole.codes().values(), "the undisturbed run to end", 120)
    broken = nodes(2, *options, folder="broken").start()
    until(lambda: len(events(broken.run_dir, 0, "checkpoint")) >= 3, "three checkpoints")
    broken.kill_everything()
    usable, damaged = store.newest_usable(broken.run_dir / "checkpoints")
    assert usable
    assert not damaged
    again = nodes(2, *options, folder="broken", start=2).start()
    until(lambda: None not in again.codes().values(), "the second start to end", 120)
    assert set(again.codes().values()) == {0}
    assert same(weights(whole.run_dir, 120), weights(broken.run_dir, 120))
    after = losses(broken.run_dir)
    assert {step: after[step] for step in losses(whole.run_dir)} == losses(whole.run_dir)


SPOILED = """
from pathlib import Path
done, calls = Path(__file__).with_suffix(".spoiled"), []

def loss(model, batch):
    ids, x, y = batch
    calls.append(1)
    if len(calls) == 27 and RANK == 1 and not done.exists():
        done.touch()
        next(model.parameters()).data.view(-1)[0] += 0.25
    return ((model(x) - y) ** 2).mean()
"""


def test_after_a_replicas_weights_change_all_ranks_go_back_and_end_with_the_right_ones(nodes, recipe_file):
    options = ("--steps", 60, "--batch", 24, "--checkpoint-every", 10, "--eval-every", 0, "--log-every", 1)
    spoiled = nodes(1, *options, "--recipe", recipe_file(SPOILED), folder="spoiled").start()
    until(lambda: None not in spoiled.codes().values(), "the spoiled run to end", 120)
    assert set(spoiled.codes().values()) == {0}
    (resumed,) = events(spoiled.run_dir, 0, "resumed")
    assert resumed["step"] == 20, "the last checkpoint before the change"
    sound = nodes(1, *options, "--recipe", recipe_file(SPOILED), folder="sound").start()
    until(lambda: None not in sound.codes().values(), "the sound run to end", 120)
    assert not events(sound.run_dir, 0, "resumed"), "its weights are spoiled once alone"
    assert same(weights(sound.run_dir, 60), weights(spoiled.run_dir, 60))


def test_a_rank_that_gets_sigkill_or_sigterm_comes_back_by_itself(nodes):
    options = ("--steps", 2000, "--checkpoint-every", 20, "--eval-every", 0)
    run = nodes(1, *options).start()
    for starts in (1, 2, 3):
        pid = trains_again(run, 1, starts)
        if starts < 3:
            # torchrun sends SIGTERM to its ranks when a node joins, so it is not a request to stop the run.
            os.kill(pid, signal.SIGKILL if starts == 1 else signal.SIGTERM)
    assert set(run.codes().values()) == {None}
    run.terminate("worker-1")
    until(lambda: None not in run.codes().values(), "a stop")
    assert set(run.codes().values()) == {75}


def test_a_lost_node_that_is_started_again_joins(nodes):
    run = nodes(1, "--steps", 2000, "--checkpoint-every", 20, "--eval-every", 0).start()
    until(lambda: events(run.run_dir, 0, "checkpoint"), "a checkpoint")
    ranks = [events(run.run_dir, rank, "started")[-1]["pid"] for rank in (0, 1)]
    os.kill(run.pids("worker-1")[0], signal.SIGKILL)
    until(lambda: run.restarting_codes() and len(events(run.run_dir, 1, "started")) == 2, "the node to come back")
    trains_again(run, 0, 2)
    assert not any(alive(pid) for pid in ranks)  # the rank of a killed agent dies with it
    assert events(run.run_dir, 0, "resumed")


def test_one_node_asked_to_stop_stops_all_at_one_step_with_a_checkpoint(nodes):
    run = nodes(2, "--steps", 5000, "--checkpoint-every", 0, "--eval-every", 0).start()
    until(lambda: events(run.run_dir, 2, "step"), "a first step")
    run.terminate("worker-2")
    until(lambda: None not in run.codes().values(), "all nodes to end", 30)
    assert set(run.codes().values()) == {75}
    ends = [events(run.run_dir, rank, "outcome")[0] for rank in range(3)]
    assert {end["verdict"] for end in ends} == {"stopped"}
    (step,) = {end["step"] for end in ends}
    usable, _ = store.newest_usable(run.run_dir / "checkpoints")
    assert usable.manifest.step == step


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_it_is_used(torchrun):
    options = ("--steps", 40, "--checkpoint-every", 10, "--keep", 9, "--eval-every", 0)
    run = torchrun(1, *options)
    assert run.wait() == 0, run.output
    last = run.run_dir / "checkpoints/step-00000040/state.pt"
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    again = torchrun(1, *options)
    assert again.wait() == 0, again.output
    (damaged,) = events(run.run_dir, 0, "checkpoint_damaged")
    assert "step-00000040" in damaged["path"]
    assert events(run.run_dir, 0, "resumed")[0]["step"] == 30
    assert store.newest_usable(run.run_dir / "checkpoints")[0].manifest.step == 40


def test_a_finished_run_started_again_has_nothing_to_do(torchrun):
    run = torchrun(1, "--steps", 5)
    assert run.wait() == 0
    before = (run.run_dir / "checkpoints/step-00000005/manifest.json").read_text()
    again = torchrun(1, "--steps", 5)
    assert again.wait() == 0, again.output
    assert (run.run_dir / "checkpoints/step-00000005/manifest.json").read_text() == before
    assert lines(run.run_dir / "metrics.jsonl")[-1]["step"] == 5


@pytest.mark.parametrize(("option", "value", "word"), [("--seed", 3, "--seed 0"), ("--recipe", "text", "digits")])
def test_a_checkpoint_of_another_run_is_refused_with_the_way_out(torchrun, option, value, word):
    run = torchrun(1, "--steps", 5)
    assert run.wait() == 0, run.output
    other = torchrun(2, "--steps", 9, "--resume", run.run_dir, option, value, folder="other")
    assert other.wait() != 0
    end = events(other.run_dir, 0, "outcome")[0]
    assert (end["verdict"], end["code"]) == ("refused", 2)
    assert word in end["message"] + end["hint"]


def test_a_foreign_file_is_refused(torchrun, tmp_path):
    torch.save({"epoch": 3, "model": {}}, tmp_path / "snapshot.pt")
    run = torchrun(1, "--steps", 5, "--resume", tmp_path / "snapshot.pt")
    assert run.wait() != 0
    end = events(run.run_dir, 0, "outcome")[0]
    assert end["verdict"] == "refused"
    assert "snapshot.pt" in end["message"]


def test_a_checkpoint_names_its_world(torchrun):
    run = torchrun(2, "--steps", 4)
    assert run.wait() == 0
    manifest = json.loads((run.run_dir / "checkpoints/step-00000004/manifest.json").read_text())
    assert manifest["summary"]["world"] == 2


@pytest.mark.parametrize(
    ("recipe", "mesh", "checkpoint"),
    [("line.py", (), "checkpoint-v1"), ("plane.py", ("--mesh", "dp_shard=2"), "checkpoint-v2")],
)
def test_a_run_resumes_from_a_checkpoint_of_each_format(torchrun, recipe, mesh, checkpoint):
    golden = HOME / "tests/golden"
    run = torchrun(2, "--recipe", f"tests/golden/{recipe}", *mesh, "--steps", 9, "--resume", golden / checkpoint)
    assert run.wait() == 0, run.output
    assert events(run.run_dir, 0, "resumed")[0]["step"] == 6
    assert events(run.run_dir, 0, "outcome")[0]["step"] == 9


UNEVEN = """
class Noisy(TensorDataset):
    def __getitem__(self, index):
        ids, x, y = super().__getitem__(index)
        return ids, x + 0.1 * torch.randn(4), y

def collate(samples):
    return torch.utils.data.default_collate(samples)

def datasets(data):
    return Noisy(*numbered(203).tensors), numbered(37)

def model():
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))

def loss(model, batch):
    time.sleep(0.003 * RANK)
    ids, x, y = batch
    return ((model(x) - y) ** 2).mean()
"""


def finished(run, ranks, until_t=math.inf):
    """The last step that any of these ranks finished before `until_t`."""
    return max(event["step"] for rank in ranks for event in events(run.run_dir, rank, "step") if event["t"] < until_t)


def whole_state(run_dir, step):
    """The parts of a checkpoint that do not depend on the user's settings: model, optimizer and scheduler."""
    state = store.load(run_dir / f"checkpoints/step-{step:08d}")[0]
    return {name: state[name] for name in ("model", "optimizer", "scheduler")}


def equal(first, other):
    """Whether two nested states are equal to the last bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, other)
    if isinstance(first, dict):
        return first.keys() == other.keys() and all(equal(first[name], other[name]) for name in first)
    if isinstance(first, list):
        return len(first) == len(other) and all(equal(*pair) for pair in zip(first, other, strict=True))
    return first == other


@pytest.mark.parametrize("workers", [0, 2])
def test_a_lost_rank_costs_no_finished_step_and_changes_no_bit(nodes, recipe_file, workers):
    own = ("--recipe", recipe_file(UNEVEN), "--data-workers", workers, "--eval-every", 40)
    options = (*own, "--steps", 150, "--batch", 24, "--checkpoint-every", 100000, "--log-every", 1, "--keep", 9)
    whole = nodes(2, *options, folder="whole").start()
    until(lambda: None not in whole.codes().values(), "the undisturbed run to end", 120)
    broken = nodes(2, *options, folder="broken").start()
    draw = random.Random()
    for starts, doomed in enumerate((0, 1, 2), start=1):
        trains_again(broken, 0, starts)
        goal = finished(broken, [0]) + draw.randrange(3, 25)
        until(lambda: finished(broken, [0]) >= goal, "some steps more")  # noqa: B023
        os.kill(events(broken.run_dir, doomed, "started")[-1]["pid"], signal.SIGKILL)
        until(lambda: len(events(broken.run_dir, 0, "resumed")) == starts, "the next start")  # noqa: B023
        resumed = events(broken.run_dir, 0, "resumed")[-1]
        assert resumed["step"] == finished(broken, {0, 1, 2} - {doomed}, resumed["t"]), "no finished step is lost"
    until(lambda: None not in broken.codes().values(), "the broken run to end", 120)
    assert set(broken.codes().values()) == {0}
    assert equal(whole_state(whole.run_dir, 150), whole_state(broken.run_dir, 150))
    told, after = losses(whole.run_dir), losses(broken.run_dir)
    assert after.items() <= told.items()
    assert len(told) - len(after) <= 1, "rank 0 may be killed between its last step and the line about it"


HALF = """
from pathlib import Path
done = Path(__file__).with_suffix(".half")

class Half(torch.optim.SGD):
    taken = 0

    def step(self, closure=None):
        self.taken += 1
        if RANK == 1 and self.taken == 13 and not done.exists():
            done.touch()
            self.param_groups[0]["params"][0].data.add_(1.0)
            raise RuntimeError("Connection closed by peer [127.0.0.1]:1")
        return super().step(closure)

def optimizer(model, lr):
    return Half(model.parameters(), lr)
"""


def test_a_state_that_was_half_updated_is_not_saved(nodes, recipe_file):
    options = ("--steps", 30, "--batch", 24, "--checkpoint-every", 1000, "--eval-every", 0, "--log-every", 1)
    broken = nodes(1, *options, "--recipe", recipe_file(HALF), folder="broken").start()
    until(lambda: None not in broken.codes().values(), "the broken run to end", 120)
    assert set(broken.codes().values()) == {0}
    assert not events(broken.run_dir, 1, "checkpoint"), "rank 1 had changed a part of its state"
    assert events(broken.run_dir, 0, "resumed")[0]["step"] == 13, "rank 0 had finished that step"
    whole = nodes(1, *options, "--recipe", recipe_file(HALF), folder="whole").start()
    until(lambda: None not in whole.codes().values(), "the undisturbed run to end", 120)
    assert same(weights(whole.run_dir, 30), weights(broken.run_dir, 30))
