"""The cause of a rehearsal that failed (node/probe/rehearsal.py), by the words of its tools and what it saw. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from .docker_faults import SECCOMP_FIX


class Sign(NamedTuple):
    """The words of a failure at a step, the cause that they suggest, and the words (`only`) or facts that prove it.

    A sign without words counts if one of its facts was seen.
    """

    words: re.Pattern[str]
    at: str
    cause: str
    symptom: str
    fix: str
    only: re.Pattern[str]
    facts: frozenset[str]

    def proved_by(self, words: str, seen: Collection[str]) -> bool:
        """Whether the cause is certain."""
        return bool(self.only.search(words)) or not self.facts.isdisjoint(seen)


def _sign(words: str, at: str, cause: str, symptom: str, fix: str, only: str = r"(?!)", facts: str = "") -> Sign:
    both = re.compile(words, re.IGNORECASE), re.compile(only, re.IGNORECASE)
    return Sign(both[0], at, cause, symptom, fix, both[1], frozenset(facts.split()))


_SHM = '`shm_size = "16g"` under [job] of cluster.toml; what fills it: df -h /dev/shm in a container'
# The first sign that is proved counts, or else the first that suits. `facts`: keys of node/probe/rehearsal.py.
SIGNS = (
    _sign("", "see", "mount-missing", "nothing that a run writes reaches the host's disk",
          "on {host}: sudo nsenter -t $(pgrep -x dockerd) -m ls -ld {runs}   (what the engine sees there); "
          "sudo systemctl restart docker", facts="unseen"),
    _sign(r"permission denied", "see", "mount-closed", "`Permission denied` at the first file that a run writes",
          "on {host}: ls -ld {runs}; sudo docker info; docker run --rm IMAGE id (as which user do containers run?)",
          facts="no_right"),
    _sign(r"bus error|SIGBUS", "", "shm-small", "`Bus error` in data loaders", _SHM, facts="shm_full"),
    _sign(r"no space left|allocate shared memory", "load", "shm-small", "`Bus error` in data loaders",
          _SHM, facts="shm_full"),
    _sign(r"read-only file system|permission denied|not permitted", "write", "home-readonly", "nothing can be saved",
          "on {host}: ls -ld {runs}; mount | grep -w ro", facts="read_only no_right"),
    _sign(r"no space left|quota exceeded", "write", "disk-full", "the first checkpoint fails",
          "on {host}: df -h {runs}; df -i {runs}; muster clean{at} shows what runs left",
          only=r"quota exceeded", facts="disk_full"),
    _sign("", "write", "inodes-full", "the first checkpoint fails",
          "on {host}: df -i {runs}; muster clean{at} shows what runs left", facts="no_inodes"),
    _sign(r"(?:start new thread|pthread_create|clone3?).{0,60}operation not permitted", "", "docker-refused",
          "`can't start new thread`, or a data loader that dies", SECCOMP_FIX,
          only=r"operation not permitted"),
    _sign(r"start new thread|resource temporarily unavailable", "", "process-limits",
          "`can't start new thread`, or a data loader that dies",
          "a higher `pids` under [job] of cluster.toml; on {host}: ulimit -u; systemctl show docker -p TasksMax",
          facts="max"),
    _sign(r"too many open files", "", "open-files", "`Too many open files`", "on {host}: docker info; ulimit -n",
          only=r"errno 24"),
    _sign(r"cuda.{0,40}out of memory", "", "gpu-busy", "`CUDA out of memory`",
          "muster gpus{at} shows who has its GPUs", only=r"cuda.{0,40}out of memory"),
    _sign(r"SIGKILL|signal: killed|cannot allocate memory|memoryerror", "", "memory-low",
          "exit code 137 (SIGKILL) without a message",
          "on {host}: free -h; dmesg | grep -i oom; raise `memory` in cluster.toml{memory}",
          facts="oom_kill"),
    _sign(r"address already in use", "meet", "port-busy", "all nodes hang, as clients of that process",
          "on {host}: sudo ss -ltnp shows who listens there; end it, or choose another port with --port",
          facts="busy"),
    _sign(r"unable to find (?:address|interface)|no socket interface", "", "interface-missing",
          "`Unable to find address`", "on {host}: ip addr; set its interface in cluster.toml",
          only=r"unable to find (?:address|interface)|no socket interface"),
)  # fmt: skip


def sign_of(words: str, at: str, seen: Collection[str]) -> Sign | None:
    """Return the sign that suits a failure with these words and facts at this step best, or None.

    Its fix has fields for the host, the folder of its runs and its memory.
    """
    fit = (sign for sign in SIGNS if sign.at in ("", at) and sign.words.search(words))
    suits = (sign for sign in fit if sign.words.pattern or sign.proved_by(words, seen))
    return max(suits, key=lambda sign: sign.proved_by(words, seen), default=None)
