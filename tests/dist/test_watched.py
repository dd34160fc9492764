"""Unchanged scripts under a real agent: what is reported about them, what is not, and that they never notice."""

import json
import textwrap

import pytest

from tests.unit.trainer.node.ending.test_rank_lives import node

HEAD = """
import json, hashlib, random, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(rank)
samples = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
own = []
def train(model, optimizer, epochs=3, loader=None):
    for _ in range(epochs):
        for x, y in loader or DataLoader(samples, batch_size=8, shuffle=True):
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            own.append(loss.item())
def keep(name, value):
    with open(name, "w") as file:
        json.dump(value, file)
"""
JOIN = """
dist.init_process_group("gloo")
model = DistributedDataParallel(model)
"""


@pytest.fixture
def watched(tmp_path):
    """run(body): run a script under an agent to its end; returns its events by rank, its metrics and its output."""

    def run(body, ranks=1, code=0, **variables):
        ended, _, events, output = node(
            tmp_path, HEAD + textwrap.dedent(body), ranks, GLOO_SOCKET_IFNAME="lo", MUSTER_SEPARATE="1", **variables
        )
        assert ended == code, output
        path = tmp_path / "run" / "metrics.jsonl"
        metrics = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        return [[event for event in events if event["rank"] == rank] for rank in range(ranks)], metrics, output

    return run


def of(kind, events):
    return [event for event in events if event["kind"] == kind]


def unseen(events):
    return {event["what"]: event["message"] for event in of("unseen", events)}


def test_steps_losses_and_who_waits_for_whom_are_reported(watched, tmp_path):
    slow = "if rank == 1: model.register_forward_pre_hook(lambda *_: time.sleep(0.2))"
    (first, second), metrics, _ = watched(slow + JOIN + "train(model, optimizer)\nkeep(f'own-{rank}', own)", ranks=2)
    (started,) = of("started", first)
    assert (started["world"], started["backend"], started["device"]) == (2, "gloo", "cpu")
    assert [of("step", events)[-1]["step"] for events in (first, second)] == [24, 24]
    own = json.loads((tmp_path / "own-0").read_text())
    assert len(metrics) >= 8
    assert all(line["loss"] == own[line["step"] - 1] for line in metrics)
    waits = [sum(step["wait_ms"] * step["count"] for step in of("step", events)) / 24 for events in (first, second)]
    assert waits[0] > 100, "rank 1 is the slow one: rank 0 waits for it"
    assert waits[0] > 2 * waits[1], "on a busy machine both wait for a core"
    assert not unseen(first)


FOLDS = """
for _ in range(3):
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    train(model, optimizer)
keep("own", own)
"""


def test_every_step_of_a_cross_validation_counts(watched, tmp_path):
    (events,), metrics, _ = watched(FOLDS)
    own = json.loads((tmp_path / "own").read_text())
    assert of("step", events)[-1]["step"] == len(own) == 72
    assert all(line["loss"] == own[line["step"] - 1] for line in metrics)


ENDS = """
torch.manual_seed(1)
train(model, optimizer)
keep("end", hashlib.sha256(b"".join([p.detach().numpy().tobytes() for p in model.parameters()]
    + [torch.get_rng_state().numpy().tobytes(), repr(random.getrandbits(1)).encode()])).hexdigest())
"""


def test_a_second_start_continues_the_step_count_and_its_losses_follow_the_first_ones(watched):
    """The script loads only its weights, from a file without a step."""
    body = """
    if os.path.exists("w.pt"): model.load_state_dict(torch.load("w.pt"))
    train(model, optimizer)
    torch.save(model.state_dict(), "w.pt")
    """
    watched(body)
    (events,), metrics, _ = watched(body)
    assert [event.get("step") for event in of("started", events)] == [None, 24]
    assert of("step", events)[-1]["step"] == 48
    steps = [line["step"] for line in metrics]
    assert steps == sorted(steps)
    assert 24 < steps[-1] <= 48


GOES_ON = """
optimizer = {optimizer}
start = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")
    start = saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for step in range(start, {end}):
    (model(torch.randn(8, 8)) ** 2).mean().backward()
    optimizer.step()
    if step + 1 == 20:
        torch.save(dict(step=20, model=model.state_dict(), optimizer=optimizer.state_dict()), "last.pt")
    if step == 24:
        {more}
"""
ADAM = "torch.optim.AdamW(model.parameters(), 0.01)"


