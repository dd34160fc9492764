"""The only rank of a run, typed as `python train.py`: it starts as it does by hand, without torchrun's variables.

Many scripts take their distributed path where RANK or LOCAL_RANK is set: NCCL on a machine without a GPU, say. Standard
library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

RANK, ATTEMPT = "MUSTER_BARE_RANK", "MUSTER_ATTEMPT"
# What torchrun, the variables of its options and style.py give a rank. A launcher of the user's needs them: it becomes
# the command (launcher.py), and takes RANK and its like away itself.
_TORCHRUNS = re.compile(
    r"(PET|TORCHELASTIC|ROLE|GROUP)_\w+|(LOCAL_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|NNODES|NODE_RANK|"
    r"TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
)
# What a script misses that joins a process group all the same, in the words of torch and of Python.
_MISSED = re.compile(
    r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set|"
    r"KeyError: '(?:LOCAL_RANK|RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'"
)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a rank that torchrun starts with `given`; its attempt stays for those who watch it."""
    if given.get(RANK) != "1" or given.get("WORLD_SIZE") != "1" or given.get("MUSTER_LAUNCHER_RANKS"):
        return dict(given)
    own = {name: value for name, value in given.items() if not _TORCHRUNS.fullmatch(name)}
    return {**own, ATTEMPT: given.get("TORCHELASTIC_RESTART_COUNT", "0")}


def remedy(error: str) -> str:
    """What to do about the error of a bare rank that needs torchrun's variables; empty for another error."""
    if not _MISSED.search(error):
        return ""
    return "one rank that is typed as `python` has no variables of torchrun's: --nproc 1 in front of it gives it them"
