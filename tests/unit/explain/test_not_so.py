"""The explanation never says anything that the log disproves, about missing information or whose error it is."""

import pytest

from deploy.explain.cause import explain

NCCL = "torch.distributed.DistBackendError: NCCL error in: x.cpp:94, unhandled system error\nncclSystemError: x\n"
REASON = "Error while attaching to shared memory segment /dev/shm/nccl- (size 0)"
ABSENT = "nothing here says why"
TORCHRUN = (
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-02_03:04:05\n  host      : gpu-a\n"
    "  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 7)\n  error_file: <N/A>\n"
)
INNER = "torchvision.Odd: a stack of two sizes\n"
FRAME = 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in read\n    x\n'


@pytest.mark.parametrize("log", [
    f"{NCCL}Last error:\n{REASON}\n", f"gpu03:7:8 [5] shmutils.cc:129 NCCL WARN {REASON}\n{NCCL}",
    f"[rank5]: {NCCL}[rank5]: Last error:\n[rank5]: {REASON}\n", f"{NCCL}Last error:\n{REASON}\n" + "x\n" * 90_000,
])  # fmt: skip
def test_a_reason_in_the_log_is_quoted_and_never_reported_as_missing(log):
    seen = explain({"a": log})
    assert REASON in seen.what
    assert REASON in seen.evidence[0].text
    assert ABSENT not in seen.what
    assert "NCCL_DEBUG" not in seen.next


def test_a_reason_missing_in_the_log_is_reported_with_how_to_get_it():
    seen = explain({"a": NCCL})
    assert ABSENT in seen.what
    assert "NCCL_DEBUG" in seen.next
    assert ABSENT in explain({"a": f"{NCCL}Last error:\n\n"}).what


def test_a_reason_is_shown_even_if_no_line_says_that_nccl_failed():
    seen = explain(
        {"a": f"gpu03:7:8 [5] shmutils.cc:129 NCCL WARN {REASON}\ngpu03:7:8 [5] NCCL INFO init.cc:581 -> 2\n"}
    )
    assert REASON in seen.evidence[0].text
    assert not seen.cause


def test_the_reason_is_that_of_the_rank_which_failed():
    other = "gpu01:1:1 [0] NCCL WARN an odd file of another host\n"
    seen = explain({"a": other, "b": f"[rank5]: {NCCL}[rank5]: Last error:\n[rank5]: {REASON}\n"})
    assert REASON in seen.what


@pytest.mark.parametrize("wrapper", [
    "odd.CheckpointException: CheckpointException ranks:dict_keys([0, 1])\nTraceback (most recent call last): (RANK 0)",
    "RuntimeError: Caught Odd in DataLoader worker process 0.\nOriginal Traceback (most recent call last):",
    "RuntimeError: Caught Odd in replica 1 on device 1.\nOriginal Traceback (most recent call last):",
    "RuntimeError: On WorkerInfo(id=1, name=w1):\nOdd('a stack')\nTraceback (most recent call last):",
    "my.RemoteError: worker 3 raised:\nTraceback (most recent call last):",
    "RuntimeError: Traceback (most recent call last):",
])  # fmt: skip
def test_the_error_inside_an_exception_is_quoted_not_its_wrapper(wrapper):
    frame = '  File "/app/read.py", line 9, in read\n    y\n'
    seen = explain({"a": f"{FRAME}{wrapper}\n{frame}{INNER}"})
    assert INNER.strip() in seen.evidence[0].text
    outside = wrapper.splitlines()[0]
    assert outside in explain({"a": f"{FRAME}{wrapper}\n{frame}"}).evidence[0].text, "nothing else is there"


def test_an_exception_before_the_traceback_of_another_process_is_no_wrapper():
    seen = explain({"a": f"{FRAME}ValueError: no shard 7\n{FRAME}RuntimeError: odd\n"})
    assert "no shard 7" in seen.evidence[0].text


def test_unknown_errors_are_not_reported_as_missing():
    seen = explain({"a": f"worker 1 error: the odd thing went wrong\n{TORCHRUN}"})
    assert "not in this output" not in seen.what
    assert "the odd thing" in "".join(line.text for line in seen.evidence)
    assert "not in this output" in explain({"a": TORCHRUN}).what


def test_an_end_in_the_log_is_not_reported_as_missing():
    out_of_memory = "torch.OutOfMemoryError: CUDA out of memory.\n"
    training = "".join(f"step {step} loss 0.5\n" for step in range(200))
    silent = explain({"a": f"{out_of_memory}{training}"}).what
    assert "nothing says how it ended" in silent
    assert "nothing says how it ended" not in explain({"a": f"{out_of_memory}{training}exited with code 9\n"}).what


def test_a_failed_build_step_gets_no_cause_from_its_command():
    step = 'ERROR: failed to solve: process "/bin/sh -c pip install odd" did not complete successfully: exit code: 1'
    seen = explain({"a": f"{step}\n"})
    assert (seen.cause, seen.maybe) == ("", ())


@pytest.mark.parametrize("line", [
    "AssertionError: Hopper-v2 is not supported by this agent", "RuntimeError: key 'lr' not found in your environment",
])  # fmt: skip
def test_mentioning_gpus_or_packages_does_not_blame_them(line):
    assert explain({"a": f"{FRAME}{line}\n"}).cause == "script-error"
