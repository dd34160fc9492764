"""Run real torchrun on the hosts of a laboratory, as a user or as `muster deploy` starts it; returns how it went.

The timeouts are shorter than torch's own, so that a fault is over in half a minute: 15 s instead of 60 s for the
rendezvous store, 15 s instead of 30 minutes for the process group.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.run import environment
from lab.fault import MUSTER
from lab.network import PORT

HERE = Path(__file__).resolve().parent
FINE, SLOW, FAILS = "fine", "slow", "fails"
PATIENCE_S, DEADLINE_S, LAST_WORDS_S = 15, 50, 20
# Slower than this, compared with a healthy run, is a fault (the required figure), and not the noise of a busy machine.
SLOW_TIMES, SLOW_LEAST_S = 3.0, 0.5


@dataclass(frozen=True)
class Ran:
    """The result of a job.

    codes: the exit codes by host, None if the node hung and was ended. round_s: seconds for one all_reduce.
    """

    outcome: str
    codes: tuple[int | None, ...]
    round_s: float | None
    seconds: float
    texts: dict[str, str]


def endpoint(lab, fault):
    """The endpoint that the nodes are given."""
    first = lab.hosts[0]
    if fault.endpoint == "name":
        return first.name
    return fault.endpoint if fault.endpoint != "address" else first.address


def command(lab, fault, place, script=HERE / "reduce.py"):
    """The command line of one node, and its variables."""
    meet, host, count = endpoint(lab, fault), lab.hosts[place], len(lab.hosts)
    at = f"[{meet}]:{PORT}" if ":" in meet else f"{meet}:{PORT}"
    script = [str(script), str(PATIENCE_S)]
    line = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(count), "--nproc-per-node", "1"]
    every = {"LAB_HOSTS": str(count), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if fault.style == MUSTER:
        variables = {**every, **_as_muster(host, place, count, meet, at), **host.environment}
        variables["PYTHONPATH"] = ":".join(filter(None, [host.environment.get("PYTHONPATH"), str(HERE.parent)]))
        return [sys.executable, "-u", "-P", "-m", "muster.trainer.node", "agent", "--script", *script], variables
    if fault.rendezvous == "static":
        line += ["--node-rank", str(place), "--master-addr", meet, "--master-port", str(PORT)]
        return [*line, *script], {**every, **host.environment}
    line += ["--rdzv-backend", "c10d", "--rdzv-endpoint", at, "--rdzv-id", "lab"]
    return [*line, f"--rdzv-conf=read_timeout={PATIENCE_S}", *script], {**every, **host.environment}


def _as_muster(host, place, nodes, meet, at):
    """The variables of hosts/node/container.py."""
    route = json.loads(host.run("ip", "-j", "route", "get", meet).stdout or "[{}]")[0].get("dev", "eth0")
    interface = "eth0" if route == "lo" else route
    patience = environment.RDZV_CONF.replace("join_timeout=60", f"join_timeout={PATIENCE_S}")
    return {
        "PET_NODE_RANK": str(place),
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": at,
        "PET_RDZV_ID": "lab",
        "PET_RDZV_CONF": f"is_host={int(place == 0)},{patience}",
        "PET_MAX_RESTARTS": "0",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": f"={interface}",
    }


def run(lab, fault, folder: Path, healthy_round_s=None, deadline_s=DEADLINE_S, last_words_s=LAST_WORDS_S,
        script=HERE / "reduce.py") -> Ran:  # fmt: skip
    """Start the job on all hosts, beginning with the first, and wait until it is over or the deadline has passed.

    last_words_s: how long the other nodes may continue after one has failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began, nodes = time.monotonic(), []
    for place, host in enumerate(lab.hosts):
        line, variables = command(lab, fault, place, script)
        with (folder / f"{host.name}.log").open("wb") as out:
            nodes.append(host.start(*line, env=variables, stdout=out, stderr=out, cwd=str(folder)))
    end, failed = began + deadline_s, None
    while time.monotonic() < end and any(node.poll() is None for node in nodes):
        # A failed node does not end the others: their own output is wanted, but not without a time limit.
        if any(node.poll() for node in nodes):
            failed = failed or time.monotonic()
            end = min(end, failed + last_words_s)
        time.sleep(0.1)
    seconds, codes = time.monotonic() - began, tuple(node.poll() for node in nodes)
    lab.stop()
    texts = {host.name: (folder / f"{host.name}.log").read_text(errors="replace") for host in lab.hosts}
    rounds = [
        json.loads(line[4:])["seconds"] for text in texts.values() for line in text.splitlines() if line[:4] == "LAB "
    ]
    fine = all(code == 0 for code in codes) and len(rounds) == len(nodes)
    round_s = max(rounds) if rounds else None
    slow = fine and healthy_round_s and round_s > max(SLOW_TIMES * healthy_round_s, healthy_round_s + SLOW_LEAST_S)
    return Ran(FAILS if not fine else SLOW if slow else FINE, codes, round_s, round(seconds, 1), texts)
