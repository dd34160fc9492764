"""Errors that no sign describes: their kind from widely used words, and which part of a text is a fact."""

import pytest

from deploy.commands.explain import next_of
from deploy.explain.blame import raised_in
from deploy.explain.cause import explain
from deploy.explain.signs.general import ROWS, kind_by
from deploy.explain.signs.table import SIGNS
from deploy.explain.words import facts
from lab import waiting

KEY = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    main()\nKeyError: 'image'\n"
TRACE = 'Traceback (most recent call last):\n  File "/lib/python3.11/site-packages/odd/io.py", line 3, in read\n    x\n'
# Messages that match no row of the other tables.
KINDS = [
    ("access-denied", "odd.hub.CommError: You have no permissions to access the project"),
    ("access-denied", "OddHTTPError: 403 Client Error: Forbidden for url: https://models.example.org/x"),
    ("download", "odd.errors.HubHTTPError: 429 Client Error: Too Many Requests for url."),
    ("download", "OSError: Failed to download the shard odd-3"),
    ("checkpoint-mismatch", "odd.LoadException: the checkpoint has a different number of heads"),
    ("checkpoint-broken", "OSError: Unable to load weights from odd checkpoint file for './m.bin'"),
    ("file-permission", "odd.OpenException: open /data/x: Operation not permitted"),
    ("disk-full", "odd.IoException: the disk is full"),
    ("peer-name-unresolvable", "odd.ConnException: getaddrinfo of node-3 gave nothing"),
    ("scheduler", "odd.JobException: There are not enough slots in the system"),
    ("gpu-memory", "RuntimeError: NPU out of memory. Tried to allocate 2 GiB"),
    ("host-memory", "odd.MemException: the host is low on memory"),
    ("gpu-arch", "nvcc fatal: Unsupported gpu architecture 'compute_89'"),
    ("", "error: command '/usr/bin/gcc' failed with exit status 1"),
    ("library-mismatch", "Error: Could not load library libodd_cnn.so.8"),
    ("library-mismatch", "RuntimeError: operator odd::qnms does not exist"),
    ("library-mismatch", "[odd FATAL] This program requires version 3.9 of odd, but the installed version is 2.6"),
    ("gpu-missing", "Error response from daemon: cannot add the device \"/dev/kfd\": no such file or directory."),
    ("module-missing", "RuntimeError: odd is not installed"),
    ("gpu-missing", "RuntimeError: No supported accelerator was found"),
    ("gpu-missing", "AssertionError: odd wants CUDA, but CUDA is not available"),
    ("gpu-missing", "AssertionError: CUDA unavailable, invalid device 0 requested"),
    ("port-busy", "odd.BindException: port 8000 is already in use"),
    ("command-missing", "odd-switchroot: failed to execute: /bin/bash: No such file or directory"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "error"), KINDS, ids=[f"{n}-{cause}" for n, (cause, _) in enumerate(KINDS)])
def test_the_kind_of_an_error_is_found_from_widely_used_words(cause, error):
    assert explain({"a": f"starting\n{error}\n"}).cause == cause


def test_each_kind_has_an_example():
    assert {row.cause for row in ROWS} <= {cause for cause, _ in KINDS}


def test_each_kind_is_also_a_cause_of_the_signs():
    assert {row.cause for row in ROWS} <= {sign.cause for sign in SIGNS}


def test_a_sign_takes_precedence_over_widely_used_words():
    text = "odd.IoException: the disk is full\nOSError: [Errno 122] Disk quota exceeded\n"
    assert explain({"a": text}).cause == "disk-quota"


@pytest.mark.parametrize("words", [
    "odd.RunError: The run failed. After fixing it (an error such as OOM), start anew.",
    "odd.RunError: it stands still. Please check that no firewall, permission denied or full disk is the reason.",
    "odd.RunError: no reason. This might be caused by a version mismatch of CUDA and out of memory.",
    "odd.RunError: no reason. If the checkpoint does not match, pip install odd==2.",
])  # fmt: skip
def test_advice_and_guesses_in_an_error_are_not_facts(words):
    seen = explain({"a": f"{TRACE}{words}\n"})
    assert (seen.cause, seen.maybe) == ("", ("exception",))


def test_advice_is_removed_and_facts_are_kept():
    assert facts("Please log in.").startswith("Please") or facts("Please log in.") == "."
    assert facts("CUDA is gone. Please reboot. Xid 79.") == "CUDA is gone. . Xid 79."


