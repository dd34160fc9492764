"""The verdict on a user's script that failed is derived from what torchrun and its ranks really print."""

import json
import os
import signal
import subprocess
import sys

import pytest

from trainer.node.ending.rank_lives import Life
from trainer.node.ending.script_verdict import LastWords, own_library, read_last_words, why_failed
from trainer.node.launch import bare

SCRIPT = """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    print("no data here", flush=True)
    {fault}
time.sleep(60)
"""
FAULTS = {
    "raises": "raise ValueError('boom')",
    "exits": "sys.exit(3)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
}
TELLS = {
    "raises": ["train.py ended with code 1: ValueError: boom", "raise ValueError('boom')"],
    "exits": ["train.py ended with code 3", "no data here"],
    "killed": ["train.py was killed by SIGKILL"],
}


@pytest.mark.torch
@pytest.mark.parametrize(("way", "is_followed"), [("raises", True), ("exits", False), ("killed", False)])
def test_the_rank_that_failed_is_named_with_its_code_and_last_lines(way, is_followed, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(fault=FAULTS[way]))
    environment = {**os.environ, "PET_NPROC_PER_NODE": "2", "MUSTER_RUN_DIR": str(tmp_path / "run")}
    environment |= {"MUSTER_NODE": "gpu-b", "PET_MASTER_PORT": "0", "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", "train.py"]
    environment |= {"MUSTER_RESUME_COMMAND": "muster resume"} if is_followed else {}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    verdict = json.loads((tmp_path / "run/outcome/gpu-b-agent.json").read_text())
    assert (verdict["verdict"], verdict["node"], verdict["rank"]) == ("failed", "gpu-b", 1)
    for words in TELLS[way]:
        assert words in verdict["message"]
    assert "N/A" not in verdict["message"]
    assert "torch/distributed" not in verdict["message"]
    assert "exitcode" in done.stdout  # torchrun's own output is passed on
    assert (f"failed: {TELLS[way][0]}" in done.stderr) is not is_followed  # a control side that follows prints it


def heard(*lines, code=1, rank=0):
    """Return the last words that the agent finds in these lines when `rank` ended with `code`."""
    return read_last_words("\n".join(lines) + "\n", Life(rank, rank, 0, 2, 500, 1.0, 2.0, code))


def traceback(error, prefix=""):
    return [prefix + line for line in ["Traceback (most recent call last):", '  File "t.py", line 3, in f', *error]]


LOST = "RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:1."
VICTIMS = [
    LOST,
    "RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [10.0.0.3]:15245: Connection reset by peer. This is",
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete",
    "RuntimeError: Application timeout caused pair closure",
    "RuntimeError: Connection reset by peer",
    "torch.distributed.DistStoreError: Timed out after 5 seconds waiting for clients. 2/3 clients joined.",
    "torch.distributed.DistStoreError: wait timeout after 4000ms, keys: /default_pg/0//cpu//0/0",
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote",
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (a)",
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.",
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network"
    " error, NCCL version 2.21.5",
]
CAUSES = [
    "RuntimeError: Distributed package doesn't have NCCL built in",
    "ValueError: nccl and gloo are the backends, got 'mpi'",
    "RuntimeError: Expected backend gloo to time out",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/gloo/timed out.csv'",
    "requests.exceptions.ConnectionError: ('aborted', ConnectionResetError(104, 'Connection reset by peer'))",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "TimeoutError: timed out",
    "RuntimeError: DataLoader timed out after 60 seconds",
    "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 1",
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:94, unhandled cuda error, NCCL version 2.26.2",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. NCCL holds the rest",
    "RuntimeError: shapes differ",
    "queue.Empty",
]


@pytest.mark.parametrize("error", VICTIMS)
@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_torchs_message_about_a_lost_peer_makes_the_rank_a_victim(error, prefix):
    assert heard(*traceback([error], prefix)).victim


@pytest.mark.parametrize("error", CAUSES)
@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_a_librarys_name_or_a_lost_connection_of_the_users_makes_no_victim(error, prefix):
    said = heard(*traceback([error], prefix))
    assert not said.victim
    assert said.error == error


