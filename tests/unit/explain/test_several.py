"""Messages with several possible causes: none is stated as sure, all are named, and distinguishing facts are used."""

import re

import pytest

from deploy.explain.cause import explain
from deploy.explain.signs.general import ROWS
from deploy.explain.signs.table import SIGNS

GUESSES = re.compile(r"(?i)most often|probably|perhaps|likely|usually|guess")
FRAME = 'Traceback (most recent call last):\n  File "{}", line 3, in read\n    x\n'
SITE = "/opt/conda/lib/python3.11/site-packages/"
PICKLED = "_pickle.UnpicklingError: invalid load key, 'v'.\n"
WARNED = (
    "/opt/torch/cuda/__init__.py:88: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did "
    "you run cuda functions before calling NumCudaDevices() that might have already set an error? Error {} (at x)\n"
)
BARRIER = (
    "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: k (world_size={})"
)
RETRIED = (
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='{}', port=443): Max retries exceeded with url: /x"
)


def test_no_sign_of_a_cause_contains_a_guess():
    # A device-side assert is reported as such; only its reason is guessed.
    guessing = [
        sign for sign in (*SIGNS, *ROWS) if sign.cause not in ("", "device-assert") and GUESSES.search(sign.what)
    ]
    assert not guessing


@pytest.mark.parametrize(("words", "cause"), [
    ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "gpu-memory"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "device-assert"),
    ("RuntimeError: CUDA error: unknown error", "gpu-driver"),
    ("RuntimeError: CUDA error: initialization error", "cuda-fork"),
    ("RuntimeError: cuda runtime error (3) : initialization error at THCStorage.c:60", "cuda-fork"),
    ("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.", "gpu-driver"),
    ("RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
     "gpu-missing"),
    ("container \"pytorch\" in pod \"x\" is waiting: Error: trying and failing to pull image", "access-denied"),
    ("The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR", "killed"),
    ("OSError: Memory mapping file failed: Cannot allocate memory", "process-limits"),
    ("mmap(65536 bytes) failed: Cannot allocate memory, which is an error", "host-memory"),
    ("FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp']", "folder-readonly"),
    ("Error: ImagePullBackOff", "access-denied"),
    ("docker: Error: pull access denied for mine, repository does not exist or may require 'docker login'",
     "access-denied"),
    ("slurmstepd: error: pyxis: failed to import docker image", "file-permission"),
    ("RuntimeError: connect [127.0.0.1]:40321: Connection refused", "name-loopback"),
    ("gpu-a:7:7 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.7<38536> with error 5, opcode 48", "node-lost"),
    ("gpu-a:7:7 [0] NCCL WARN Message truncated : received 1024 bytes instead of 256", "nccl-differs"),
    ("exec /app/start.sh: exec format error", "architecture-differs"),
    ("prterun was unable to reliably start one or more daemons.", "ssh"),
    (PICKLED, "checkpoint-broken"),
    (BARRIER.format("2, worker_count=4, timeout=0:02:00"), "leftovers"),
    (BARRIER.format("4, num_workers_joined=4, timeout=0:02:00 error=x"), "node-missing"),
    ("RuntimeError: makeDeviceForHostname(): unsupported gloo device", "settings-differ"),
    ("RuntimeError: GlooDeviceFactory::makeUVDevice(): interface or hostname can't be empty", "name-unresolvable"),
    ("requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('End closed'))", "download"),
    ("RuntimeError: Triton Error [CUDA]: device kernel image is invalid", "driver-old"),
    ("socket.gaierror: [Errno -2] Name or service not known", "peer-name-unresolvable"),
    ("RuntimeError: connect() timed out. Original timeout was 1800000 ms.", "rendezvous-dropped"),
    ("gpu-b:7:9 [0] include/socket.h:403 NCCL WARN Connect to 10.1.0.4<56849> failed : Connection refused",
     "data-ports-rejected"),
    ("gpu-b:7:9 [0] include/socket.h:360 WARN Call to connect failed : Connection refused", "data-ports-rejected"),
    ("*** SIGABRT (@0x3e800001267) received by PID 4711 (TID 0x7f12) from PID 4711; stack trace: ***", "crashed"),
    ("terminate called after throwing an instance of 'c10::DistBackendError'", "collective-timeout"),
    ("Fatal Python error: Aborted", "crashed"),
    ("subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\nImportError: "
     "/root/.cache/torch_extensions/py310/x/x.so: cannot open shared object file: No such file", "compiler-missing"),
    ("OSError: a/b is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
     "access-denied"),
    ("srun: error: Task launch for StepId=7.0 failed on node gpu-a: Communication connection failure", "node-lost"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "checkpoint-broken"),
    (FRAME.format(f"{SITE}etcd/client.py") + "etcd.EtcdKeyNotFound: Key not found : /torch/elastic/store", "exception"),
    (FRAME.format("/opt/odd/odd/io.py") + "odd.OddException: the shapes are odd", "exception"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'patchelf'", "exception"),
    ("RuntimeError: rank 3 has tensors of another dtype than its peers", "exception"),
    ("ValueError: host gpu-b is odd", "exception"),
    ("EOFError: ", "exception"),
    ("PermissionError: [Errno 1] Operation not permitted", "docker-refused"),
    ("PermissionError: [Errno 13] Permission denied", "port-forbidden"),
    ('    "message": "RuntimeError: Permission denied",', "port-forbidden"),
    ("unshare: unshare failed: Operation not permitted", "docker-refused"),
    ("docker: Error response from daemon: Cannot start container 80d1: write /cgroup/docker/80d1/cgroup.procs: no "
     "space left on device", "process-limits"),
    ("RuntimeError: sched_setaffinity: Operation not permitted", "process-limits"),
    ("docker: Error response from daemon: unable to apply cgroup configuration: mkdir x: permission denied: unknown.",
     "docker-refused"),
    ("NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file",
     "library-mismatch"),
])  # fmt: skip
def test_of_several_possible_causes_none_is_stated_and_each_is_named(words, cause):
    seen = explain({"a": f"starting\n{words}\n"})
    assert (seen.cause, cause in seen.maybe) == ("", True), seen
    assert seen.evidence
    assert len(seen.maybe) <= 5


