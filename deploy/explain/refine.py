"""Refine a sign: its line (Kubernetes, AMD) or traceback may mean another cause or another next command. Pure."""

from __future__ import annotations

from dataclasses import replace

from . import libraries
from .signs.kinds import ALONE, PREFLIGHT, Sign, several, sign
from .words import compile_limited

# Errors about pickled data, which may come from a file or from another process.
_PICKLED = compile_limited(r"UnpicklingError|invalid load key|pickle data was truncated|unpickling stack underflow")
_CHECKPOINT_FRAMES = compile_limited(r"torch/serialization\.py$|checkpoint|safetensors|modeling_\w+\.py$")
_UNPICKLED = several(
    _PICKLED.pattern, "pickled data cannot be read: from a file, or from another process", ALONE,
    "checkpoint-broken", "worker-failed",
)  # fmt: skip
# A semaphore is a file in /dev/shm.
_SEMAPHORE = compile_limited(r"multiprocessing/(?:synchronize|shared_memory)\.py$")
_NO_ROOM = sign("shm-small", r"No space left on device", "/dev/shm is too small", "df -h /dev/shm")
_COPY = compile_limited(r"/copy\.py$")
# Words of a program or system, and the command that asks it for more.
_TOOLS = (
    (compile_limited("MPS backend"), "ps aux -m | head"),
    (
        compile_limited(r"CDI (?:host )?device|nvidia\.com/gpu="),
        "podman --version; sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    (
        compile_limited(
            r"FailedScheduling|Unschedulable|nodes are available|OOMKilled(?!\"?:)|\bEvict(?:ed|ion)\b|TaintManager|"
            r"low on resource: |longer than specified deadline|ImagePull|node\.kubernetes\.io|NodeNotReady"
        ),
        "kubectl describe pod POD",
    ),
)
# The same for engines, for the causes whose next command would otherwise ask Docker.
_DOCKER_CAUSES = {"container-missing", "docker-refused"}
_ENGINES = (
    (compile_limited(r"^FATAL: {3}|apptainer|singularity"), "apptainer --debug exec IMAGE true"),
    (compile_limited(r"pyxis: |enroot-|/v2/\S{1,300} returned error code: \d"), "enroot import docker://IMAGE"),
    (compile_limited(r"OCI runtime error: |podman"), "podman info"),
)
SAYS_WANDB = compile_limited(r"wandb\.errors|api\.wandb\.ai|\bwandb: |wandb/sdk|wandb\.sdk")
# For Weights & Biases, by cause: the command that asks it, in place of one that asks the model hub.
OF_WANDB = {"access-denied": "wandb login --verify", "download": "curl -sSI https://api.wandb.ai"}
_AT_A_BARRIER = compile_limited(
    r"store based barrier on rank.{0,160}world_size=(\d{1,9}), (?:worker_count|num_workers_joined)=(\d{1,9})"
)
_ENOUGH = several(
    _AT_A_BARRIER.pattern, "the store counts {1} of {0} ranks: a rank came too late, too many were started, or "
    "an earlier run left its entries there", PREFLIGHT, "leftovers", "node-missing",
)  # fmt: skip


def refined(broad: Sign, text: str, frame: str) -> Sign | None:
    """The sign that fits this line, whose traceback ends in the file `frame` (empty if unknown).

    None if the words mean nothing in that file: the exception is then shown as it is.
    """
    if broad.cause == "checkpoint-broken" and _PICKLED.search(text) and not _CHECKPOINT_FRAMES.search(frame):
        return None if frame else _UNPICKLED
    if broad.cause == "disk-full" and _SEMAPHORE.search(frame):
        return _NO_ROOM
    if broad.cause == "pickle" and _COPY.search(frame):
        return None
    if "HIP" in text:
        broad = replace(broad, next=broad.next.replace("CUDA_LAUNCH_BLOCKING=1", "AMD_SERIALIZE_KERNEL=3"))
    of_docker = bool(_DOCKER_CAUSES & {broad.cause, *broad.maybe})
    for words, ask in (*_TOOLS, *_ENGINES * of_docker):
        if words.search(text):
            return replace(broad, next=ask)
    if broad.cause == "library-missing":
        return replace(broad, next=libraries.install(libraries.missing(text)))
    met = _AT_A_BARRIER.search(text) if broad.cause == "node-missing" else None
    return _ENOUGH if met and int(met[2]) >= int(met[1]) else broad