@pytest.mark.parametrize("error", [
    "ValueError: You selected an invalid accelerator name: `ddp`. Available names are: cpu, cuda, hpu.",
    "KeyError: 'gpu'",
    "ValueError: the cuda kernels are not available for this dtype",
    "AttributeError: 'Driver' object has no attribute 'port'",
])  # fmt: skip
def test_a_bad_value_that_is_named_after_a_gpu_is_the_scripts_fault(error):
    assert explain({"a": f"{TRACE}{error}\n"}).cause == "script-error"


def test_a_server_on_this_host_is_no_download():
    told = explain({"a": f"{TRACE}odd.ClientException: http://localhost:8000/health: connection refused\n"})
    assert told.cause != "download"


def test_a_warning_that_an_error_follows_is_no_cause():
    warning = "2026-01-02 03:04:05: W odd/loader.cc:64] libodd.so.11: cannot open shared object file: No such file\n"
    assert explain({"a": warning}).maybe[0] == "library-missing"
    assert explain({"a": f"{warning}node-3: something failed here\n"}).cause == ""


@pytest.mark.parametrize(
    "level", ["[rank0]:W1228 15:58:31.02 5278 x.py:24] ", "WARN odd.Loader: ", "[rank0]:[W1122 06:40:00 x.cpp:1] "]
)
def test_warnings_of_any_logger_do_not_outweigh_the_error(level):
    told = explain({"a": f"{level}libodd.so.1: cannot open shared object file: No such file or directory\n{KEY}"})
    assert told.cause == "script-error"


def test_a_kubernetes_warning_event_counts_as_an_error():
    event = "Warning  Failed  113s  kubelet  Error: container create failed: container init was OOM-killed\n"
    rows = "train-0  0/1  CreateContainerError  0  2m29s\n"
    assert explain({"a": rows + event}).cause == "host-memory"
    assert explain({"a": rows}).cause == ""


def test_a_successful_end_does_not_count_if_a_rank_waits_after_it():
    text = (
        "{'train_runtime': 119.8}\n[E ProcessGroupNCCL.cpp:828] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=2778, OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1801649 milliseconds\n"
    )
    explained = explain({"a": text})
    assert (explained.cause, explained.ended_well) == ("collective-timeout", False)


def test_an_exception_of_a_thread_counts_only_if_no_other_ends_the_process():
    thread = f"Exception in thread NetStatThr:\n{TRACE}odd.NetException: gone\n"
    typed = f"Exception in thread Thread-3:\n{TRACE}TypeError: gone\n"
    assert explain({"a": typed}).cause == "script-error"
    assert "KeyError" in explain({"a": typed + KEY}).what
    assert "KeyError" in explain({"a": thread + KEY}).what


def test_an_exception_in_a_destructor_is_never_a_cause():
    text = f"Exception ignored in: <function Odd.__del__ at 0x7f>\n{TRACE}AttributeError: 'Odd' has no 'comm'\n"
    assert explain({"a": text}).cause == ""


@pytest.mark.parametrize(("line", "error"), [
    ("12:30 job-3 | Trainer died with ValueError: bad shape", "ValueError: bad shape"),
    ('{"severity":"ERROR","message":"Traceback ...\\nodd.io.ReadError: cut off"}', 'odd.io.ReadError: cut off"}'),
    ("Exception while training: cannot identify image file 'x'", "Exception: cannot identify image file 'x'"),
    ("RayTaskError(ValueError): odd.Elsewhere ValueError: bad", "ValueError: bad"),
    ("train-0  0/1  CreateContainerError   0  2m29s", ""),
    ("the 3 Errors: none", ""),
])  # fmt: skip
def test_an_exception_is_found_in_the_middle_of_a_line(line, error):
    assert raised_in(line) == error


def test_an_exception_class_need_not_end_with_error():
    assert explain({"a": "loading\nzipfile.BadZipFile: File is not a zip file\n"}).maybe == ("exception",)
    assert explain({"a": "loading\ntorch.Tensor: of 3 numbers\n"}).maybe == ()


def test_the_message_of_an_exception_may_begin_on_the_next_line():
    text = "ImportError: \nA module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0\n"
    assert explain({"a": text}).cause == "library-mismatch"


@pytest.mark.parametrize("piece", ["x ", "a.", "error 4", "could not ", "checkpoint ", "https://", "no a b c ", "A"])
def test_widely_used_words_are_searched_in_linear_time(piece):
    text = (piece * 4096)[:4096]
    with waiting.spending_little():
        kind_by(text)
        raised_in(text)


