"""A script whose ranks each trained alone does not end as `done`, and one whose ranks trained together does."""

import json
import os
import sys
import time
import types
from dataclasses import replace

import pytest

from tests.started import started
from tests.unit.trainer.node.ending.test_rank_lives import node
from trainer.node.ending import own_world, training_alone
from trainer.node.ending.rank_lives import Life
from trainer.node.ending.training_alone import why_trained_alone
from trainer.node.notes import Journal
from trainer.node.rank import world_notes, worlds

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
        (STEP + "step()", "the ranks formed no process group"),
        (STEP + SPAWN, "its largest process group had 1 rank"),
        (STEP + LAUNCH, "the ranks formed no process group"),
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
    (folder / "journal.jsonl").write_text("".join(lines))


def test_a_group_that_is_whole_on_one_of_several_hosts_trained_alone(tmp_path):
    noted(tmp_path, {"rank": 0, "size": 4, "member": 0}, {"rank": 1, "size": 4, "member": 1})
    assert why_trained_alone(tmp_path, lives(0, 1), 2) == ""
    every = [{"rank": 0, "size": 4, "member": member} for member in range(4)]
    noted(tmp_path, *every)
    assert "on this host" in why_trained_alone(tmp_path, lives(0, 1), 2)
    assert why_trained_alone(tmp_path, lives(0, 1, 2, 3), 1) == ""


def member(number, size, store, **more):
    return {"rank": 0, "size": size, "member": number, "store": store, **more}


def test_a_group_of_one_host_does_no_harm_if_another_group_has_all_hosts(tmp_path):
    local = [member(number, 2, "127.0.0.1:1") for number in range(2)]
    noted(tmp_path, *local, {"rank": 0, "stepped": True})
    assert "on this host" in why_trained_alone(tmp_path, lives(0, world=2), 2)
    noted(tmp_path, *local, member(0, 2, "10.0.0.1:2"), {"rank": 0, "stepped": True, "sent": True})
    assert why_trained_alone(tmp_path, lives(0, world=2), 2) == ""


def test_a_group_of_one_rank_is_a_fault_only_if_it_trains_or_a_launcher_made_it(tmp_path):
    noted(tmp_path, member(0, 1, "HashStore"))
    assert why_trained_alone(tmp_path, lives(0, world=2), 2) == ""
    noted(tmp_path, member(0, 1, "HashStore"), {"rank": 0, "stepped": True})
    assert "largest process group had 1 rank" in why_trained_alone(tmp_path, lives(0, world=2), 2)
    noted(tmp_path, {"rank": 0, "launch": [1, 1, 1]}, member(0, 1, "127.0.0.1:1"))
    assert "largest process group had 1 rank" in why_trained_alone(tmp_path, lives(0, world=2), 2)


def test_a_process_without_the_runs_variables_trains_alone_unless_a_group_formed(tmp_path):
    noted(tmp_path, {"rank": 0, "unseen": True, "command": ["python", "train.py"]})
    assert "none of the run's variables" in why_trained_alone(tmp_path, lives(0, world=2), 2)
    noted(tmp_path, {"rank": 0, "unseen": True}, member(0, 2, "10.0.0.1:2"))
    assert why_trained_alone(tmp_path, lives(0, world=2), 2) == ""


def test_a_group_of_an_earlier_attempt_proves_nothing(tmp_path):
    noted(tmp_path, {"rank": 0, "attempt": 0, "size": 4, "member": 0}, {"rank": 0, "attempt": 1, "stepped": True})
    assert "no process group" in why_trained_alone(tmp_path, lives(0, attempt=1), 4)


def test_if_it_is_unknown_how_ranks_trained_nothing_is_reported(tmp_path):
    assert why_trained_alone(tmp_path, lives(0), 4) == ""
    noted(tmp_path, {"rank": 0, "stepped": True, "otherwise": True})
    assert why_trained_alone(tmp_path, lives(0), 4) == ""
    for odd in (b"torn {", b"\xff\xfe"):
        (tmp_path / "journal.jsonl").write_bytes(odd)
        assert why_trained_alone(tmp_path, lives(0), 4) == ""
    (tmp_path / "journal.jsonl").unlink()
    os.mkfifo(tmp_path / "journal.jsonl")
    assert why_trained_alone(tmp_path, lives(0), 4) == "", "a script may have put a pipe there: nobody waits for it"


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return a function that returns what a node's watch reports about its ranks at one look, after these notes."""
    clock = [100.0]
    monkeypatch.setattr(training_alone.time, "monotonic", lambda: clock[0])

    def look(watch, *notes, of=None):
        clock[0] += 10.0
        noted(tmp_path, *notes)
        watch._journal, watch._noted = Journal(tmp_path), []  # the watch sees only these notes
        return [(rank, about["why"], about.get("hint", "")) for rank, about in watch.look(of or lives_now(0, 1))]

    return look


