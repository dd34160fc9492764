"""Watching a script's ranks from inside (MUSTER_OBSERVE): what it costs, that it changes nothing and never waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from ..bench import Bench
from ..finding import NOT_MET, Finding, judge, untried
from ..nodes import Run
from ..turns import Contender, compare_rates, in_turns

TITLE, LIMIT_S = "watching a script's ranks", 110
SWITCH = "MUSTER_OBSERVE"
STEPS, PAIRS = 100, 10
# benchmarks/ measures the published figure, with more pairs; this check is short and finds only large costs.
LEAST_RATIO = 0.97
_END_S = 70.0


def run(bench: Bench) -> Iterator[Finding]:
    """The same script with and without watching: its weights, its steps in turns, and on a GPU whether it waits."""
    with ExitStack() as stack:
        plain, watched = (stack.enter_context(_loop(bench, switch, STEPS)) for switch in ("0", "1"))
        strict = {s: stack.enter_context(_loop(bench, s, STEPS, "strict")) for s in ("0", "1") if bench.gpus}
        plain.finish(_END_S)
        watched.finish(_END_S)
        good = plain.records_of_ranks() == watched.records_of_ranks() != []
        yield judge("weights, watched and not", good, "bit-identical" if good else "they differ", "bit-identical")
        yield _never_waits(strict)
    yield from _cost(bench)


def _loop(bench: Bench, switch: str, steps: int, *more: str) -> Run:
    exact = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", SWITCH: switch}
    name = f"loop-{switch}-{steps}{'-strict' if 'strict' in more else ''}"
    return bench.node(name, bench.script("loop", bench.backend, str(steps), *more), exact)


def _never_waits(strict: Mapping[str, Run]) -> Finding:
    """Whether the script runs under torch's own ban on waiting for the GPU, with and without watching."""
    what = "watched under set_sync_debug_mode('error')"
    for run in strict.values():
        run.wait(lambda run=run: None not in run.codes(), "its end", _END_S)  # type: ignore[misc]
    codes = {switch: run.codes() for switch, run in strict.items()}
    if codes.get("0") != [0]:
        return untried(what, "the script fails without being watched" if codes else "no GPU")
    if codes["1"] == [0]:
        return judge(what, True, "no operation waited", "the script ends well")
    return Finding(what, NOT_MET, f"exit codes {codes['1']}", "the script ends well", {}, strict["1"].last_words())


def _cost(bench: Bench) -> Iterator[Finding]:
    with ExitStack() as stack:
        contenders = {}
        for switch in ("0", "1"):
            run = stack.enter_context(_loop(bench, switch, 0))
            contenders[switch] = Contender(run, run.console_lines)
        bench.say("watched and not, in turns")
        taken = in_turns(contenders, PAIRS)
    yield compare_rates("cost of watching, steps/s", taken["1"], taken["0"], PAIRS, LEAST_RATIO)
