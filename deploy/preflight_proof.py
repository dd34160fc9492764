"""The proof that green means go: a real all_reduce in the containers, with a short deadline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.errors import DeployError
from deploy.host_facts import HostFacts
from deploy.inventory import Job
from deploy.preflight import Answers, Finding
from deploy.preflight_hosts import in_container
from deploy.session import Session, on_all

WAIT_S, LIMIT_S = 30, 90
# The store meets as torchrun's does; 4 MB is more than any buffer on the way holds.
_PROGRAM = """
import datetime, json, os, sys, time
def tell(**said):
    os.write(1, (json.dumps(said) + "\\n").encode()); os._exit(0)
try:
    import torch, torch.distributed as dist
except ImportError as failed:
    tell(torch="", error=str(failed))
backend, url, rank, world, wait = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
try:
    if backend == "nccl":
        torch.cuda.set_device(0)
    began = time.monotonic()
    dist.init_process_group(backend, init_method=url, rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=wait))
    data = torch.ones(1 << 20, device="cuda" if backend == "nccl" else "cpu")
    dist.all_reduce(data)
    right = bool((data == world).all())
    tell(torch=torch.__version__, right=right, seconds=round(time.monotonic() - began, 3))
except Exception as failed:
    tell(torch=torch.__version__, error=str(failed).strip().splitlines()[0][:300])
"""


def prove(
    sessions: Sequence[Session], facts: Mapping[str, HostFacts], job: Job, image: str, answers: Answers
) -> list[Finding]:
    """Run it on all hosts at once; nothing to say where every host got the right sum."""
    plan, order = answers.plan, [session.host.name for session in sessions]
    address = f"[{plan.endpoint}]" if ":" in plan.endpoint else plan.endpoint
    url = f"tcp://{address}:{answers.want.port}"

    def run(session: Session) -> dict[str, Any]:
        name = plan.data[session.host.name].interface
        rank, world = str(order.index(session.host.name)), str(len(order))
        *head, last = in_container(facts[session.host.name], session, job, image)
        variables = ["--env", f"GLOO_SOCKET_IFNAME={name}", "--env", f"NCCL_SOCKET_IFNAME=={name}"]
        entry = head.index("--entrypoint")
        argv = [*head[:entry], *variables, *head[entry:], last, "-c", _PROGRAM, answers.want.backend, url]
        done = session.run([*argv, rank, world, str(WAIT_S)], timeout_s=LIMIT_S, check=False)
        try:
            return dict(json.loads(done.out.strip().splitlines()[-1]))
        except (ValueError, IndexError):
            said = (done.err.strip() or done.out.strip() or "it said nothing").splitlines()[-1]
            raise DeployError(f"ended with code {done.code}: {said}") from None

    said = on_all(sessions, run)
    outcomes = {host: value.get("error", "") for host, value in said.values.items()}
    outcomes |= {host: fault.message for host, fault in said.faults.items()}
    if any(value.get("torch") == "" for value in said.values.values()):
        text = f"{image} has no torch: nothing was proved by a real all_reduce"
        return [Finding("no-proof", "proof", tuple(outcomes), text, level="warning")]
    bad = {host: words for host, words in outcomes.items() if words or said.values[host].get("right") is False}
    if not bad:
        return []
    evidence = tuple(f"{host}: {words or 'a wrong sum'}" for host, words in bad.items())
    text = f"a real all_reduce ({answers.want.backend}, 4 MB) failed, though every check passed"
    fix = "fab preflight --json keeps all answers; please report them with the evidence"
    return [Finding("proof-failed", "proof", tuple(bad), text, evidence, "training would fail the same way", fix)]
