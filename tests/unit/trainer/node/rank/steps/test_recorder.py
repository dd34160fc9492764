"""The last collectives of a stuck process are read from torch's own flight recorder."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from trainer.node.rank.steps import recorder
from trainer.node.rank.steps.recorder import Recorder, rows


def entry(number, name="gloo:all_reduce", group="0", sizes=((5,),), files=("train.py",), p2p=False):
    frames = [{"filename": file, "line": 3, "name": "main"} for file in files]
    return {
        "collective_seq_id": number,
        "profiling_name": name,
        "process_group": (group, "desc"),
        "input_sizes": sizes,
        "frames": frames,
        "is_p2p": p2p,
    }


def test_the_last_collectives_of_each_group_are_reported_with_the_scripts_own_line():
    files = ("/usr/lib/site-packages/torch/distributed/c10d.py", recorder.__file__, "/home/u/train.py")
    told = rows([*(entry(n, files=files) for n in range(20)), entry(1, "nccl:broadcast", "1", ((4, 2), ()), ())])
    assert [row[1] for row in told] == [*range(12, 20), 1]
    assert told[7] == ("0", 19, "all_reduce", "5", "/home/u/train.py", 3, "main")
    assert told[8] == ("1", 1, "broadcast", "4x2+1", "", 0, "")


def test_a_group_that_is_formed_again_starts_over_and_p2p_messages_are_left_out():
    assert [row[1] for row in rows([entry(7), entry(8), entry(1), entry(2, p2p=True)])] == [1]


@pytest.fixture
def group(monkeypatch):
    """A process group of this process alone."""
    dist = pytest.importorskip("torch.distributed")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


LOOKS = """
import sys, threading, torch, torch.distributed as dist
from trainer.node.rank.steps.recorder import Recorder
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.zeros(3))
before, asked, told = set(sys.modules), Recorder(), []
look = threading.Thread(target=lambda: (asked.look(1, 5.0), told.extend(asked.look(1, 7.0))))
look.start()
look.join()
print(told[-1][2], sorted(name for name in set(sys.modules) - before if name.startswith("torch")))
"""


@pytest.mark.torch
def test_a_look_imports_nothing_that_the_script_may_import_at_the_same_time():
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run([sys.executable, "-c", LOOKS], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "all_reduce []", done.stderr


@pytest.mark.parametrize(
    ("files", "place"),
    [
        (("/usr/lib/site-packages/torch/distributed/c10d.py", "/home/u/train.py"), ("/home/u/train.py", 7, "main")),
        (("/home/u/train.py",), ("", 0, "")),
    ],
    ids=["in a library", "in the script"],
)
def test_a_call_without_a_line_gets_the_one_where_the_main_thread_waits_in_a_library(monkeypatch, files, place):
    frame = None
    for file in reversed(files):
        frame = SimpleNamespace(f_code=SimpleNamespace(co_filename=file, co_name="main"), f_lineno=7, f_back=frame)
    monkeypatch.setattr(sys, "_current_frames", lambda: {threading.main_thread().ident: frame})
    assert recorder._here() == place


FAILS = """
import sys, torch, torch.distributed as dist
from trainer.node.rank.steps.recorder import Recorder
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.zeros(3))
def ends():
    %s
try:
    ends()
except Exception as fault:
    sys.last_traceback = fault.__traceback__
    print(Recorder().now()[-1][4:])
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("line", "place"),
    [("dist.broadcast(torch.zeros(3), 5)", "('train.py', 7, 'ends')"), ("int('x')", "('', 0, '')")],
    ids=["in a collective", "elsewhere"],
)
def test_a_call_whose_error_ends_the_process_gets_the_line_of_the_error(tmp_path, line, place):
    """Without an optimizer torch records no lines, so a script that calls only collectives would show no place."""
    (tmp_path / "train.py").write_text(FAILS % line)
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.replace(f"{tmp_path}/", "").strip() == place, done.stderr


@pytest.mark.torch
def test_the_recorder_is_read_only_in_an_unusually_long_step_without_new_collectives(group):
    import torch
    import torch._inductor  # torch imports it with the first optimizer

    asked = Recorder()
    group.all_reduce(torch.zeros(3))
    assert asked.look(1, 5.0) == [], "the first look remembers what was last"
    assert [row[2:4] for row in asked.look(1, 7.0)][-1:] == [("all_reduce", "3")]
    assert asked.look(1, 7.0)[-1][4] == __file__
    group.all_reduce(torch.zeros(4))
    assert asked.look(1, 9.0) == [], "it goes on"
    asked.look(2, 1.0)
    assert asked.look(2, 10.0) == [], "its steps are that slow"
    assert asked.look(2, 13.0)[-1][3] == "4"


@pytest.mark.torch
def test_a_slow_start_does_not_count_as_a_usual_step(group):
    import torch

    asked = Recorder()
    asked.look(0, 30.0)
    group.all_reduce(torch.zeros(3))
    asked.look(31, 0.02)
    assert asked.look(31, 3.0)[-1][2] == "all_reduce"


def test_a_size_includes_the_type_if_it_is_not_the_usual_one():
    entry = {"input_sizes": [[5, 3], []], "input_dtypes": ["Float", "Double"]}
    assert recorder._size(entry) == "5x3+1 Double"
    assert recorder._size({"input_sizes": [[3]]}) == "3"
