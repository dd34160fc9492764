"""The signs of known causes in a failed run's output: tables, one row per sign. Pure.

The texts come from torch, gloo, NCCL, CUDA, Docker, Slurm and OpenSSH. To teach `muster explain` a new fault, add a row
to a table, an example to tests/unit/explain/examples.txt, and a public thread with it (lab/threads.py). The earliest
sign counts; within one line, the first row of the table wins. Patterns have no unlimited gaps, because lines are
untrusted and matching must stay fast.
"""

from ...causes import docker_faults
from ..words import compile_limited
from .gpus import GPU
from .kinds import Sign, Weight, several, sign
from .network_and_host import HOST, NETWORK
from .scripts import SCRIPT, VICTIM

# Docker's own texts are in causes/docker_faults.py: for each cause, the words that have no other cause.
_DOCKER = tuple(
    Sign(cause.name, cause.only or cause.words, cause.what, cause.row.plain_command)
    for cause in docker_faults.CAUSES
    if cause.in_logs
)
# A program that was started by its name. Only for logs: if an engine says this to a preflight, it proves nothing.
_BINARY = sign(
    "architecture-differs",
    r"exec (?!\S{1,200}\.\w{1,4}:)\S{1,200}: exec format error",
    "the image was built for another kind of processor",
    "uname -m (build the image for that processor)",
)
_SCRIPT_OR_BINARY = several(
    r"exec format error",
    "a program was built for another kind of processor, or is a script whose first line does not begin with `#!`",
    "uname -m; head -c 20 PROGRAM",
    "architecture-differs",
)
# The reason for a failure that another line reports: torch puts NCCL's words after `Last error:`.
REASON = Sign("", compile_limited(r"NCCL WARN (\S.{0,300})"), "", weight=Weight.REASON)
LAST_ERROR = compile_limited(r"Last error:\s*$")
SIGNS = (*NETWORK, *_DOCKER, _BINARY, _SCRIPT_OR_BINARY, *GPU, *HOST, *SCRIPT, *VICTIM, REASON)


def shows(cause: str, text: str) -> bool:
    """Whether a sign of this cause is in the text."""
    return any(sign.pattern.search(text) for sign in SIGNS if sign.cause == cause)


# Messages from a node that cannot reach one of torch's stores; unreached_store.py finds out which store, and why.
STORE = compile_limited(
    r"[Cc]lient socket has (?:timed out after \d+m?s while trying to connect to|"
    r"failed to connect to any network address of) \(?(?P<host>[^,()\s]{1,255}?)(?:, |"
    r":)(?P<port>\d{1,5})\b\)?(?P<rest>.*)"
)
NOT_REACHED = compile_limited(r"client socket has failed to connect to \S{1,255} \(errno: \d+ - ([^)]{1,60})\)")
UNKNOWN_NAME = compile_limited(
    r"network addresses of \(([^,]{1,255}), (\d+)\) cannot be retrieved \(gai error: (?:-[235]|8|11001) "
)
NO_FAMILY = compile_limited(
    r"The (IPv[46]) network addresses of \(([^,]{1,255}), .{0,200}Address family for hostname not supported"
)
RENDEZVOUS_FAILED = "RendezvousConnectionError: The connection to the C10d store has failed"
# The cause shown by the signal that ended the first process, if its output shows none.
SIGNALS = {-9: "killed", -7: "shm-small", -11: "crashed", -4: "architecture-differs", -8: "crashed"}
