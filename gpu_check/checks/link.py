"""A link between two ranks goes dead, or a rank hangs, during training: do the others notice, how soon, and why?"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from trainer.node.ending.peer_errors import mentions_lost_peer
from trainer.node.processes import is_alive

from .. import network
from ..bench import Bench
from ..finding import Finding, judge, untried
from ..network import Place
from ..nodes import Run
from .kill import has_reached, step_after

TITLE, LIMIT_S = "a dead link, and a rank that hangs", 150
TIMEOUT_S = 6
# After the collective's timeout: a watchdog checks about once a second, writes its dump, and ends the process.
NOTICE_S = TIMEOUT_S + 40
_START_S, _END_S = 60.0, 60.0
_EVENT_S = 3.0  # the agent records the end of a rank a moment later
_ENDLESS = 1_000_000


def run(bench: Bench) -> Iterator[Finding]:
    """The same run twice, in parallel: one loses its link, in the other a rank is stopped."""
    why = network.why_not_allowed()
    with ExitStack() as stack:
        hung = stack.enter_context(_training(bench, "hung", [Place(), Place()]))
        if why:
            yield untried("a dead link between hosts", f"{why}; a stopped rank takes its place")
        else:
            apart = stack.enter_context(network.separate_hosts(2))
            cut = stack.enter_context(_training(bench, "cut", apart.places))
        yield from _stop_a_rank(bench, hung)
        hung.kill()
        if not why:
            yield from _cut_the_link(bench, cut, apart)


def _training(bench: Bench, name: str, places: Sequence[Place]) -> Run:
    arguments = bench.training("steady", _ENDLESS, "--checkpoint-every", "20", "--timeout", str(TIMEOUT_S))
    return bench.hosts(name, arguments, places, variables=recorder(bench.folder / f"{name}-dump-"))


def recorder(prefix: Path) -> dict[str, str]:
    """The variables for NCCL's flight recorder, with their names in torch 2.8 and in later versions."""
    return {
        **{"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
        **{"TORCH_FR_DUMP_TEMP_FILE": str(prefix), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(prefix)},
        **{"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"},
    }


def _stop_a_rank(bench: Bench, run: Run) -> Iterator[Finding]:
    run.wait(lambda: has_reached(run, 20), "a checkpoint at step 20", _START_S)
    victim = int(run.events(1, "started")[0]["pid"])
    bench.say(f"rank 1 (process {victim}) is stopped")
    moment = time.time()
    os.kill(victim, signal.SIGSTOP)
    yield _noticed("a rank hangs: noticed", run, moment)
    yield _dump(bench, "a rank hangs: flight recorder", "hung")
    back = run.wait(lambda: step_after(run, 1, moment, 2), "the hung rank to be replaced", _END_S, restart=True)
    yield judge("a rank hangs: training goes on", True, f"{back['t'] - moment:.1f} s after it hung")


def _cut_the_link(bench: Bench, run: Run, apart: network.Network) -> Iterator[Finding]:
    run.wait(lambda: has_reached(run, 20), "a checkpoint at step 20", _START_S)
    bench.say("the link of host 2 is cut")
    moment = time.time()
    apart.cut(1)
    yield _noticed("dead link: noticed", run, moment)
    yield _dump(bench, "dead link: flight recorder", "cut")
    apart.reconnect(1)
    mended, starts = time.time(), len(run.events(0, "started"))
    bench.say("the link is back")
    back = run.wait(lambda: step_after(run, 0, mended, starts + 1), "training to go on", _END_S, restart=True)
    yield judge("dead link: training goes on once it is back", True, f"{back['t'] - mended:.1f} s later")


def _noticed(what: str, run: Run, moment: float) -> Finding:
    """When rank 0 ended, and its message about a lost peer, which NCCL's watchdog writes to the rank's own log."""
    pid = int(run.events(0, "started")[0]["pid"])
    run.wait(lambda: not is_alive(pid), "rank 0 to notice", NOTICE_S)
    seconds = time.time() - moment
    line = next(filter(mentions_lost_peer, run.rank_log(0).splitlines()), "")
    limit = time.monotonic() + _EVENT_S
    while not (ended := run.events(0, "ended")) and time.monotonic() < limit:
        time.sleep(0.05)
    how = ended[0]["how"] if ended else "ended, and the agent did not see how"
    text = f"{seconds:.1f} s: rank 0 {how}; {line or 'not a word of a peer'}"
    return judge(what, bool(line), text[:250], f"<= {NOTICE_S} s, and why", seconds=round(seconds, 2), said=line)


def _dump(bench: Bench, what: str, name: str) -> Finding:
    if not bench.gpus:
        return untried(what, "gloo writes no dump by itself")
    dumps = {path.name: path.stat().st_size for path in bench.folder.glob(f"{name}-dump-*")}
    return judge(what, any(dumps.values()), ", ".join(dumps) or "no dump", "a dump of rank 0", files=dumps)
