"""`fab preflight`: its options, output and exit codes. hosts/preflight.py does the work."""

from __future__ import annotations

import json as jsons
import os
import time
from dataclasses import replace
from pathlib import Path

from fabric import Connection
from invoke.exceptions import Exit

from ..config import cluster_file, values
from ..core.errors import DONE, FAILED, REFUSED, USAGE, DeployError, UsageError
from ..core.near import near
from ..core.program import FAB
from ..hosts import preflight as preflight_launch
from ..hosts.preflight import PreflightOptions
from ..job.options import help_of
from ..preflight import PreflightRequest
from ..preflight.probe.rehearsal import LONG
from ..preflight.request import MUSTER, STYLES
from ..report import preflight_text
from ..report.console import Console
from ..report.interrupts import Interrupts
from . import exit
from .command import ALLOW, Command, command

COLLECTIVES = ("auto", "gloo", "nccl")
UNTOUCHED = "nothing was changed, and nothing is left of it anywhere"
MOST_SIZE = 16 << 30
LEAST_BURN_S, MOST_BURN_S = 5, 3600
_LOADED = time.monotonic()


class _OneObject(Command):
    """With --json, standard output is the verdict alone."""

    def asker(self, as_json: bool) -> Console:
        """What the folder asks for stands on standard error."""
        console = Console(as_json)
        console.data = lambda value: None  # type: ignore[method-assign]
        return console


@command(
    klass=_OneObject,
    example=(f"{FAB} preflight --hosts gpu-a,gpu-b", f"{FAB} preflight --backend auto --workers 2"),
    codes={
        DONE: "ready: the nodes will find each other",
        FAILED: "a file could not be written; with --strict, there are warnings",
        USAGE: "an option was refused: no host was asked",
        REFUSED: "training would not start: the output names the one cause and its fix",
    },
    help={
        "backend": f"look at this machine, for `{FAB} up`: auto, docker or processes (default: look at real hosts)",
        "workers": "with --backend: nodes beside the master (default: 2)",
        "image": f"look from inside this image (default: the one {FAB} deploy would take)",
        "style": f"what starts the run: muster ({FAB} deploy), torchrun (typed by you), slurm or mpi (default: muster)",
        "python": "with another --style: the Python on the hosts that has your torch (default: python3)",
        "size": "how many bytes the rehearsal's long all_reduce sums (default: 20m)",
        "endpoint": f"where the nodes meet: an address or a name (default: the one {FAB} deploy chooses)",
        "port": "the rendezvous port (default: 29500, or the next free one)",
        "collectives": "what to predict and rehearse: gloo, nccl, or auto: nccl if hosts have GPUs (default: auto)",
        "nc": "also print what `nc -vz` would say, from each host to each",
        "bandwidth": "measure the bandwidth of every pair, and print it",
        "burn": "load all GPUs for this many seconds and measure each (default: 0, which leaves it out)",
        "quick": "leave out the rehearsal at the end",
        "strict": "end with code 1 if there are warnings",
        "json": "write the verdict as one JSON object to standard output",
        "keep": "also write all answers to this file (default: none)",
        "html": "also write a page to this file: the verdict, who reaches whom, each host (default: none)",
        **help_of("preflight"),
        **ALLOW,
    },
)
def preflight(
    context: Connection,
    hosts: str = "",
    backend: str = "",
    workers: str = "",
    cluster: str = "",
    image: str = "",
    style: str = "muster",
    python: str = "",
    size: str = "",
    endpoint: str = "",
    port: str = "",
    collectives: str = "auto",
    nc: bool = False,
    bandwidth: bool = False,
    burn: str = "",
    quick: bool = False,
    strict: bool = False,
    json: bool = False,
    keep: str = "",
    html: str = "",
) -> None:
    """Say whether training would start; if not, name the one cause and its fix."""
    console = Console(json)
    files = {option: name for option, name in (("keep", keep), ("html", html)) if name}

    def work() -> int:
        if getattr(context, "host", None):
            raise UsageError("--hosts must follow the task's name", f"for example: {FAB} preflight --hosts a,b")
        request = _request(style, endpoint, port, collectives)
        long, burnt_s = _size(size), _burn(burn)
        if python and style == MUSTER:
            why = f"--python {python}: {FAB} deploy starts the image's Python"
            raise UsageError(why, "--style torchrun or --style slurm or --style mpi")
        for option, name in files.items():
            _refuse_unwritable(option, name)
        if backend in COLLECTIVES[1:]:  # torch's word for them
            raise UsageError(f"--backend {backend}: it says where the nodes run", f"--collectives {backend}")
        if backend or workers:
            plain = "" if style == MUSTER else f"--style {style}"
            _refuse_both(hosts, cluster, image, endpoint, plain, "--bandwidth" * bandwidth, "--burn" * bool(burn))
        cluster_asked = None if backend or workers else cluster_file.load(hosts, cluster)
        with Interrupts(console, "looking", UNTOUCHED), console.waiting("preflight") as say:
            asked = PreflightOptions(request, not quick, bandwidth, long, python or "python3", say, burn=burnt_s)
            if cluster_asked is None:
                from ..local import preflight as preflight_here  # 0.1 s that a look at real hosts does not wait for

                answers, verdict = preflight_here.preflight(workers, backend or "auto", request, not quick, say)
            else:
                answers, verdict = preflight_launch.preflight(cluster_asked, image, asked)
        left_out = verdict.not_rehearsed or "--quick leaves the rehearsal out" * quick
        verdict = replace(verdict, seconds=round(_waited(), 1), not_rehearsed=left_out)
        matrix = list(preflight_text.matrix(answers)) if nc else []
        backend_used = answers.request.backend
        console.data({**verdict.json(), "backend": backend_used, **({"nc": matrix} if nc else {}), **files})
        for line in [*preflight_text.lines_of(verdict, backend_used), *matrix, *preflight_text.heat(answers)]:
            console.text(line)
        if keep:
            _write("keep", keep, jsons.dumps(answers.json()))
        if html:
            from ..report.page import preflight as preflight_page  # for the same reason

            _write("html", html, preflight_page.build(answers, verdict))
        for option, name in files.items():
            console.text(f"{option:<8}{name}")
        if not verdict.ok:
            return REFUSED
        return FAILED if strict and verdict.warnings else DONE

    raise Exit(code=exit.code_of(console, work))


