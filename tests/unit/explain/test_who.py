"""Who failed first: what launchers report, who is missing in a collective, and which errors are no cause."""

import pytest

from deploy.causes.end_causes import Cause
from deploy.causes.table import end_of
from deploy.commands.explain import next_of
from deploy.explain.cause import explain
from deploy.explain.signs.table import SIGNS

WAIT = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [{group}Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={number}, OpType={kind}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600020 ms\n"
)


def waits(*ranks, number=7, kind="ALLREDUCE", size=512, group="PG ID 0 PG GUID 0(default_pg) "):
    return "".join(WAIT.format(group=group, rank=rank, number=number, kind=kind, size=size) for rank in ranks)


@pytest.mark.parametrize(("line", "first", "cause"), [
    ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: 7) of binary: x",
     "local rank 3", "killed"),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGSEGV", "process 2",
     "crashed"),
    ("mpirun noticed that process rank 5 with PID 4711 on node gpu-b exited on signal 9 (Killed).", "rank 5 on gpu-b",
     "killed"),
    ("srun: error: gpu-b: task 6: Killed", "task 6 on gpu-b", "killed"),
    ("srun: error: gpu-b: tasks 4-7: Exited with exit code 139", "task 4 on gpu-b", "crashed"),
    ("[rank: 1] Child process with PID 4711 terminated with code 1. Forcefully terminating all other processes",
     "rank 1", ""),
    ("worker-1 exited with code 137", "container worker-1", "killed"),
    ("  Process name: [[29973,1],3]", "rank 3", ""),
])  # fmt: skip
def test_a_launcher_names_the_process_that_ended(line, first, cause):
    explained = explain({"a": f"starting\n{line}\n"})
    assert explained.first.startswith(first), explained
    assert explained.cause == cause


def test_a_rank_that_the_launcher_ended_is_not_the_first():
    text = "srun: error: gpu-a: task 0: Terminated\n[rank: 0] Child process with PID 7 terminated with code -15\n"
    assert "rank 2" in explain({"a": text + "process rank 2 with PID 7 on node gpu-b exited on signal 11\n"}).first


def test_the_earliest_failure_in_a_report_is_the_first_and_the_others_are_no_cause():
    report = "Failures:\n"
    for number, (rank, second, code) in enumerate([(0, 7, -9), (3, 5, 1), (1, 9, -15)]):
        report += f"[{number}]:\n  time      : 2026-01-02_03:04:0{second}\n  host      : gpu-a\n"
        report += f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 7)\n  error_file: <N/A>\n"
    explained = explain({"a": report})
    assert explained.first.startswith("rank 3 on gpu-a")
    assert explained.cause == ""


@pytest.mark.parametrize(("text", "first", "cause"), [
    (waits(0, 1, 2, number=9) + waits(3, number=8), "rank 3", "collectives-differ"),
    (waits(0, 1, 2) + waits(3, kind="BROADCAST"), "rank 3", "collectives-differ"),
    (waits(0, 2) + waits(5, size=511), "rank 5", "collectives-differ"),
    (waits(*range(40)), "", "collective-timeout"),
    (waits(*range(40), number=9) + waits(40, number=3), "rank 40", "collectives-differ"),
    (waits(0, 1, number=900, group="") + waits(2, number=12, group=""), "", "collective-timeout"),
], ids=["behind", "another call", "another size", "all wait", "one of many", "groups without names"])  # fmt: skip
def test_the_rank_in_another_collective_is_found_from_the_watchdogs_lines(text, first, cause):
    explained = explain({"a": text})
    assert (explained.cause, explained.first) == (cause, first)


@pytest.mark.parametrize("words", [
    "Exception ignored in: <function Pool.__del__ at 0x7f>\nTraceback (most recent call last):\n"
    '  File "a.py", line 3, in __del__\nAttributeError: no attribute comm\n',
    "Error in sys.excepthook:\nTraceback (most recent call last):\n  File \"c10d.py\", line 1\n"
    "ValueError: Default process group has not been initialized\n\nOriginal exception was:\n",
])  # fmt: skip
def test_an_ignored_exception_is_no_cause(words):
    explained = explain({"a": f"{words}RuntimeError: CUDA error: invalid device ordinal\n"})
    assert explained.cause == "gpu-count"


def test_lines_of_another_rank_inside_a_traceback_do_not_count_as_its_frames():
    text = (
        '[rank1]:   File "/opt/site-packages/odd/io.py", line 3, in read\n'
        '[rank0]:   File "train.py", line 9, in main\n[rank1]: odd.OddError: strange things\n'
    )
    assert explain({"a": text}).maybe == ("exception",)