def lives_now(*ranks, world=4, attempt=0):
    return [Life(rank, local, attempt, world, 1, 1.0) for local, rank in enumerate(ranks)]


def lasting(rank, **more):
    return {"rank": rank, "stepped": True, "lasting": True, **more}


def test_ranks_that_keep_training_alone_are_reported_once_while_they_do(tmp_path, told):
    watch = training_alone.AloneWatch(tmp_path)
    assert told(watch, {"rank": 0, "stepped": True}, {"rank": 1, "stepped": True}) == []  # a group may still form
    news = told(watch, lasting(0), lasting(1))
    assert [rank for rank, _, _ in news] == [0, 1]
    assert "the ranks formed no process group (4 ranks should train together)" in news[0][1]
    assert "init_process_group()" in news[0][2]
    assert told(watch, lasting(0), lasting(1)) == []


def test_ranks_started_at_the_scripts_own_address_wait_in_vain_even_on_one_host(tmp_path, told):
    """As in PyTorch's tutorial: mp.spawn, and os.environ["MASTER_PORT"] = "12355". Under torchrun, no rank listens."""
    watch = training_alone.AloneWatch(tmp_path)
    note = {"rank": 0, "joins": 2, "client": True, "meets": "localhost:12355", "given": "127.0.0.1:29500"}
    note |= {"at": "train.py:51", "pid": os.getpid(), "t": time.time() - 10}
    ((rank, why, hint),) = told(watch, note, of=lives_now(0, world=1))
    assert rank == 0
    assert why.startswith("train.py:51: it sets localhost:12355")
    assert "`python` before its name" in hint
    assert watch.final is None
    told(watch, {**note, "t": time.time() - 60}, of=lives_now(0, world=1))
    assert watch.final
    assert told(training_alone.AloneWatch(tmp_path), {**note, "client": False}, of=lives_now(0, world=1)) == []
    assert (
        told(
            training_alone.AloneWatch(tmp_path),
            note,
            member(0, 2, "localhost:12355", t=time.time()),
            of=lives_now(0, world=1),
        )
        == []
    )


