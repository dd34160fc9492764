"""Two parts of preflight on this machine: it examines the GPUs, and it rehearses a run of two hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from deploy.local.probe import LocalProbe
from deploy.preflight import PreflightRequest
from deploy.preflight import judge as preflight_judge
from deploy.preflight.probe import rehearsal, text
from deploy.preflight.probe.conversation import examine
from deploy.preflight.rehearsal import Scene, findings, summary
from lab.ports import free_port

from ..bench import Bench
from ..finding import Finding, judge
from ..network import Place
from ..nodes import environment

TITLE, LIMIT_S = "preflight: its look and its rehearsal", 60
_HOSTS = ("host-0", "host-1")


def run(bench: Bench) -> Iterator[Finding]:
    """Both parts, one after the other."""
    with ExitStack() as stack:
        yield _look(_started(stack, _HOSTS, text.text()), bench)
    with ExitStack() as stack:
        yield _rehearsal(_started(stack, _HOSTS, rehearsal.program()), bench)


def _started(stack: ExitStack, names: Sequence[str], program: bytes) -> list[LocalProbe]:
    """For each host a process of this Python, which runs the program as a host's container would."""
    probes = [LocalProbe(name, [sys.executable], environment({}), program) for name in names]
    for probe in probes:
        stack.callback(probe.close)
    return probes


def _look(probes: Sequence[LocalProbe], bench: Bench) -> Finding:
    """Preflight's rules find no fault with these GPUs, and it has read all of them."""
    bench.say("preflight looks")
    answers = examine(probes, PreflightRequest(endpoint="127.0.0.1", port=free_port(), backend=bench.backend))  # type: ignore[arg-type]
    verdict = preflight_judge(answers)
    wrong = [finding.text for finding in verdict.findings if finding.group in ("gpus", "software")]
    facts = answers.facts.get(_HOSTS[0], {})
    rows, driver = (facts.get("gpus") or {}).get("rows", []), facts.get("cuda") or {}
    good = not wrong and (not bench.gpus or (driver.get("code") == 0 and len(rows) >= 1))
    measured = "; ".join(wrong) or f"{len(rows)} GPUs, CUDA {driver.get('version', '-')}"
    return judge("preflight's look at the GPUs", good, measured, "no finding")


def _rehearsal(probes: Sequence[LocalProbe], bench: Bench) -> Finding:
    """Two hosts meet, compute and sum; NCCL's log shows which transport it used."""
    bench.say("preflight rehearses")
    place, port = Place(), free_port()
    endpoint = f"{place.address}:{port}"
    questions = {name: _question(bench, endpoint, number, place) for number, name in enumerate(_HOSTS)}
    outcomes = rehearsal.rehearse(probes, questions)
    scene = Scene(_HOSTS, bench.backend, endpoint, dict.fromkeys(_HOSTS, "."), {})
    wrong = [finding.text for finding in findings(outcomes, scene)]
    shown = summary(outcomes, rehearsal.LONG)
    good = not wrong and (not bench.gpus or "NCCL" in shown)
    return judge("preflight's rehearsal of two hosts", good, "; ".join(wrong) or shown, "they meet, and NCCL says how")


def _question(bench: Bench, endpoint: str, number: int, place: Place) -> Mapping[str, Any]:
    variables = {
        "PET_NNODES": str(len(_HOSTS)),
        "PET_NODE_RANK": str(number),
        "PET_RDZV_ENDPOINT": endpoint,
        "PET_NPROC_PER_NODE": "1",
        "GLOO_SOCKET_IFNAME": place.interface,
        "NCCL_SOCKET_IFNAME": f"={place.interface}",
        "MUSTER_RUN_DIR": str(bench.folder),
        **bench.separate_host_variables(f"rehearsal-{number}"),
    }
    return {"backend": bench.backend, "environment": variables}
