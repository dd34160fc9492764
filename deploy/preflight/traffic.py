"""Which way a run opens connections, and which way it sends much. Pure.

gloo opens each pair from the larger address to the smaller one. Its all_reduce is a ring in which each rank sends to
the one before it, and its broadcast a tree from rank 0 (gloo/allreduce.cc, broadcast.cc, both read in 2025).
"""

from __future__ import annotations

from . import prediction
from .answers import Answers, Link
from .request import TORCHRUN

UNUSED = "none with all_reduce and broadcast by gloo, which send nothing large this way; other collectives would hang"


def opens(answers: Answers, source: str, target: str) -> bool:
    """Whether training opens data connections from one host to another: always to rank 0, else as the library does."""
    mine, theirs = (answers.plan.data[host].address for host in (source, target))
    # The store of the first host is at the address of its name, which may not be the one that carries the data.
    store = answers.resolved(source, answers.plan.store_name) or [theirs]
    if answers.request.backend == "nccl" or (target == answers.plan.first and theirs in store):
        return True
    return not mine or not theirs or prediction.connects(mine, theirs)


def carries(answers: Answers, source: str, target: str, each_step: bool = False) -> bool:
    """Whether all_reduce or broadcast send much from one host to another. True if the ranks' order is not known.

    each_step: all_reduce alone, because a broadcast happens once, at the start.
    """
    request, hosts = answers.request, answers.hosts
    ordered = request.style != TORCHRUN or request.rendezvous == "static"
    if request.backend == "nccl" or not ordered or request.processes > 1 or len(answers.hosts_with_facts) < len(hosts):
        return True
    mine, theirs = hosts.index(source), hosts.index(target)
    ahead = theirs - mine
    tree = ahead > 0 and ahead & (ahead - 1) == 0 and mine % (2 * ahead) == 0
    return (tree and not each_step) or theirs == (mine - 1) % len(hosts)


def sender(link: Link) -> tuple[str, str]:
    """From whom to whom the bytes went that stopped: a call sends its payload, then the called host returns it."""
    back = link.outcome == "stall-receive" or bool(link.send_s)
    return (link.target, link.source) if back else (link.source, link.target)
