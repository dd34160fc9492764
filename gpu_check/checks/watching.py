"""Watch a script's ranks from inside (MUSTER_OBSERVE): the cost, and that it changes nothing and never waits."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks.figure import spread

from ..bench import Bench
from ..finding import NOT_MET, Finding, judge, untried
from ..nodes import HOME, Run
from ..turns import Contender, clearly_below, in_turns
from ..weights import differences

TITLE, LIMIT_S = "watching a script's ranks", 110
SWITCH = "MUSTER_OBSERVE"
STEPS, PAIRS = 100, 10
# benchmarks/ has the figure to publish, from more pairs; this check is short and finds only large costs.
LEAST_RATIO = 0.97
_END_S = 70.0


def run(bench: Bench) -> Iterator[Finding]:
    """The same script watched and not: its weights, on a GPU also whether it waits, and its steps in turns."""
    if not observer_there():
        yield untried("watching", f"this checkout's trainer has no {SWITCH}")
        return
    with ExitStack() as stack:
        saved = {switch: bench.folder / f"weights-{switch}.pt" for switch in ("0", "1")}
        runs = {switch: stack.enter_context(_loop(bench, switch, STEPS, str(saved[switch]))) for switch in saved}
        strict = {s: stack.enter_context(_loop(bench, s, STEPS, "", "strict")) for s in (saved if bench.gpus else ())}
        for run in runs.values():
            run.finish(_END_S)
        yield _same_weights(saved)
        yield _never_waits(strict)
    yield from _cost(bench)


def observer_there() -> bool:
    """Whether this checkout's trainer knows the switch."""
    return any(SWITCH in path.read_text() for path in (HOME / "trainer").rglob("*.py"))


def _loop(bench: Bench, switch: str, steps: int, *more: str) -> Run:
    exact = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", SWITCH: switch}
    name = f"loop-{switch}-{steps}{'-strict' if 'strict' in more else ''}"
    return bench.node(name, bench.script("loop", bench.backend, str(steps), *more), exact)


def _never_waits(strict: Mapping[str, Run]) -> Finding:
    """Whether the script runs under torch's own ban on waiting for the GPU, watched and not."""
    what = "watched under set_sync_debug_mode('error')"
    for run in strict.values():
        run.wait(lambda run=run: None not in run.codes(), "its end", _END_S)  # type: ignore[misc]
    codes = {switch: run.codes() for switch, run in strict.items()}
    if codes.get("0") != [0]:
        return untried(what, "the script fails without being watched" if codes else "no GPU")
    if codes["1"] == [0]:
        return judge(what, True, "no operation waited", "the script ends well")
    return Finding(what, NOT_MET, f"exit codes {codes['1']}", "the script ends well", {}, strict["1"].last_words())


def _same_weights(saved: dict[str, Any]) -> Finding:
    import torch

    plain, watched = (torch.load(saved[switch], map_location="cpu", weights_only=True) for switch in ("0", "1"))
    apart = differences(plain, watched)
    return judge("weights, watched and not", not apart, ", ".join(apart[:3]) or "bit-identical", "bit-identical")


def _cost(bench: Bench) -> Iterator[Finding]:
    with ExitStack() as stack:
        contenders = {}
        for switch in ("0", "1"):
            run = stack.enter_context(_loop(bench, switch, 0))
            contenders[switch] = Contender(run, run.console_lines)
        bench.say("watched and not, in turns")
        taken = in_turns(contenders, PAIRS)
    pairs = [plain / watched for plain, watched in zip(taken["0"], taken["1"], strict=False)]
    if len(pairs) < PAIRS // 2:
        yield judge("cost of watching", False, f"{len(pairs)} pairs", f"{PAIRS} pairs")
        return
    measured = f"{statistics.median(pairs):.3f}x ({min(pairs):.3f}-{max(pairs):.3f}): {spread(taken['1'])} ms"
    good = not clearly_below(pairs, LEAST_RATIO)
    yield judge("cost of watching, steps/s", good, measured, f">= {LEAST_RATIO}x, or not clearly less", pairs=pairs)
