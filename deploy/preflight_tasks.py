"""`fab preflight`: the task, its table and its exit codes; the work is in preflight_launch.py."""

from __future__ import annotations

import json as jsons
from pathlib import Path

from fabric import Connection, task
from invoke.exceptions import Exit

from deploy import inventory, preflight_launch, preflight_lines, task_end
from deploy.errors import DONE, FAILED, REFUSED, UsageError
from deploy.preflight import Want
from deploy.report import Report

STYLES, BACKENDS = ("muster", "torchrun"), ("gloo", "nccl")


@task(
    help={
        "hosts": "user@a:port,b; the first one hosts the rendezvous",
        "cluster": "a file as cluster.toml; default: the one of this folder",
        "image": "look from inside this image (default: what fab deploy would take)",
        "style": "muster (as fab deploy starts a run) or torchrun (as you type it yourself)",
        "endpoint": "where the nodes shall meet: an address or a name (default: as fab deploy chooses)",
        "port": "the rendezvous port (default: 29500, or the next free one)",
        "backend": "gloo or nccl: whose choices to foresee, and to prove (default: gloo)",
        "nc": "also the matrix that `nc -vz` would give, from each host to each",
        "bandwidth": "measure every pair, in rounds that do not disturb each other; show the matrix",
        "quick": "no real all_reduce at the end",
        "strict": "warnings end with code 1",
        "json": "the verdict as one JSON object on standard output",
        "keep": "write all answers to this file as well",
    }
)  # type: ignore[untyped-decorator]
def preflight(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    image: str = "",
    style: str = "muster",
    endpoint: str = "",
    port: str = "",
    backend: str = "gloo",
    nc: bool = False,
    bandwidth: bool = False,
    quick: bool = False,
    strict: bool = False,
    json: bool = False,
    keep: str = "",
) -> None:
    """Say whether training would start on these hosts; if not, the one cause and its fix."""
    report = Report(json)

    def work() -> int:
        if getattr(context, "host", None):
            raise UsageError("--hosts stands before the task's name", "write it behind: fab preflight --hosts a,b")
        if style not in STYLES or backend not in BACKENDS or not (port or "1").isdigit():
            raise UsageError(
                f"--style {style} --backend {backend} --port {port}", "muster|torchrun, gloo|nccl, a number"
            )
        path = Path(cluster) if cluster else Path("cluster.toml")
        known = inventory.load(hosts, path if cluster or (not hosts and path.is_file()) else None)
        want = Want(style=style, endpoint=endpoint, port=int(port or 29500), backend=backend)  # type: ignore[arg-type]
        answers, verdict = preflight_launch.preflight(known, image, want, not quick, bandwidth)
        if keep:
            Path(keep).write_text(jsons.dumps(answers.json()))
        report.data({**verdict.json(), **({"nc": list(preflight_lines.matrix(answers))} if nc else {})})
        for line in [
            *preflight_lines.told(verdict),
            *(preflight_lines.matrix(answers) if nc else ()),
            *preflight_lines.heat(answers),
        ]:
            report.text(line)
        if not verdict.ok:
            return REFUSED
        return FAILED if strict and verdict.warnings else DONE

    raise Exit(code=task_end.code_of(report, work))