@pytest.mark.parametrize(("text", "cause"), [
    (FRAME.format(f"{SITE}torch/serialization.py") + PICKLED, "checkpoint-broken"),
    (FRAME.format(f"{SITE}torch/distributed/distributed_c10d.py") + PICKLED, ""),
    (FRAME.format("train.py") + PICKLED, ""),
    (FRAME.format("/usr/lib/python3.11/multiprocessing/synchronize.py") + "OSError: [Errno 28] No space left on device",
     "shm-small"),
    (FRAME.format("/usr/lib/python3.11/tempfile.py") + "OSError: [Errno 28] No space left on device", "disk-full"),
    (FRAME.format("/usr/lib/python3.11/copy.py") + "TypeError: cannot pickle '_thread.lock' object", "script-error"),
    (BARRIER.format("4, worker_count=2, timeout=0:02:00"), "node-missing"),
    (BARRIER.format("4, num_workers_joined=2, timeout=0:02:00 error=x"), "node-missing"),
    (BARRIER.format("4, worker_count=4, timeout=0:02:00"), ""),
    ("RuntimeError: DataLoader worker (pid 41956) is killed by signal: Hangup.", "worker-failed"),
    ("RuntimeError: DataLoader worker (pid 41956) is killed by signal: Segmentation fault.", "crashed"),
    ("RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.",
     "gpu-count"),
    (RETRIED.format("huggingface.co"), "download"),
    (RETRIED.format("192.0.2.7"), ""),
    ("(ProtocolError('Connection aborted.', RemoteDisconnected('Remote end closed'))) thrown while requesting GET "
     "https://huggingface.co/x", "download"),
    ("RuntimeError: DataLoader worker (pid(s) 41) exited unexpectedly\nsrun: error: gpu-a: task 0: Out Of Memory",
     "host-memory"),
    (RETRIED.format("server"), ""),
    (WARNED.format("804: forward compatibility was attempted"), "driver-old"),
    (WARNED.format("804: forward compatibility was attempted") + FRAME.format("train.py"), "driver-old"),
    (WARNED.format("802: system not yet initialized") + "ValueError: no\n", "script-error"),
    ("0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed due to other reasons", ""),
    ("slurmstepd: error: *** STEP 7.0 ON gpu-a CANCELLED AT 2026-01-02T03:04:05 ***", ""),
    ("slurmstepd: error: execve(): /tmp/slurmd/job7/slurm_script: No such file or directory", ""),
    ("AttributeError: module 'mine' has no attribute 'go'", "script-error"),
    ("ImportError: cannot import name 'a' from partially initialized module 'b' (most likely due to a circular import)",
     ""),
    ("[W socket.cpp:601] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot "
     "assign requested address).", ""),
    ("TypeError: load_checkpoint() got an unexpected keyword argument 'x'", "script-error"),
    ("odd.GpuException: CUDA error 401 at launch", ""),
    ("RuntimeError: cannot allocate page-locked memory", ""),
    (FRAME.format("train.py") + "RuntimeError: the data are odd", "script-error"),
    (FRAME.format("train.py") + "FileNotFoundError: [Errno 2] No such file or directory: 'labels'", "script-error"),
])  # fmt: skip
def test_facts_that_distinguish_causes_are_used(text, cause):
    assert explain({"a": f"starting\n{text}\n"}).cause == cause


def test_a_port_that_a_user_would_choose_is_taken_for_the_rendezvous():
    words = (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600s while trying to connect to ({})"
    )
    assert explain({"a": words.format("10.0.0.7, 29500")}).maybe[0] == "rendezvous-dropped"
    assert explain({"a": words.format("10.0.0.7, 40321")}).cause == "data-ports-dropped"
    of_ray = explain({"a": f"(WorkerDict pid=904548) {words.format('10.0.0.7, 40321')}"})
    assert (of_ray.cause, of_ray.maybe[0]) == ("", "rendezvous-dropped"), "Ray's program chose that port"


def test_a_cause_next_to_a_list_of_guesses_is_believed():
    ray = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n"
    summary = "Root Cause (first observed failure):\n[0]:\n  rank : 3 (local_rank: 3)\n  exitcode : -9 (pid: 7)\n"
    assert explain({"a": ray + summary}).cause == "killed"
    assert explain({"a": f"{ray}error: odd failed: the disk is full\n"}).cause == "disk-full"