def test_ranks_given_the_runs_own_ipv6_address_meet_where_the_run_meets(monkeypatch):
    variables = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in {**variables, "MASTER_ADDR": "fd00::1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    assert worlds.of_join("tcp://[fd00::1]:29500", 2, 0, None, worlds.meeting_of(None, None)) == {}


def test_a_rank_that_leaves_torchruns_address_is_a_client_without_a_server(monkeypatch):
    variables = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in {**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    began = worlds.meeting_of(None, None)
    assert worlds.of_join(None, 2, -1, None, began) == {}
    monkeypatch.setenv("MASTER_PORT", "12355")
    about = worlds.of_join(None, 2, -1, None, began)
    assert (about["client"], about["joins"], about["meets"]) == (True, 2, "127.0.0.1:12355")
    assert not worlds.of_join("tcp://10.0.0.1:5", 2, -1, None, began)["client"]
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE")
    assert not worlds.of_join(None, 2, -1, None, began)["client"]


def test_a_rank_that_joins_as_its_local_rank_is_reported_but_a_reordered_rank_is_not(
    tmp_path, told, monkeypatch, launch
):
    """`init_process_group(rank=local_rank)` is right on one node; on two, nobody joins as the last ranks."""
    variables = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in {**variables, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    began, pid = worlds.meeting_of(None, None), launch(2, 0.0)["pid"]
    assert worlds.of_join(None, 2, 1, None, began) == {}
    note = {"rank": 1, "pid": pid, "given": began, "t": time.time() - 10, **worlds.of_join(None, 2, 0, None, began)}
    of = [replace(each, rank=1) for each in lives_now(0, world=2)]
    ((_, why, hint),) = told(training_alone.AloneWatch(tmp_path), note, of=of)
    assert "it joins as rank 0, which is its LOCAL_RANK, and so does a rank of another node" in why
    assert "without an address, a rank or a world size" in hint
    assert told(training_alone.AloneWatch(tmp_path), {**note, "taken": 3}, of=of) == []
    assert (
        told(training_alone.AloneWatch(tmp_path), note, {"rank": 1, "size": 2, "member": 1, "t": time.time()}, of=of)
        == []
    )


def test_a_watch_looks_once_a_second_unless_a_rank_has_ended(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(training_alone.time, "monotonic", lambda: clock[0])
    watch = training_alone.AloneWatch(tmp_path)
    assert watch.look(lives_now(0, 1)) == []
    noted(tmp_path, lasting(0), lasting(1))
    clock[0] += 0.9
    assert watch.look(lives_now(0, 1)) == []
    clock[0] += 0.2
    assert [rank for rank, _ in watch.look(lives_now(0, 1))] == [0, 1]


STANDALONE = {"command": ["python", "/bin/torchrun", "--standalone", "train.py"], "given": "127.0.0.1:29500"}


@pytest.fixture(scope="module")
def launch():
    """Return a function that returns the note of a launcher that has waited some seconds and has started no rank."""
    with started(["sleep", "infinity"]) as process:  # pytest itself may have children

        def note(nodes, seconds, meets="localhost:0"):
            began = time.time() - seconds
            about = {"rank": 0, "launch": [nodes, nodes, 2], "pid": process.pid, "t": began, "meets": meets}
            return about | STANDALONE

        yield note
        process.kill()


def test_a_launcher_that_waits_in_vain_is_reported_soon_and_is_hopeless_later(tmp_path, told, launch):
    watch, of = training_alone.AloneWatch(tmp_path), lives_now(0, world=2)
    assert told(watch, launch(2, 1.0), of=of) == []
    ((rank, why, hint),) = told(watch, launch(2, 10.0), of=of)
    assert (rank, why.startswith("`torchrun --standalone train.py`: it meets at localhost:0")) == (0, True)
    assert hint.startswith("leave out --standalone there")
    assert watch.final is None
    assert told(watch, launch(2, 60.0), of=of) == []
    assert watch.final
    assert told(watch, launch(2, 60.0), member(0, 4, "10.0.0.1:2", t=time.time()), of=of) == [(0, "", "")]
    assert watch.final is None


@pytest.mark.torch
def test_a_second_node_that_looks_for_the_first_at_its_own_address_is_reported(tmp_path, told, monkeypatch, launch):
    """`torchrun --nnodes=1` in a script takes its node rank from the run's variables, and waits for the first node."""
    from torch.distributed.run import config_from_args, parse_args

    monkeypatch.setenv("PET_NODE_RANK", "1")
    config, *_ = config_from_args(parse_args(["--nnodes=1", "--rdzv_endpoint=localhost:5972", "train.py"]))
    note = {**launch(1, 10.0), "given": "10.0.0.1:29500", **worlds.of_launch(config)}
    ((_, why, _),) = told(training_alone.AloneWatch(tmp_path), note, of=lives_now(0, world=2))
    assert "it meets at localhost:5972, but the run's nodes meet at 10.0.0.1:29500" in why


def test_a_helper_without_the_runs_variables_is_not_reported_but_a_launcher_is(tmp_path, told):
    watch, of = training_alone.AloneWatch(tmp_path), lives_now(0, world=2)
    helper = {"rank": 0, "unseen": True, "t": time.time() - 60, "command": ["python", "prepare.py"]}
    assert told(watch, helper, of=of) == []
    ((_, why, _),) = told(watch, helper, {**helper, "pid": 7, "command": ["python", "/bin/torchrun", "a.py"]}, of=of)
    assert "none of the run's variables" in why


def test_ranks_that_ended_well_in_their_own_world_are_final_immediately(tmp_path, told, launch):
    world = [launch(1, 20.0), *(member(number, 2, "localhost:1") for number in range(2)), {"rank": 0, "stepped": True}]
    watch = training_alone.AloneWatch(tmp_path)
    assert told(watch, *world, of=lives(0, world=2)) == []
    assert "on this host" in watch.final.why
    watch = training_alone.AloneWatch(tmp_path)
    told(watch, *world, member(0, 4, "10.0.0.1:2"), of=lives(0, world=2))
    assert watch.final is None


def test_ranks_that_step_in_a_launchers_own_world_are_reported_within_seconds(tmp_path, told, launch):
    watch, of = training_alone.AloneWatch(tmp_path), lives_now(0, world=2)
    world = [launch(1, 20.0), *(member(number, 2, "localhost:1", t=time.time() - 15) for number in range(2))]
    assert told(watch, *world, of=of) == []  # it may only evaluate
    assert told(watch, *world, {"rank": 0, "stepped": True, "t": time.time()}, of=of) == []
    ((_, why, hint),) = told(watch, *world, {"rank": 0, "stepped": True, "t": time.time() - 5}, of=of)
    assert "all 2 ranks of its process group were on this host" in why
    assert "--standalone" in hint


def test_a_group_that_forms_late_is_reported_too(tmp_path, told):
    watch = training_alone.AloneWatch(tmp_path)
    assert told(watch, lasting(0))
    joined = [lasting(0), {"rank": 0, "size": 4, "member": 0}]
    assert told(watch, *joined) == [(0, "", "")]
    assert told(watch, *joined) == []


def test_a_group_that_is_too_small_joins_nobody(tmp_path, told):
    ((rank, why, _),) = told(training_alone.AloneWatch(tmp_path), lasting(0), {"rank": 0, "size": 1, "member": 0})
    assert rank == 0
    assert "largest process group had 1 rank" in why


def test_ranks_that_train_or_may_train_together_or_apart_on_purpose_are_not_reported(tmp_path, told):
    watch = training_alone.AloneWatch(tmp_path)
    assert told(watch, lasting(0), {"rank": 0, "size": 4, "member": 0}) == []  # it may send something later
    assert told(watch, lasting(0, otherwise=True)) == []
    assert told(watch, lasting(0), of=lives_now(0, world=1)) == []
    assert told(watch, lasting(0), of=lives(0, 1)) == []  # they have ended: the verdict reports it
    assert told(watch, lasting(0), of=lives_now(0, attempt=1)) == []  # the note is from an earlier start
    assert told(training_alone.AloneWatch(tmp_path, separate=True), lasting(0)) == []


@pytest.mark.parametrize(
    ("loaded", "words"),
    [
        (["lightning", "accelerate"], "Trainer(num_nodes=2, devices=2, ...)"),
        (["pytorch_lightning"], "Trainer(num_nodes=2, devices=2, ...)"),
        (["accelerate"], "ACCELERATE_USE_CPU=true"),
        ([], "torch.distributed.init_process_group()"),
    ],
)
def test_the_hint_fits_the_framework_while_it_trains_and_at_the_end(tmp_path, told, loaded, words):
    ((_, _, hint),) = told(training_alone.AloneWatch(tmp_path), lasting(0, loaded=loaded))
    assert words in hint
    assert words in training_alone.join_hint(tmp_path, lives(0, 1))
    assert "--separate" in hint


def steps_of(folder):
    return [note for note in training_alone.notes(folder) if note.get("stepped")]


class Optimizer(types.ModuleType):
    """A torch.optim.optimizer with only the name that `world_notes` uses."""

    def register_optimizer_step_post_hook(self, hook):
        self.step = hook


def test_a_rank_notes_that_it_still_steps_and_which_framework_trains_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setitem(sys.modules, "pytorch_lightning", types.ModuleType("pytorch_lightning"))
    clock, torch = [100.0], Optimizer("torch.optim.optimizer")
    monkeypatch.setattr(world_notes.time, "monotonic", lambda: clock[0])
    world_notes._steps(torch)
    for clock[0] in (100.0, 105.0, 119.0):
        torch.step()
    assert [(note.get("lasting"), note["loaded"]) for note in steps_of(tmp_path)] == [(None, ["pytorch_lightning"])]
    for clock[0] in (121.0, 150.0):
        torch.step()
    assert [note.get("lasting") for note in steps_of(tmp_path)] == [None, True]


@pytest.mark.parametrize(
    ("own", "frame", "after"),
    [
        ("optimizer.step()", "", 3.0),
        ("from . import a\nimport os as o, helper\nfrom helper import b", "", 3.0),
        ("dist.init_process_group()", "", 20.0),
        ("def warm():\n    pass\nwarm()\nfrom own.late import join\njoin()", "", 20.0),
        ("def warm():\n    import os, late as later", "", 20.0),
        ("import helper", "def later():\n    from .late import join", 20.0),
        ("import helper", "from accelerate import Accelerator", 20.0),
        (None, "", 20.0),  # python -c
    ],
)
def test_many_steps_are_enough_only_if_no_code_of_the_script_mentions_other_ranks(
    tmp_path, monkeypatch, own, frame, after
):
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    main, helper = types.ModuleType("__main__"), types.ModuleType("helper")
    for module, text in ((main, own), (helper, frame)):
        if text is not None:
            module.__file__ = str(tmp_path / f"{module.__name__}.py")
            (tmp_path / f"{module.__name__}.py").write_text(text)
    monkeypatch.setattr(sys, "modules", {"__main__": main, "helper": helper, "os": os})
    clock, torch = [100.0], Optimizer("torch.optim.optimizer")
    monkeypatch.setattr(world_notes.time, "monotonic", lambda: clock[0])
    world_notes._steps(torch)
    for clock[0] in (100.0 + step * 0.5 * after / 20 for step in range(20)):
        torch.step()
    clock[0] = 100.0 + after - 0.1
    torch.step()
    assert [note.get("lasting") for note in steps_of(tmp_path)] == [None]
    clock[0] = 100.0 + after
    torch.step()
    torch.step()
    assert [note.get("lasting") for note in steps_of(tmp_path)] == [None, True]


def test_a_script_that_comes_through_a_pipe_is_not_waited_for(tmp_path):
    """`bash <(...)`: nobody else can read the pipe, and whoever tries waits forever."""
    os.mkfifo(tmp_path / "run.sh")
    assert own_world.shell_script([str(tmp_path), "run.sh"], ()) == ("", [])