def test_an_error_caused_by_a_lost_peer_makes_a_victim_but_not_the_other_way_round():
    link = ["The above exception was the direct cause of the following exception:"]
    mine = "trainer.Failed: epoch 3 did not end"
    assert heard(*traceback([LOST]), *link, *traceback([mine])).victim
    assert not heard(*traceback(["KeyError: 'x'"]), *link, *traceback([LOST])).victim
    assert not heard(*traceback([LOST]), "retrying", *traceback([mine])).victim


@pytest.mark.parametrize(
    ("words", "victim"),
    [
        ("[rank0]:[E ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)", True),
        (
            "watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error",
            True,
        ),
        ("watchdog thread terminated with exception: CUDA error: device-side assert triggered", False),
        (
            "what(): [enforce fail at pair.cc:456] 8 vs 4. Is there a distributed collective mismatch in your code?",
            True,
        ),
        ("free(): invalid pointer", False),
    ],
)
def test_an_abort_makes_a_victim_only_with_a_message_about_a_lost_peer(words, victim):
    assert heard(words, "what(): see above", "frame #0: c10::Error", code=-6).victim is victim


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_a_traceback_after_a_progress_bar_is_read_like_any_other(prefix):
    first, *more = traceback([LOST], prefix)
    bar = "\r  6%|#         | 74/1190 [00:12<03:12,  5.80it/s]\r  6%|#         | 75/1190 [00:12<03:11,  5.81it/s]"
    assert heard("step", bar + first, *more).victim
    first, *more = traceback(["ValueError: bad sample 7"], prefix)
    said = heard("step", bar + first, *more)
    assert (said.victim, said.error) == (False, "ValueError: bad sample 7")


def test_of_two_ranks_on_a_node_each_is_judged_by_its_own_words():
    console = [*traceback(["ValueError: bad sample 7"], "[rank1]: "), *traceback([LOST], "[rank0]: ")]
    assert heard(*console, rank=0).victim
    said = heard(*console, rank=1)
    assert (said.victim, said.error) == (False, "ValueError: bad sample 7")
    assert not any("pair.cc" in line for line in said.words)


@pytest.mark.parametrize("launcher", [False, True])
def test_the_last_words_are_the_errors_though_another_rank_keeps_printing(launcher):
    console = [*traceback(["ValueError: bad sample 7"], "[rank1]: "), *(f"rank 0: step {at}" for at in range(30))]
    life = Life(1, 1, 0, 2, 500, 1.0, 2.0, 1)
    said = read_last_words("\n".join(console) + "\n", life, launcher)
    assert (said.words[-1], len(said.words)) == ("[rank1]: ValueError: bad sample 7", 3)


@pytest.mark.parametrize(
    ("code", "words", "error"),
    [
        (2, ["usage: train.py [-h]", "train.py: error: unrecognized arguments: --lr-decay 0.1"],
         "train.py: error: unrecognized arguments: --lr-decay 0.1"),
        (-6, ["Fatal Python error: PyThreadState_Get: the GIL is released", "Current thread 0x01:", "  File \"t.py\""],
         "Fatal Python error: PyThreadState_Get: the GIL is released"),
        (-6, ["terminate called after throwing an instance of 'std::runtime_error'", "  what():  no such shard"],
         "what():  no such shard"),
        (-6, [*traceback(["KeyError: 'x'"]), "python: shard.c:4: main: Assertion `size > 0' failed."],
         "python: shard.c:4: main: Assertion `size > 0' failed."),
        (-6, ["free(): invalid pointer"], ""),
        (1, ["\x1b[1mValueError: in bold\x1b[0m"], "ValueError: in bold"),
    ],
)  # fmt: skip
def test_the_error_is_found_in_parser_messages_aborts_and_coloured_lines(code, words, error):
    said = heard(*words, code=code)
    assert said.error == error
    verdict = why_failed(said, f"ended with code {code}", "train.py", "a", Life(0, 0, 0, 3, 500, 1.0, 2.0, code))
    assert error in verdict.message
    assert ("without an exception" in verdict.message) is (code > 0 and not error)
    assert (verdict.cause == "left-early") is (code > 0 and not error)


