"""The final proof: a real all_reduce where training will run, with a short deadline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...core.errors import DeployError
from ...core.program import FAB
from .. import Answers, Finding, Verdict, judge, probe_answers
from .text import ProbeStream

WAIT_S, LIMIT_S = 30, 90
# Sent as the probe is. The store meets as torchrun's does; 4 MB is more than any buffer on the way holds. It ends with
# its input, so that none is left when nobody asks any more; and keeps what libraries print out of its answer.
PROGRAM = b"""
import datetime, json, os, sys, threading, time
answer = os.dup(1)
os.dup2(2, 1)
def tell(**said):
    os.write(answer, (json.dumps(said) + "\\n").encode()); os._exit(0)
def end_with_input():
    sys.stdin.read(); os._exit(9)
asked = json.loads(sys.stdin.readline())
threading.Thread(target=end_with_input, daemon=True).start()
os.environ.update(asked["environment"])
try:
    import torch, torch.distributed as dist
except ImportError as failed:
    tell(torch="", error=str(failed))
backend, world = asked["backend"], asked["world"]
try:
    if backend == "nccl":
        torch.cuda.set_device(0)
    began = time.monotonic()
    dist.init_process_group(backend, init_method=asked["url"], rank=asked["rank"], world_size=world,
                            timeout=datetime.timedelta(seconds=asked["wait"]))
    data = torch.ones(1 << 20, device="cuda" if backend == "nccl" else "cpu")
    dist.all_reduce(data)
    right = bool((data == world).all())
    tell(torch=torch.__version__, right=right, seconds=round(time.monotonic() - began, 3))
except Exception as failed:
    tell(torch=torch.__version__, error=str(failed).strip().splitlines()[0][:300])
"""


def prove(shells: Sequence[ProbeStream], answers: Answers, findings: Sequence[Finding]) -> Verdict:
    """Run it on all hosts at once, `shells` in the order of ranks; the verdict on what was found before and on this."""
    outcomes: dict[str, dict[str, Any]] = {}
    for shell, question in zip(shells, _questions(shells, answers), strict=True):
        try:
            shell.send(question)
        except DeployError as failed:
            outcomes[shell.name] = {"error": failed.message}
    for shell in shells:
        try:
            if shell.name not in outcomes:
                outcomes[shell.name] = probe_answers.read("proof", shell.read(LIMIT_S))
        except DeployError as failed:
            outcomes[shell.name] = {"error": failed.message}
    verdict = judge(answers, [*findings, *_findings(outcomes, answers.request.backend)])
    return replace(verdict, groups={**verdict.groups, "proof": verdict.groups["proof"] or "ok"})


def _questions(shells: Sequence[ProbeStream], answers: Answers) -> list[dict[str, Any]]:
    plan = answers.plan
    address = f"[{plan.endpoint}]" if ":" in plan.endpoint else plan.endpoint
    same = {"backend": answers.request.backend, "url": f"tcp://{address}:{answers.request.port}", "wait": WAIT_S}
    # Nodes that are processes of one machine all have its interface.
    question = next(iter(plan.data.values()))
    names = [plan.data.get(shell.name, question).interface for shell in shells]
    own = [{"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"} for name in names]
    return [{**same, "world": len(own), "rank": rank, "environment": given} for rank, given in enumerate(own)]


def _findings(outcomes: dict[str, dict[str, Any]], backend: str) -> list[Finding]:
    if any(answer.get("torch") == "" for answer in outcomes.values()):
        text = "there is no torch where training will run: nothing was proved by a real all_reduce"
        return [Finding("no-proof", "proof", tuple(outcomes), text, level="warning")]
    bad = {host: answer for host, answer in outcomes.items() if not answer.get("right")}
    if not bad:
        return []
    evidence = tuple(f"{host}: {answer.get('error') or 'a wrong sum'}" for host, answer in bad.items())
    text = f"a real all_reduce ({backend}, 4 MB) failed, though every check passed"
    fix = f"{FAB} preflight --keep FILE keeps all answers; please report them with the evidence"
    return [Finding("proof-failed", "proof", tuple(bad), text, evidence, "training would fail the same way", fix)]
