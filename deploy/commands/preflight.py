"""Check the options of `muster preflight`, run it, and print the result.

hosts/start/preflight.py does the work; check.py has the command's help.
"""

from __future__ import annotations

import json as jsons
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..core.errors import DONE, FAILED, REFUSED, DeployError, UsageError
from ..core.suggest import near_match
from ..hosts.start import preflight as preflight_launch
from ..hosts.start.preflight import PreflightOptions
from ..job.load import known_cluster, value_of
from ..job.options import FLAG, Options, flag_of
from ..preflight import PreflightRequest
from ..preflight.answers import Answers
from ..preflight.probe.rehearsal import LONG
from ..preflight.request import MUSTER, STYLES
from ..preflight.verdict import Verdict
from ..report import preflight_text
from ..report.console import Console
from ..report.interrupts import Interrupts

UNTOUCHED = "nothing was changed, and nothing is left on any host"
_LOADED = time.monotonic()


def preflight(options: Options, console: Console) -> int:
    """Run the checks and the rehearsal, print the verdict, and return the exit code."""
    files = {name: path for name, path in (("keep", "".join(options.keep)), ("html", options.html)) if path}
    here = bool(options.backend or options.workers)
    request = _request(options)
    size, workers = value_of(options, "size") or LONG, value_of(options, "workers")
    for name, path in files.items():
        _refuse_unwritable(flag_of(name), path)
    if options.backend in ("gloo", "nccl"):  # torch calls these backends; here --backend means something else
        words = f"{FLAG.backend} {options.backend}: it says where the nodes run"
        raise UsageError(words, f"{FLAG.collectives} {options.backend}")
    cluster = None if here else known_cluster(options)
    with Interrupts(console, "looking", UNTOUCHED), console.waiting("preflight") as say:
        if cluster is None:
            from ..local import preflight as preflight_here  # takes 0.1 s, and real hosts do not need it

            where = options.backend or "auto"
            answers, verdict = preflight_here.preflight(workers, where, request, not options.quick, say)
        else:
            asked = PreflightOptions(
                request, not options.quick, options.bandwidth, size, options.python or "python3", say
            )
            answers, verdict = preflight_launch.preflight(cluster, options.image, asked)
    left_out = verdict.not_rehearsed or f"{FLAG.quick} skips the rehearsal" * options.quick
    verdict = replace(verdict, seconds=round(_waited(), 1), not_rehearsed=left_out)
    _show(answers, verdict, options, files, console)
    if not verdict.ok:
        return REFUSED
    return FAILED if options.strict and verdict.warnings else DONE


def _waited() -> float:
    """Seconds since this process began: the user has also waited for its start."""
    if sys.platform != "linux":
        return time.monotonic() - _LOADED
    try:
        began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _LOADED


def _show(answers: Answers, verdict: Verdict, options: Options, files: Mapping[str, str], console: Console) -> None:
    """Print the verdict and write the files. Raises DeployError if a file can no longer be written."""
    matrix = list(preflight_text.matrix(answers)) if options.nc else []
    backend = answers.request.backend
    console.data({**verdict.json(), "backend": backend, **({"nc": matrix} if options.nc else {}), **files})
    for line in [*preflight_text.lines_of(verdict, backend), *matrix, *preflight_text.heat(answers)]:
        console.text(line)
    for name, path in files.items():
        if name == "keep":
            _write(flag_of(name), path, jsons.dumps(answers.json()))
        else:
            from ..report.page import preflight as preflight_page  # takes 0.1 s, and only --html needs it

            _write(flag_of(name), path, preflight_page.build(answers, verdict))
    for name, path in files.items():
        console.text(f"{name:<8}{path}")


def _request(options: Options) -> PreflightRequest:
    """Make the request from the options. Raises UsageError for an unknown value."""
    style = options.style or MUSTER
    if style not in STYLES:
        words = f"{FLAG.style} {style}: not one of {', '.join(STYLES)}"
        raise UsageError(words, f"{FLAG.style} {near_match(style, STYLES) or STYLES[0]}")
    port, backend = value_of(options, "port") or PreflightRequest.port, value_of(options, "collectives") or "auto"
    return PreflightRequest(style=style, endpoint=options.endpoint, port=port, backend=backend)  # type: ignore[arg-type]


def _refuse_unwritable(flag: str, name: str) -> None:
    """Raise UsageError, before any host is asked, if a file could not be written later."""
    path = Path(name)
    why = "is a folder" if path.is_dir() else "" if path.parent.is_dir() else f"there is no folder {path.parent}"
    if not why and not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "may not be written"
    if why:
        raise UsageError(f"{flag} {name}: {why}", "name a file in a folder that you may write to")


def _write(flag: str, name: str, text: str) -> None:
    try:
        Path(name).write_text(text, "utf-8")
    except OSError as failed:
        raise DeployError(
            f"{flag} {name}: {failed.strerror}", "the verdict above is valid; name another file"
        ) from None