_AT_THE_START = """\
2025-01-02 03:04:05.1: E external/xla/cuda_fft.cc:467] Unable to register cuFFT factory: one has been registered
2025-01-02 03:04:05.1: W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; \
dlerror: libnvinfer.so.7: cannot open shared object file: No such file or directory
node-a:77:77 [0] NCCL INFO Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file
Could not find the bitsandbytes CUDA binary at PosixPath('/x/libbitsandbytes_cuda121.so')
Loading the data
step 1
step 2
"""
_AT_THE_END = """\
Exception in thread Thread-7 (_pin_memory_loop):
Traceback (most recent call last):
  File "/usr/lib/python3.10/threading.py", line 1016, in _bootstrap_inner
    self.run()
ConnectionResetError: [Errno 104] Connection reset by peer
"""


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (
            "Root Cause (first observed failure):\n[0]:\n  rank : 3 (local_rank: 3)\n  exitcode : -9 (pid: 7)\n",
            "killed",
        ),
        ("AssertionError: cannot build the table of words\n", "script-error"),
        ("[ERROR] the launcher ended with exit code 1\n", ""),
    ],
)
def test_the_usual_noise_at_the_start_and_the_end_is_no_cause(end, cause):
    assert explain({"a": _AT_THE_START + end + _AT_THE_END}).cause == cause


def test_a_library_that_could_not_be_loaded_is_a_cause_only_at_the_end():
    last = "Could not load library libcudnn_cnn_infer.so.8\n"
    assert explain({"a": last}).cause == "library-mismatch"
    assert explain({"a": last + "going on\n" * 9}).cause == ""


@pytest.mark.parametrize(("text", "cause", "words", "maybe"), [
    ("OSError: [Errno 116] Stale file handle: '/data/x'", "disk-faulty", "no longer knows a file", ()),
    ("ERROR: [Errno 98] error while attempting to bind on address ('0.0.0.0', 29500): address already in use",
     "port-busy", "port 29500 is in use", ()),
    ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
     "29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", "port-busy", "29500", ()),
    ("OSError: [Errno 98] Address already in use (port 29500)", "port-busy", "port 29500", ()),
    ("OSError: [Errno 98] Address already in use", "port-busy", "a port is in use", ()),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4711.0.", "host-memory", "--mem", ("killed",)),
    ("PIL.UnidentifiedImageError: cannot identify image file '/data/x.jpg'", "exception", "'/data/x.jpg'", ()),
], ids=["stale", "port of a tuple", "port of torch", "port in words", "no port", "slurm", "image"])  # fmt: skip
def test_the_explanation_contains_the_details_of_the_line(text, cause, words, maybe):
    explained = explain({"a": f"{text}\n"})
    assert (explained.cause, explained.maybe) == (cause, maybe)
    assert words in explained.what


def test_the_limit_of_a_slurm_job_is_looked_up_with_slurm():
    text = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4711.0.\n"
    assert next_of(explain({"a": text}), "", {}).startswith("scontrol show job 4711 | grep -i mem")


def test_the_kernels_out_of_memory_message_leads_to_the_kernel_log():
    assert "dmesg" in explain({"a": "Out of memory: Killed process 71 (python)\n"}).next


def test_a_training_that_ends_with_nan_losses_is_reported():
    steps = [f"step {step} loss {'nan' if step > 20 else 0.5}\n" for step in range(300)]
    explained = explain({"a.log": "".join(steps)})
    assert (explained.cause, explained.evidence[0].number) == ("loss-nan", 300)
    assert next_of(explained, "", {"a.log": "a.log"}) == "grep -n -i -m 1 'loss.*nan' a.log"
    assert next_of(explained, "", {}) == "", "standard input is no file to search"
    assert not explain({"a": "".join(steps[:20])}).cause
    assert not explain({"a": "step 8 loss nan\nstep 9 loss 0.3\n"}).cause, "it was skipped"
    assert explain({"a": "".join(steps) + "KeyError: 'x'\n"}).cause == "script-error"


def test_a_node_and_not_a_file_is_said_to_miss_the_rendezvous():
    text = (
        "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to "
        "(10.0.0.9, 29500).\nRendezvousConnectionError: The connection to the C10d store has failed.\n"
    )
    assert "a node (its output: rdzv.log) did not reach" in explain({"rdzv.log": text}).what
    assert explain({"gpu-b": text}).what.startswith("gpu-b did not reach")