def test_each_cause_maps_to_one_of_the_end_causes():
    kinds = {sign.cause: end_of(sign.cause) for sign in SIGNS}
    assert kinds[""] == Cause.NOT_KNOWN
    assert {"gpu-memory", "killed"} & kinds.keys()
    assert kinds["gpu-memory"] == Cause.GPU_MEMORY
    assert not {Cause.NOT_KNOWN} & {kind for cause, kind in kinds.items() if cause}


def test_the_next_command_names_the_job_the_hosts_or_the_lines_of_the_file():
    report = "Root Cause (first observed failure):\n[0]:\n  host : gpu-b\n  rank : 3 (local_rank: 3)\n  exitcode : 1\n"
    memory = f"RuntimeError: CUDA out of memory\n{report}"
    limit = "slurmstepd: error: *** JOB 4711 ON gpu-a CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
    said = {
        "muster gpus --hosts gpu-b": memory,
        "nvidia-smi": "RuntimeError: CUDA out of memory\n",
        "sacct -X -j 4711 --format JobID,Timelimit,Elapsed": limit,
        "export NCCL_DEBUG=INFO": "RuntimeError: NCCL error: unhandled system error\n",
        "sed -n '1,16p' '/logs/my run.out'": "KeyError: 'x'\n",
        "": "",
    }
    for command, text in said.items():
        assert next_of(explain({"a": text}), "", {"a": "/logs/my run.out"}) == command


LOST_PEER = "[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:7095\n"
ROOT = "Root Cause (first observed failure):\n[0]:\n  host : localhost\n  rank : 0 (local_rank: 0)\n  exitcode : 1\n"
ENDED = "Failures:\n[1]:\n  host : localhost\n  rank : 1 (local_rank: 1)\n  exitcode : -15 (pid: 8)  (SIGTERM)\n"


@pytest.mark.parametrize(("text", "look"), [
    (LOST_PEER + ENDED + ROOT, "look at rank 1,"),
    ("world_size=4\n" + LOST_PEER + ROOT, "look at ranks 1-3,"),
    ("[rank2]: an error-free line\n" + LOST_PEER + ROOT, "look at rank 2,"),
    (LOST_PEER + ROOT, "look at the ranks other than rank 0,"),
], ids=["the launcher ended it", "the world", "its other lines", "nothing names it"])  # fmt: skip
def test_a_rank_that_lost_a_peer_is_not_first_and_the_silent_ranks_are_named(text, look):
    explained = explain({"out": text})
    assert (explained.cause, explained.first) == ("", "")
    assert look in explained.what


def test_a_rank_with_its_own_error_stays_the_first():
    explained = explain({"out": LOST_PEER + "[rank1]: KeyError: 'x'\n" + ROOT.replace("0", "1")})
    assert (explained.cause, explained.first) == ("script-error", "rank 1 on localhost (exit code 1)")


def test_the_next_command_for_a_plain_log_needs_no_muster_run():
    explained = explain({"out.log": LOST_PEER + ROOT})
    assert next_of(explained, "", {"out.log": "/logs/out.log"}) == "sed -n '1,16p' /logs/out.log"
    assert next_of(explained, "", {}) == "", "standard input has no file to look into"


@pytest.mark.parametrize(("text", "first"), [
    ("trainer-worker-2 trainer torch.OutOfMemoryError: CUDA out of memory. Tried\n", "trainer-worker-2"),
    ("[pod/trainer-worker-2/trainer] KeyError: 'x'\n", "trainer-worker-2"),
    ("[2026-03-01 10:00:00,125] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', "
     "'--local_rank=7', '--deepspeed', 'ds.json'] exits with return code = -9\n", "local rank 7 (exit code -9)"),
    ("srun: error: Node failure on gpu013\n", "gpu013"),
], ids=["pod and container", "kubectl --prefix", "deepspeed", "slurm's node"])  # fmt: skip
def test_who_failed_first_in_a_launchers_own_form(text, first):
    assert explain({"out": text}).first == first


@pytest.mark.parametrize(
    ("code", "cause", "word"),
    [(-4, "architecture-differs", "processor"), (-7, "shm-small", "bus error"), (-8, "crashed", "divided"),
     (-9, "killed", "killed"), (-11, "crashed", "a process crashed in compiled code")],
)  # fmt: skip
def test_a_summary_alone_is_explained_by_its_own_signal(code, cause, word):
    """Earlier, a row of the same cause for another message reported that a data loader worker had crashed."""
    explained = explain({"out": ROOT.replace("exitcode : 1", f"exitcode : {code}")})
    assert explained.cause == cause
    assert word in explained.what
    assert "worker" not in explained.what