def test_a_traceback_cut_before_its_error_crashes_no_agent():
    cut = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "   "]
    assert heard(*(f"[rank0]: {line}" for line in cut)).error == ""


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_an_error_that_rich_has_wrapped_is_whole(prefix):
    frame = ["╭─ Traceback (most recent call last) ─╮", "│ /home/me/train.py:4 in load         │", f"╰{'─' * 37}╯"]
    path = "/data/imagenet/train/shards/shard-000123.tar"
    wrapped = ["FileNotFoundError: [Errno 2] No such", "file or directory:", f"'{path[:38]}", f"{path[38:]}'"]
    said = heard(*(prefix + line for line in [*frame, *wrapped, "  "]))
    assert said.error == f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"


HANDED_ON = [
    "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit code 1",
    "subprocess.CalledProcessError: Command '['python', 'inner.py']' returned non-zero exit status 1.",
]


@pytest.mark.parametrize("handed_on", HANDED_ON)
def test_an_error_that_only_reports_a_childs_failure_gives_way_to_the_childs_error(handed_on):
    own = traceback(["RuntimeError: ", "        An attempt has been made to start a new process before the"])
    said = heard(*own, *traceback([handed_on]))
    assert said.error == "RuntimeError: An attempt has been made to start a new process before the"
    assert not any("Exited" in line or "Called" in line for line in said.words)
    # Among the ranks below it, one that only lost a peer is not quoted.
    below = [*traceback(["ValueError: bad sample 7"], "[rank1]: "), *traceback([LOST], "[rank0]: ")]
    said = heard(*below, *traceback([handed_on]))
    assert (said.error, said.victim) == ("ValueError: bad sample 7", False)
    # If the other process printed nothing, the parent's own error is all there is.
    assert heard("step 3", *traceback([handed_on])).error == handed_on


def test_a_parent_that_interrupts_itself_gives_way_to_its_childs_error():
    """As in OpenNMT: a thread of the parent learns that the child failed, and sends SIGINT to its own process."""
    child, interrupt = traceback(["ValueError: bad batch 7"]), traceback(["KeyboardInterrupt"])
    said = heard(*child, *interrupt, code=-signal.SIGINT)
    assert said.error == "ValueError: bad batch 7"
    assert not any("Interrupt" in line for line in said.words)
    life = Life(0, 0, 0, 1, 500, 1.0, 2.0, -signal.SIGINT)
    assert "SIGINT: ValueError: bad batch 7" in why_failed(said, "was killed by SIGINT", "a.py", "n", life).message
    alone = heard("step 3", *interrupt, code=-signal.SIGINT)
    assert why_failed(alone, "was killed by SIGINT", "a.py", "n", life).message.startswith(
        "a.py was killed by SIGINT\n"
    )
    # An error that the script printed before it continued does not explain a later end.
    assert heard(*child, "step 4", *interrupt, code=-signal.SIGINT).error.startswith("KeyboardInterrupt")
    assert heard(*child, *interrupt, *traceback(["KeyError: 'x'"])).error == "KeyError: 'x'"


def test_a_group_of_fewer_ranks_than_were_started_is_reported_with_both_numbers():
    words = LastWords(
        ("RuntimeError: [enforce fail at", "/x/gloo/context.cc:23] rank < size. 2 vs 1"), "RuntimeError: [enforce"
    )
    verdict = why_failed(words, "ended with code 1", "train.py", "gpu-c", Life(2, 0, 0, 3, 500, 1.0, 2.0, 1))
    assert "a group of 1, but 3 ranks were started" in verdict.hint
    assert "num_nodes" in verdict.hint