def _waited() -> float:
    """Seconds since this process began: the user has waited for its start, too."""
    try:
        began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, AttributeError, IndexError):
        return time.monotonic() - _LOADED


def _size(text: str) -> int:
    """--size in bytes. Raises UsageError for other text, and for a size beyond every GPU's memory."""
    size = values.size(text) if text else LONG
    if size is None or not 4 <= size <= MOST_SIZE:
        raise UsageError(f"--size {text}: not a size up to {MOST_SIZE >> 30}g", "--size 200m")
    return size


def _burn(text: str) -> int:
    """--burn in seconds. Raises UsageError for what is no number of them, and beyond an hour."""
    if text and not (text.isdecimal() and LEAST_BURN_S <= int(text) <= MOST_BURN_S):
        raise UsageError(f"--burn {text}: not a number of seconds from {LEAST_BURN_S} to {MOST_BURN_S}", "--burn 60")
    return int(text or 0)


def _refuse_both(*for_hosts: str) -> None:
    """Raise UsageError where an option for real hosts stands beside --backend."""
    if option := next(filter(None, for_hosts), ""):
        raise UsageError(f"--backend is for this machine, but {option} is for real hosts", "leave one of them out")


def _request(style: str, endpoint: str, port: str, collectives: str) -> PreflightRequest:
    """The request that the options make. Raises UsageError for an unknown value."""
    for option, value, known in (("style", style, STYLES), ("collectives", collectives, COLLECTIVES)):
        if value not in known:
            words = f"--{option} {value}: not one of {', '.join(known)}"
            raise UsageError(words, f"--{option} {near(value, known) or known[0]}")
    if not (port or "1").isdigit():
        raise UsageError(f"--port {port}: not a port", "--port 29500, or leave it out")
    return PreflightRequest(style=style, endpoint=endpoint, port=int(port or 29500), backend=collectives)  # type: ignore[arg-type]


def _refuse_unwritable(option: str, name: str) -> None:
    """Raise UsageError, before any host is asked, if the file could not be written later."""
    path = Path(name)
    why = "is a folder" if path.is_dir() else "" if path.parent.is_dir() else f"there is no folder {path.parent}"
    if not why and not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "may not be written"
    if why:
        raise UsageError(f"--{option} {name}: {why}", "name a file in a folder that you may write to")


def _write(option: str, name: str, text: str) -> None:
    try:
        Path(name).write_text(text, "utf-8")
    except OSError as failed:
        raise DeployError(
            f"--{option} {name}: {failed.strerror}", "the verdict above is valid; name another file"
        ) from None
