"""A link between two ranks goes dead, or a rank hangs, while they train: is it noticed, how soon, and what is said?"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .. import network
from ..bench import Bench
from ..finding import Finding, judge, untried
from ..network import Place
from ..nodes import Run
from .kill import later, reached

TITLE, LIMIT_S = "a dead link, and a rank that hangs", 130
TIMEOUT_S = 6
# After the collective's timeout: a watchdog looks once a second or so, writes its dump, and ends the process.
NOTICE_S = TIMEOUT_S + 30
_START_S, _END_S = 60.0, 60.0
_ENDLESS = 1_000_000


def run(bench: Bench) -> Iterator[Finding]:
    """The same run twice, at the same time: one loses its link, in the other a rank is stopped."""
    why = network.allowed()
    with ExitStack() as stack:
        hung = stack.enter_context(_training(bench, "hung", [Place(), Place()]))
        if why:
            yield untried("a dead link between hosts", f"{why}; a stopped rank takes its place")
        else:
            apart = stack.enter_context(network.hosts_apart(2))
            cut = stack.enter_context(_training(bench, "cut", apart.places))
        yield from _stop_a_rank(bench, hung)
        hung.kill()
        if not why:
            yield from _cut_the_link(bench, cut, apart)


def _training(bench: Bench, name: str, places: Sequence[Place]) -> Run:
    arguments = bench.training("steady", _ENDLESS, "--checkpoint-every", "20", "--timeout", str(TIMEOUT_S))
    # A rank that is stopped does not hear that it is to end: torchrun would wait for the whole of its usual patience.
    more = {"PET_SHUTDOWN_TIMEOUT": "5", **recorder(bench.folder / f"{name}-dump-")}
    return bench.hosts(name, arguments, places, variables=more)


def recorder(prefix: Path) -> dict[str, str]:
    """Variables for NCCL's flight recorder, by the names of torch 2.8 and of later ones."""
    return {
        **{"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
        **{"TORCH_FR_DUMP_TEMP_FILE": str(prefix), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(prefix)},
        **{"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"},
    }


def _stop_a_rank(bench: Bench, run: Run) -> Iterator[Finding]:
    run.wait(lambda: reached(run, 20), "a checkpoint at step 20", _START_S)
    victim = int(run.events(1, "started")[0]["pid"])
    bench.say(f"rank 1 (process {victim}) is stopped")
    moment = time.time()
    os.kill(victim, signal.SIGSTOP)
    noticed = run.wait(lambda: later(run, 0, "ended", moment, 0), "rank 0 to notice", NOTICE_S)
    yield _noticed("a rank hangs: noticed", noticed, moment)
    yield _dump(bench, "a rank hangs: flight recorder", "hung")
    back = run.wait(lambda: later(run, 1, "step", moment, 2), "the hung rank to be replaced", _END_S, restart=True)
    yield judge("a rank hangs: training goes on", True, f"{back['t'] - moment:.1f} s after it hung")


def _cut_the_link(bench: Bench, run: Run, apart: network.Network) -> Iterator[Finding]:
    run.wait(lambda: reached(run, 20), "a checkpoint at step 20", _START_S)
    bench.say("the link of host 2 is cut")
    moment = time.time()
    apart.cut(1)
    noticed = run.wait(lambda: later(run, 0, "ended", moment, 0), "rank 0 to notice", NOTICE_S)
    yield _noticed("dead link: noticed", noticed, moment)
    yield _dump(bench, "dead link: flight recorder", "cut")
    apart.mend(1)
    mended, starts = time.time(), len(run.events(0, "started"))
    bench.say("the link is back")
    back = run.wait(lambda: later(run, 0, "step", mended, starts + 1), "training to go on", _END_S, restart=True)
    yield judge("dead link: training goes on once it is back", True, f"{back['t'] - mended:.1f} s later")


def _noticed(what: str, event: dict[str, Any], moment: float) -> Finding:
    seconds = event["t"] - moment
    said = f"{event['how']}: {event['error']}" if event.get("error") else event["how"]
    good = seconds <= NOTICE_S
    return judge(what, good, f"{seconds:.1f} s: rank 0 {said}"[:300], f"<= {NOTICE_S} s", seconds=round(seconds, 2))


def _dump(bench: Bench, what: str, name: str) -> Finding:
    if not bench.gpus:
        return untried(what, "gloo writes no dump by itself")
    dumps = {path.name: path.stat().st_size for path in bench.folder.glob(f"{name}-dump-*")}
    return judge(what, any(dumps.values()), ", ".join(dumps) or "no dump", "a dump of rank 0", files=dumps)