@pytest.mark.parametrize(
    ("error", "own", "remedy"),
    [
        ("KeyError: 'OMPI_COMM_WORLD_RANK'", "", "--style mpi gives each rank OMPI_COMM_WORLD_RANK"),
        ("KeyError: 'SLURM_PROCID'", "", "--style slurm gives each rank SLURM_PROCID"),
        ("KeyError: 'SLURM_ARRAY_TASK_ID'", "", ""),
        ("KeyError: 'loss'", "", ""),
        ("AttributeError: module 'muster' has no attribute 'Training'", "muster.py", "script's own muster.py"),
        ("ImportError: cannot import name 'Training' from 'muster' (/x/muster.py)", "lib/muster.py", "lib/muster.py"),
        (
            "ModuleNotFoundError: No module named 'muster.lightning'; 'muster' is not a package",
            "muster.py",
            "rename it",
        ),
        ("AttributeError: module 'muster' has no attribute 'Trainign'", "", ""),
        ("EOFError: EOF when reading a line", "", "as an option or a variable"),
        ("termios.error: (25, 'Inappropriate ioctl for device')", "", "as an option or a variable"),
        ("bdb.BdbQuit", "", "remove it"),
        ("RuntimeError: An attempt has been made to start a new process before the", "", "__main__"),
        ("ModuleNotFoundError: No module named 'musterers'", "muster.py", ""),
    ],
)
def test_an_error_that_comes_from_how_a_script_was_started_has_its_remedy_in_the_hint(error, own, remedy, monkeypatch):
    ended = LastWords((error,), error), "ended with code 1", "train.py", "a", Life(0, 0, 0, 3, 500, 1.0, 2.0, 1), own
    monkeypatch.setenv("MUSTER_RUN_DIR", "/runs/r")
    hint = why_failed(*ended).hint
    assert remedy in hint
    assert hint.endswith("logs/rank-0.log shows all that it printed")
    assert bool(remedy) is (";" in hint)
    monkeypatch.delenv("MUSTER_RUN_DIR")
    assert "logs/" not in why_failed(*ended).hint, "a node without a run folder writes none"


@pytest.mark.parametrize(
    ("command", "files", "named"),
    [
        ("train.py --lr 1", ["muster.py"], "muster.py"),
        ("train.py", ["muster.py", "muster/__init__.py"], "muster/__init__.py"),
        ("sub/train.py", ["sub/muster.py"], "sub/muster.py"),
        ("sub/train.py", ["muster.py"], ""),
        ("-m sub.train", ["muster.py"], "muster.py"),
        ("-m sub.train --file sub/x.py", ["sub/muster.py"], ""),
        ("--per-node accelerate launch sub/train.py", ["sub/muster.py"], "sub/muster.py"),
        ("--per-node bash run.sh", ["muster.py"], "muster.py"),
        ("--nproc-per-node 2 train.py", ["muster.py"], "muster.py"),
        ("--no-python ./program", ["muster.py"], ""),
        ("train.py", ["muster/notes.txt", "muster/data.py"], ""),
        ("train.py", ["muster/__init__.py", "muster/training.py"], ""),
    ],
)
def test_a_users_module_that_a_script_imports_instead_of_ours_is_named(tmp_path, monkeypatch, command, files, named):
    monkeypatch.chdir(tmp_path)
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert own_library(command.split()) == named


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("ValueError: Error initializing ...: environment variable RANK expected, but not set", True),
        ("KeyError: 'LOCAL_RANK'", True),
        ("KeyError: 'MY_RANK'", False),
        ("ValueError: environment variable HOME expected, but not set", False),
    ],
)
def test_a_script_run_as_plain_python_that_needs_ranks_variables_gets_a_hint(monkeypatch, error, told):
    life = Life(0, 0, 0, 1, 500, 1.0, 2.0, 1)
    ended = LastWords((error,), error), "ended with code 1", "train.py", "gpu-a", life
    assert "--nproc 1" not in why_failed(*ended).hint
    monkeypatch.setenv(bare.RANK, "1")
    assert ("--nproc 1" in why_failed(*ended).hint) == told