def test_a_script_that_loads_its_optimizer_continues_at_its_own_step_and_repeats_count_once(watched):
    watched(GOES_ON.format(optimizer=ADAM, end=30, more="pass"))
    (events,), metrics, _ = watched(GOES_ON.format(optimizer=ADAM, end=60, more="pass"))
    (place,) = of("continues", events)
    assert (place["step"], place["before"], place["known"]) == (20, 30, True)
    assert of("step", events)[-1]["step"] == 60
    assert next(line["step"] for line in metrics if line["t"] >= place["t"]) == 21


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        ("torch.optim.SGD(model.parameters(), 0.01)", "pass"),
        (ADAM, f"optimizer = {ADAM}"),
        (ADAM, "torch.optim.Adam([*model.parameters()][:1]).step()"),
    ],
    ids=["that does not count", "that gives way to another", "one of two"],
)
def test_an_optimizer_that_does_not_know_the_step_is_not_trusted(watched, optimizer, more):
    script = GOES_ON.format(optimizer=optimizer, end=30, more=more)
    for _ in range(2):
        (events,), _, _ = watched(script.replace('"step"', '"at"').replace("step=20", "at=20"))
    (place,) = of("continues", events)
    assert not place["known"]
    assert of("step", events)[-1]["step"] > place["before"] == place["step"], "its steps come behind the earlier ones"


def test_watching_changes_no_bit_of_the_results_and_can_be_switched_off(watched, tmp_path):
    weights = []
    for observe in ("", "0"):
        (events,), _, _ = watched("random.seed(1)\n" + ENDS, MUSTER_OBSERVE=observe)
        weights.append((tmp_path / "end").read_text())
    assert weights[0] == weights[1]
    before = len(of("step", events))
    (events,), _, _ = watched(ENDS, MUSTER_OBSERVE="0")
    assert len(of("step", events)) == before


def test_forked_workers_and_children_write_nothing(watched):
    body = """
    loader = DataLoader(samples, batch_size=8, num_workers=2)
    train(model, optimizer, 1, loader)
    if os.fork() == 0:
        for _ in range(3):
            optimizer.step()
        sys.exit(0)
    assert os.wait()[1] == 0
    train(model, optimizer, 1)
    """
    (events,), metrics, _ = watched(body)
    assert len(of("started", events)) == 1
    assert of("step", events)[-1]["step"] == 16
    assert len({line["step"] for line in metrics}) == len(metrics)


SPAWN = """
import torch.multiprocessing as mp
def main(local):
    os.environ["RANK"] = str(local)
    train(model, optimizer, 1)
if __name__ == "__main__":
    mp.spawn(main, nprocs=2)
"""


def test_ranks_that_a_script_spawns_are_reported_by_their_own_numbers(watched, tmp_path):
    watched(SPAWN)
    for rank in (0, 1):
        lines = (tmp_path / "run" / "ranks" / f"rank-{rank}.jsonl").read_text().splitlines()
        assert max(json.loads(line).get("step", 0) for line in lines) == 8


@pytest.mark.parametrize(
    ("body", "what", "words"),
    [
        ("print('no training')", "steps", "called backward"),
        ("class Mine(torch.optim.SGD):\n    pass\nfor _ in range(30):\n    x = model(samples[0][0])\n"
         "    x.backward(torch.ones(1))\n    optimizer.step()", "loss", "gradients"),
        ("for _ in range(30):\n    model(samples[0][0]).sum().backward()\n    optimizer.step()", "data", "DataLoader"),
    ],
)  # fmt: skip
def test_what_cannot_be_observed_is_reported(watched, body, what, words):
    (events,), metrics, _ = watched(body)
    assert words in unseen(events)[what]
    assert what != "loss" or not metrics


def test_a_fault_of_the_watcher_is_reported_and_the_script_continues(watched, tmp_path):
    body = "def fails(*_): raise ZeroDivisionError('oops')\n"
    body += (
        "sys.modules['_muster_watch.steps.losses'].Losses.root = fails\n" + "train(model, optimizer)\nkeep('own', own)"
    )
    (events,), _, output = watched(body)
    assert "oops" in unseen(events)["all"]
    assert len(json.loads((tmp_path / "own").read_text())) == 24
    assert "oops" not in output


