"""Software versions and environment variables, which must be the same on all nodes. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...causes.finding import FAULT, WARNING, Finding, find
from ...core.text import listed
from ..answers import Answers
from ..verdict import odd_ones

# Endings of variables that may differ from node to node.
OWN = (
    "SOCKET_IFNAME",
    "NODE_RANK",
    "LOCAL_ADDR",
    "RDZV_CONF",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "NPROC_PER_NODE",
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
)
# Measured with torch 2.13: if only one rank has the first variable, it waits forever; with the second, its peers lose
# the connection to it.
MUST_AGREE = (
    "TORCH_GLOO_LAZY_INIT",
    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ID",
    "PET_RDZV_ENDPOINT",
)
# Variable -> the values that torch accepts, the same in words, and what it prints for any other value, even if all
# hosts have that value. torch's builds have one gloo transport, and do not accept its name in lowercase letters.
REFUSED = {
    "TORCH_DISTRIBUTED_DEBUG": (re.compile(r"(?i)OFF|INFO|DETAIL"), "OFF, INFO and DETAIL", "must be one of"),
    "GLOO_DEVICE_TRANSPORT": (re.compile("TCP"), "TCP, in capital letters", "unsupported gloo device"),
}
MUST_AGREE_NCCL = ("NCCL_ALGO", "NCCL_PROTO")


OLDEST = (3, 11)  # the Python that Muster's agent runs on, in any image


def too_old(answers: Answers) -> Iterator[Finding]:
    """Yield a finding if the image's Python is too old to start ranks. The host's own Python may be older."""
    for host, facts in answers.facts.items():
        version = facts["software"]["python"]
        if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST:
            yield find(
                "python-old", host, f"the image has Python {version}, but the agent that starts the ranks needs 3.11"
            )


def check(answers: Answers) -> Iterator[Finding]:
    """Compare versions, then variables."""
    # If a host's engine does not answer, its probe ran outside the image and found no torch: such hosts are left out.
    versions = {host: facts["software"] for host, facts in answers.facts.items()}
    versions = {host: software for host, software in versions.items() if software.get("torch")} or versions
    if len(versions) < 2:
        return
    nccl = answers.request.by_nccl
    for name, group in (("torch", 2), ("nccl", 3), ("cuda", 1), ("python", 2)):
        seen = {host: software.get(name, "") for host, software in versions.items()}
        short = {host: ".".join(value.split("+")[0].split(".")[:group]) for host, value in seen.items()}
        if len(set(seen.values())) < 2:
            continue
        grave = len(set(short.values())) > 1 and (name == "torch" or (nccl and name in ("nccl", "cuda")))
        yield _differing(f"{name}-differs", seen, grave, f"{name} differs")
    settings = {host: answers.facts[host]["environment"] for host in versions}
    yield from _refused(settings, answers.request.by_nccl)
    yield from _settings(settings, answers.request.by_nccl)


def _refused(settings: Mapping[str, Mapping[str, str]], nccl: bool) -> Iterator[Finding]:
    """Report values that make torch fail at its import or its first process group, even if all hosts have them."""
    for name, (known, words, printed) in REFUSED.items():
        seen = {host: own.get(name, "") for host, own in settings.items()}
        bad = tuple(host for host, value in seen.items() if value and not known.fullmatch(value))
        if bad:
            yield find(
                "settings-differ",
                bad,
                f"{name} is {seen[bad[0]]} on {listed(bad)}, but torch knows only {words}",
                f"unset {name} on {listed(bad)}: environment in cluster.toml, or the image's",
                WARNING if "GLOO" in name and nccl else FAULT,
                symptom=f"`{printed}`",
            )


def _settings(settings: Mapping[str, Mapping[str, str]], nccl: bool) -> Iterator[Finding]:
    for name in sorted({name for own in settings.values() for name in own}):
        seen = {host: own.get(name, "") for host, own in settings.items()}
        if len(set(seen.values())) > 1 and not name.endswith(OWN) and name not in ("RANK", "LOCAL_RANK"):
            grave = name in MUST_AGREE or (nccl and name in MUST_AGREE_NCCL)
            # With DETAIL, a rank first checks each collective with the other ranks, in an extra process group: ranks
            # without DETAIL never join that group, so all ranks wait.
            checks = {value.upper() == "DETAIL" for value in seen.values()}
            grave = grave or (name == "TORCH_DISTRIBUTED_DEBUG" and len(checks) > 1)
            yield _differing("settings-differ", seen, grave, f"{name} differs")


def _alike(name: str, odd: Sequence[str], common: str) -> str:
    """Return the fix that gives a variable the same value on all hosts."""
    if common:
        return f"set {name} = {common} for {listed(odd)}, as on the other hosts: environment in cluster.toml"
    return f"unset {name} on {listed(odd)}: environment in cluster.toml, or the image's"


def _differing(cause: str, seen: Mapping[str, str], grave: bool, what: str) -> Finding:
    odd, common = odd_ones(seen), Counter(seen.values()).most_common(1)[0][0]
    having = tuple(host for host, value in seen.items() if value)
    if cause == "settings-differ" and len(having) * 2 <= len(seen):  # unset it where it is set: torch works without it
        odd, common = having, ""
    shown = [f"{host}: {value or 'none'}" for host, value in seen.items()]
    theirs = listed(f"{host} has {seen[host] or 'none'}" for host in odd)
    text = f"{what}: {theirs}" + (f", the others {common or 'none'}" if len(odd) < len(seen) else "")
    fix = _alike(what.partition(" ")[0], odd, common) if cause == "settings-differ" else ""
    return find(cause, odd, text, fix, FAULT if grave else WARNING, shown)
