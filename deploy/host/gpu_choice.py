"""Which GPUs of a host a deploy gets: free ones that it asked for, within CUDA_VISIBLE_DEVICES. Pure; claims.py asks.

A GPU is free if no living container and no running deploy has it, and no process computes on it. The longest waiter is
next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from ..core.errors import DeployError, UsageError
from ..core.text import several
from ..job.option_words import command_of
from ..job.options import FLAG
from ..job.values import Gpus as Asked
from .facts import HostFacts
from .gpus import DEPLOYS, HOLDS, RESTS, RUNS, Claim, Gpus, GpuUse

Machine = TypeVar("Machine", Gpus, HostFacts)
# This process serves other processes, and is itself on every GPU.
SERVER = "nvidia-cuda-mps-server"


@dataclass(frozen=True)
class Choice:
    """The GPUs that a deploy gets on a host, or why it has to wait (`taken`).

    `is_temporary`: another deploy has them for now. `whole`: it uses no GPU, and wants the host without another run.
    """

    gpus: tuple[GpuUse, ...] = ()
    taken: str = ""
    is_temporary: bool = False
    whole: bool = False


def choose(asked: Asked, here: Gpus, token: str, alone: bool = False) -> Choice:
    """Choose among a host's GPUs for the deploy `token`.

    `auto` takes all GPUs, even busy ones: preflight judges that. `alone`: wait until no process computes, and, if no
    GPU is used, until no other run is there. Raises UsageError for GPUs that the host does not have, DeployError if the
    host cannot tell who has them.
    """
    whole = asked == 0 or not (here.gpus or here.fault)
    others = [claim for claim in here.claims if claim.token != token and claim.whole == whole and claim.state != RESTS]
    own = [claim.number for claim in here.claims if claim.token == token]
    first = next((claim for claim in others if claim.waits and claim.number < min(own, default=1 << 63)), None)
    if whole:
        refuse_missing(asked, here)
        return _place(here, others, first) if alone else Choice(whole=True)
    if here.fault and (asked != "auto" or alone):
        raise DeployError(f"could not tell which GPUs are free: {here.fault}", "on that host: nvidia-smi")
    refuse_missing(asked, here)
    if first:
        return Choice(taken=f"{first.shown} waits there for GPUs")
    if isinstance(asked, int):
        free = [gpu for gpu in here.gpus if not _why_not(gpu)]
        if len(free) >= asked:
            return Choice(tuple(free[:asked]))
        held = [gpu for gpu in here.gpus if _why_not(gpu)]
        words = f"{several(len(free), 'free GPU')} of {len(here.gpus)}, and {asked} asked for"
        return Choice(taken=f"{words}: {_listed(held)}", is_temporary=any(_passing(gpu, others) for gpu in held))
    wanted = [gpu for gpu in here.gpus if asked == "auto" or gpu.index in asked]
    held = [gpu for gpu in wanted if (gpu.given if asked == "auto" and not alone else _why_not(gpu))]
    if held:
        return Choice(taken=_listed(held), is_temporary=any(_passing(gpu, others) for gpu in held))
    return Choice(tuple(wanted))


def visible_to_cuda(visible: str | None, here: Machine) -> Machine:
    """A machine with the GPUs listed in CUDA_VISIBLE_DEVICES, as CUDA reads it.

    They are in that order, and end before the first one that does not exist.
    """
    if visible is None:
        return here
    chosen = []
    for word in map(str.strip, visible.split(",")):
        known = [gpu for gpu in here.gpus if word == str(gpu.index) or gpu.uuid.startswith(word or "-")]
        if len(known) != 1:
            break
        if known[0] in chosen:  # then CUDA sees no GPU
            return replace(here, gpus=())
        chosen += known
    return replace(here, gpus=tuple(chosen))


def yield_to_others(choice: Choice, claims: Iterable[Claim], token: str, alone: bool) -> Choice:
    """What is left of a choice that the deploy `token` has claimed: nothing if another deploy has claimed the same.

    If two deploys claim together, each may see the other: then both step back and try again.
    """
    own, whole = {gpu.uuid for gpu in choice.gpus}, choice.whole and alone
    for claim in claims:
        has = claim.state in (DEPLOYS, HOLDS, RUNS) and claim.token != token
        if has and (own & set(claim.gpus) or (whole and (claim.whole or claim.state == RUNS))):
            return Choice(taken=f"{claim.shown} has claimed the same at this moment", is_temporary=True)
    return choice


def describe_request(asked: Asked) -> str:
    """What a deploy asks for, in words."""
    if asked == "auto":
        return "all GPUs"
    return several(asked, "GPU") if isinstance(asked, int) else f"GPU {', '.join(map(str, asked))}"


def _place(here: Gpus, others: list[Claim], first: Claim | None) -> Choice:
    if first:
        return Choice(taken=f"{first.shown} waits there", whole=True)
    holding = [claim for claim in others if not claim.waits]
    words = list(dict.fromkeys((*here.runs, *(claim.shown for claim in holding))))
    passing = all(claim.state == DEPLOYS for claim in holding) and not here.runs
    return Choice(taken=f"{', '.join(words)} runs there" if words else "", is_temporary=passing, whole=True)


def refuse_missing(asked: Asked, here: Gpus) -> None:
    """Raise UsageError for GPUs that the host does not have."""
    have = [gpu.index for gpu in here.gpus]
    missing = [index for index in asked if index not in have] if isinstance(asked, tuple) else []
    if missing or (isinstance(asked, int) and asked > len(have)):
        raise UsageError(
            f"{FLAG.gpus}: {describe_request(asked)} asked for, "
            f"the host has {several(len(have), 'GPU') if have else 'none'}",
            f"{FLAG.gpus} {len(have)}; {command_of('gpus', hosts='...')} shows them"
            if have
            else f"leave out {FLAG.gpus}: it trains on the CPU",
        )


def _why_not(gpu: GpuUse) -> str:
    """Who has this GPU; empty if it is free."""
    if gpu.given:
        return gpu.given[0]
    if computing := [holder for holder in gpu.holders if not holder.process.endswith(SERVER)]:
        holder = computing[0]
        return f"run {holder.run}" if holder.run else f"process {holder.pid} ({holder.user or 'another user'})"
    return "a process that is not visible from there" if gpu.unseen else ""


def _passing(gpu: GpuUse, others: list[Claim]) -> bool:
    return any(gpu.uuid in claim.gpus and claim.state == DEPLOYS for claim in others)


def _listed(held: list[GpuUse]) -> str:
    return ", ".join(f"{_why_not(gpu)} has GPU {gpu.index}" for gpu in held[:8])
