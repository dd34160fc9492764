"""The cause of a rehearsal that failed (node/probe/rehearsal.py), by its error text and the step that failed. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from .docker_faults import SECCOMP_FIX


class Sign(NamedTuple):
    """The words of a failure at a step, the cause that they suggest, and the words (`only`) that make it certain."""

    words: re.Pattern[str]
    step: str
    cause: str
    symptom: str
    fix: str
    only: re.Pattern[str]


def _sign(words: str, step: str, cause: str, symptom: str, fix: str, only: str = r"(?!)") -> Sign:
    return Sign(re.compile(words, re.IGNORECASE), step, cause, symptom, fix, re.compile(only, re.IGNORECASE))


_FULL_SHM = r"/dev/shm: [0-7] of \d+ MB free"
_SHM = '`shm_size = "16g"` under [job] of cluster.toml; what fills it: df -h /dev/shm in a container'
# The first sign counts whose words are in the error and whose step is the beginning of the failed step. `only`: the
# words that make the cause certain. The error has in brackets what the rehearsal checked after it failed
# (node/probe/rehearsal.py, looked_at).
SIGNS = (
    _sign(r"engine does not see", "see", "mount-missing", "nothing that a run writes reaches the host's disk",
          "on {host}: sudo nsenter -t $(pgrep -x dockerd) -m ls -ld {runs}   (what the engine sees there); "
          "sudo systemctl restart docker", only=r"engine does not see"),
    _sign(r"permission denied", "see", "mount-closed", "`Permission denied` at the first file that a run writes",
          "on {host}: ls -ld {runs}; sudo docker info; docker run --rm IMAGE id (as which user do containers run?)",
          only=r"no right to write"),
    _sign(r"bus error|SIGBUS", "", "shm-small", "`Bus error` in data loaders", _SHM, only=_FULL_SHM),
    _sign(r"no space left|allocate shared memory", "load", "shm-small", "`Bus error` in data loaders",
          _SHM, only=_FULL_SHM),
    _sign(r"no space left.{0,300}; 0 inodes free", "write", "inodes-full", "the first checkpoint fails",
          "on {host}: df -i {runs}; muster clean{at} shows what runs left", only="0 inodes free"),
    _sign(r"no space left|quota exceeded", "write", "disk-full", "the first checkpoint fails",
          "on {host}: df -h {runs}; df -i {runs}; muster clean{at} shows what runs left",
          only=r"\[.{0,200}; [01] MB free|quota exceeded"),
    _sign(r"read-only file system|permission denied|not permitted", "write", "home-readonly", "nothing can be saved",
          "on {host}: ls -ld {runs}; mount | grep -w ro", only=r"; mounted read-only|; no right to write"),
    _sign(r"(?:start new thread|pthread_create|clone3?).{0,60}operation not permitted", "", "docker-refused",
          "`can't start new thread`, or a data loader that dies", SECCOMP_FIX,
          only=r"operation not permitted"),
    _sign(r"start new thread|resource temporarily unavailable", "", "process-limits",
          "`can't start new thread`, or a data loader that dies",
          "a higher `pids` under [job] of cluster.toml; on {host}: ulimit -u; systemctl show docker -p TasksMax",
          only=r"limit of processes was reached [1-9]"),
    _sign(r"too many open files", "", "open-files", "`Too many open files`", "on {host}: docker info; ulimit -n",
          only=r"errno 24"),
    _sign(r"cuda.{0,40}out of memory", "", "gpu-busy", "`CUDA out of memory`",
          "muster gpus{at} shows who has its GPUs", only=r"cuda.{0,40}out of memory"),
    _sign(r"SIGKILL|signal: killed|cannot allocate memory|memoryerror", "", "memory-low",
          "exit code 137 (SIGKILL) without a message",
          "on {host}: free -h; dmesg | grep -i oom; raise `memory` in cluster.toml{memory}",
          only=r"the kernel has killed [1-9]\d* for memory"),
    _sign(r"address already in use", "meet", "port-busy", "all nodes hang, as clients of that process",
          "on {host}: sudo ss -ltnp shows who listens there; end it, or choose another port with --port",
          only=r":\d+: address already in use"),
    _sign(r"unable to find (?:address|interface)|no socket interface", "", "interface-missing",
          "`Unable to find address`", "on {host}: ip addr; set its interface in cluster.toml",
          only=r"unable to find (?:address|interface)|no socket interface"),
)  # fmt: skip


def sign_of(words: str, step: str) -> Sign | None:
    """Return the first sign that matches these words at this step, or None.

    Its fix has fields for the host, the folder of its runs and its memory.
    """
    return next((sign for sign in SIGNS if step.startswith(sign.step) and sign.words.search(words)), None)
