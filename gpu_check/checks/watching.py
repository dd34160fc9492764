"""A script's ranks are watched from inside (MUSTER_OBSERVE): what it costs, and that it changes and awaits nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from ..bench import Bench
from ..finding import Finding, judge, untried
from ..nodes import HOME, Run, lines
from ..turns import Contender, clearly_below, in_turns, spread
from ..weights import differences

TITLE, LIMIT_S = "watching a script's ranks", 110
SWITCH = "MUSTER_OBSERVE"
STEPS, PAIRS = 200, 10
# The figure for publication is benchmarks/'s, of more pairs; this one is short, and finds what is gross.
LEAST_RATIO = 0.97
_END_S = 70.0


def run(bench: Bench) -> Iterator[Finding]:
    """The same script watched and not: its weights, with a GPU also whether it waits, and its steps in turns."""
    if not observer_there():
        yield untried("watching", f"this checkout's trainer has no {SWITCH}")
        return
    with ExitStack() as stack:
        saved = {switch: bench.folder / f"weights-{switch}.pt" for switch in ("0", "1")}
        runs = {switch: stack.enter_context(_loop(bench, switch, STEPS, str(saved[switch]))) for switch in saved}
        strict = stack.enter_context(_loop(bench, "1", STEPS, "", "strict")) if bench.gpus else None
        for one in runs.values():
            one.finish(_END_S)
        yield _same_weights(saved)
        if strict:
            strict.wait(lambda: None not in strict.codes(), "its end", _END_S)
            good = strict.codes() == [0]
            text = "no operation waited" if good else f"exit codes {strict.codes()}"
            words = "" if good else strict.last_words()
            finding = judge("watched under set_sync_debug_mode('error')", good, text, "the script ends well")
            yield Finding(finding.what, finding.state, finding.measured, finding.expected, {}, words)
        else:
            yield untried("watched under set_sync_debug_mode('error')", "no GPU")
    yield from _cost(bench)


def observer_there() -> bool:
    """Whether this checkout's trainer knows the switch."""
    return any(SWITCH in path.read_text() for path in (HOME / "trainer").rglob("*.py"))


def _loop(bench: Bench, switch: str, steps: int, *more: str) -> Run:
    exact = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", SWITCH: switch}
    name = f"loop-{switch}-{steps}{'-strict' if 'strict' in more else ''}"
    return bench.node(name, bench.script("loop", bench.backend, str(steps), *more), exact)


def _same_weights(saved: dict[str, Any]) -> Finding:
    import torch

    plain, watched = (torch.load(saved[switch], map_location="cpu", weights_only=True) for switch in ("0", "1"))
    apart = differences(plain, watched)
    return judge("weights, watched and not", not apart, ", ".join(apart[:3]) or "bit-identical", "bit-identical")


def _cost(bench: Bench) -> Iterator[Finding]:
    with ExitStack() as stack:
        contenders = {}
        for switch in ("0", "1"):
            one = stack.enter_context(_loop(bench, switch, 0))

            def told(one: Run = one) -> list[dict[str, Any]]:
                return lines(one.folder / "logs" / "master.log")

            contenders[switch] = Contender(one, told)
        bench.say("watched and not, in turns")
        taken = in_turns(contenders, PAIRS)
    pairs = [plain / watched for plain, watched in zip(taken["0"], taken["1"], strict=False)]
    if len(pairs) < PAIRS // 2:
        yield judge("cost of watching", False, f"{len(pairs)} pairs", f"{PAIRS} pairs")
        return
    measured = f"{statistics.median(pairs):.3f}x ({min(pairs):.3f}-{max(pairs):.3f}): {spread(taken['1'])}"
    good = not clearly_below(pairs, LEAST_RATIO)
    yield judge("cost of watching, steps/s", good, measured, f">= {LEAST_RATIO}x, or not clearly less", pairs=pairs)
