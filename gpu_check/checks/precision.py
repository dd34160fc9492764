"""The trainer in bf16, in fp16 and with torch.compile; convolutions stay in the recipe's channels-last layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from ..bench import Bench
from ..finding import Finding, judge, untried
from ..nodes import Late, Run

TITLE, LIMIT_S = "AMP, channels-last, torch.compile", 120
STEPS_ON_GPU, STEPS_ON_CPU, WARMUP = 150, 30, 5
# CPUs emulate half precision: a step in fp16 takes a second.
FEW = ("--steps", "6", "--batch", "16")
MOST_LOSS_LEFT = 0.5
_END_S, _TRITON = 110.0, 7.0
MODES = {
    "fp32": ("float32", ("--precision", "fp32")),
    "bf16": ("bfloat16", ("--precision", "bf16")),
    "fp16": ("float16", ("--precision", "fp16")),
    "compile": ("float32", ("--compile",)),
}


def run(bench: Bench) -> Iterator[Finding]:
    """Run all modes together, each as a separate run."""
    lacking = why_no_compiler(bench)
    arguments = bench.training("inspected", STEPS_ON_GPU if bench.gpus else STEPS_ON_CPU, "--warmup", str(WARMUP))
    with ExitStack() as stack:
        runs = {
            mode: stack.enter_context(bench.node(mode, [*arguments, *options, *few_steps(bench, mode)]))
            for mode, (_, options) in MODES.items()
            if mode != "compile" or not lacking
        }
        for mode, node in runs.items():
            try:
                node.finish(_END_S)
            except Late as fault:
                yield fault.finding(mode)
                continue
            yield from _findings(bench, mode, node)
    if lacking:
        yield untried("torch.compile", lacking)


def few_steps(bench: Bench, mode: str) -> tuple[str, ...]:
    """Options for a mode that is slow on this machine: the check then only shows that the mode works."""
    return FEW if mode == "fp16" and not bench.gpus else ()


def why_no_compiler(bench: Bench) -> str:
    """Why torch.compile cannot be tried here; empty if it can."""
    compilers = set(bench.machine["compilers"])
    if not bench.gpus:
        return "" if compilers & {"g++", "clang++"} else "no C++ compiler"
    if any(float(gpu["capability"]) < _TRITON for gpu in bench.torch["gpus"][:1]):
        return f"triton needs a GPU of compute capability {_TRITON}"
    if not bench.torch["triton"]:
        return "triton is not installed"
    return "" if compilers & {"gcc", "cc", "clang++"} else "triton needs a C compiler"


def _findings(bench: Bench, mode: str, run: Run) -> Iterator[Finding]:
    wanted, record, losses = MODES[mode][0], run.records_of_ranks()[0], [line["loss"] for line in run.metrics()]
    on, left = "cuda" if bench.gpus else "cpu", losses[-1] / losses[0]
    learns = bool(few_steps(bench, mode)) or left <= MOST_LOSS_LEFT
    good = record["types"] == [wanted] and record["device"].startswith(on) and learns
    text = f"{', '.join(record['types'])} on {record['device']}, loss {losses[0]:.2f} to {losses[-1]:.2f}"
    yield judge(mode, good, text, f"{wanted}{'' if few_steps(bench, mode) else ', half the loss'}", **record)
    if mode != "compile":
        laid = "channels-last" if record["channels_last"] else "contiguous"
        yield judge(
            f"{mode}: layout of convolutions", record["channels_last"], laid, "channels-last, as the recipe has it"
        )