def test_files_that_cannot_be_written_do_not_disturb_the_script(watched, tmp_path):
    (tmp_path / "run" / "ranks").mkdir(parents=True)
    (tmp_path / "run" / "ranks" / "rank-0.jsonl").symlink_to("/dev/full")
    (tmp_path / "run" / "metrics.jsonl").mkdir()
    body = """
    train(model, optimizer)
    time.sleep(0.6)
    os.unlink(os.environ["MUSTER_RUN_DIR"] + "/ranks/rank-0.jsonl")
    """
    (events,), _, output = watched(body)
    assert "Traceback" not in output
    assert of("step", events)[-1]["step"] == 24, "what was not written yet comes once there is room"


def test_a_graph_is_not_kept_alive(watched, tmp_path):
    body = """
    import weakref
    left = []
    class Seen(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2
        @staticmethod
        def backward(ctx, grad):
            return grad * 2
    for _ in range(4):
        hidden = model(samples[0][0])
        loss = Seen.apply(hidden).sum()
        left.append(weakref.ref(hidden))
        loss.backward()
        optimizer.step()
        del hidden, loss
    keep("left", sum(one() is not None for one in left))
    """
    watched(body)
    assert (tmp_path / "left").read_text() == "0"


def test_a_script_that_compiles_its_step_is_reported_and_gets_no_warning(watched):
    body = """
    model = torch.compile(model, backend="eager")
    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    step = torch.compile(step, backend="eager")
    for x, y in DataLoader(samples, batch_size=8):
        step(x, y)
    """
    (events,), _, output = watched(body)
    assert of("step", events)[-1]["step"] == 8
    assert "trace" not in output


def test_a_script_with_its_own_hooks_and_an_abrupt_end_is_reported(watched):
    body = """
    from torch.optim.optimizer import register_optimizer_step_post_hook
    register_optimizer_step_post_hook(lambda *_: None)
    sys.excepthook = lambda *_: None
    os.close(1)
    train(model, optimizer)
    time.sleep(1)
    os._exit(0)
    """
    (events,), metrics, _ = watched(body)
    assert of("step", events)[-1]["step"] == 24
    assert metrics


OURS = """
import muster
torch.manual_seed(0)
folder = os.path.join(os.environ["MUSTER_RUN_DIR"], "work", "training")
training = muster.Training(folder, model=model, optimizer=optimizer)
for x, y in training.batches(samples, batch=16, steps=24):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    own.append(loss.item())
    {log}
keep(f"own-{{rank}}", own)
"""


def test_the_loss_of_a_script_with_muster_training_is_reported_as_without_it(watched, tmp_path):
    (first, _), metrics, _ = watched(JOIN + OURS.format(log="pass"), ranks=2)
    own = json.loads((tmp_path / "own-0").read_text())
    assert metrics
    assert all(line["loss"] == own[line["step"] - 1] for line in metrics)
    assert "loss" not in unseen(first)


@pytest.mark.parametrize("board", [True, False], ids=["with tensorboardX", "without it"])
def test_numbers_that_muster_training_logs_are_recorded_once(watched, tmp_path, board):
    if board:
        pytest.importorskip("tensorboardX")
    without = "" if board else "sys.modules['tensorboardX'] = None\n"
    watched(without + OURS.format(log="training.log(loss=loss, error=loss.sqrt())"))
    assert any((tmp_path / "run/work/training").glob("tensorboard/*")) == board
    told = [json.loads(line) for line in (tmp_path / "run/scalars/gpu-b.jsonl").read_text().splitlines()]
    own = json.loads((tmp_path / "own-0").read_text())
    assert {line["file"] for line in told} == {"work/training/metrics.jsonl"}
    assert all(line["tags"].keys() == {"loss", "error"} for line in told)
    assert told[-1]["tags"]["loss"][-1] == [24, own[-1]]


def test_a_script_that_writes_the_runs_own_metrics_with_musters_library_is_left_alone(watched):
    body = """
    from pathlib import Path
    from muster.metrics import Metrics
    mine = Metrics(Path(os.environ["MUSTER_RUN_DIR"]))
    train(model, optimizer)
    mine.add(24, loss=own[-1], mine=1)
    events = Path(os.environ["MUSTER_RUN_DIR"], "ranks/rank-0.jsonl")
    until = time.monotonic() + 20
    while not (events.exists() and '"unseen"' in events.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    """
    (events,), metrics, _ = watched(body)
    assert [line["mine"] for line in metrics] == [1]
    assert "itself" in unseen(events)["loss"]
