"""Ranks are forked from a process that has imported torch but used no GPU: CUDA works in them with any script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from ..bench import Bench
from ..finding import Finding, judge, untried

TITLE, LIMIT_S = "forked ranks with CUDA", 90
_END_S = 80.0
POISON = "Cannot re-initialize CUDA"
# Each script, and what it tries.
SCRIPTS = {
    "meet": "a plain script",
    "early": "a script that touches the GPU on import",
    "loading": "a DataLoader with workers and pinned memory",
}


def run(bench: Bench) -> Iterator[Finding]:
    """Run each script under an agent, all together; then one under torch's own torchrun, which does not fork ranks."""
    with ExitStack() as stack:
        runs = {
            name: stack.enter_context(bench.node(f"forked-{name}", bench.script(name, bench.backend)))
            for name in SCRIPTS
        }
        plain = {"MUSTER_PLAIN_TORCHRUN": "1"}
        started = stack.enter_context(bench.node("started", bench.script("meet", bench.backend), plain))
        for name, run in runs.items():
            run.finish(_END_S)
            seen, poisoned = run.records_of_ranks(), POISON in run.logs()
            good = len(seen) == 1 and seen[0]["forked"] and not seen[0]["cuda_before"] and not poisoned
            text = f"forked: {seen[0]['forked']}, on {seen[0]['device']}" if seen else "it left no word"
            yield judge(SCRIPTS[name], good, f"{POISON}!" if poisoned else text, "forked: True, no CUDA before")
        started.finish(_END_S)
        seen = started.records_of_ranks()
        good = len(seen) == 1 and not seen[0]["forked"]
        yield judge("the same with MUSTER_PLAIN_TORCHRUN=1", good, f"forked: {seen[0]['forked']}", "forked: False")
    if not bench.gpus:
        yield untried("CUDA in forked ranks", "no GPU")
