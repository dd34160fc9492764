"""Models split over two ranks (FSDP2, tensor and pipeline parallel): do they train as on one process?

Also after a kill. This runs scripts with `muster.Training`, as users write them, the pipeline example, and the
trainer's own meshes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from muster.files import read_lines

from ..bench import Bench
from ..finding import Finding, judge, untried
from ..network import Place
from ..nodes import HOME, Late, Run

TITLE, LIMIT_S = "models cut over ranks", 150
STEPS, KEPT_EVERY, KILL_AFTER, RESUMED_FROM = 20, 5, 12, 10
APART, MOST_RATIO = 1e-5, 0.65
# WIDTH and LAYERS of the script's model. The large model has 85 M weights: 1.4 GB with gradients and moments.
SMALL_ON_GPU, SMALL_ON_CPU, LARGE = ("128", "2"), ("32", "2"), ("768", "12")
# The results are compared in fp32. Some of NVIDIA's images turn on TF32.
_EXACT = {"NVIDIA_TF32_OVERRIDE": "0"}
# A pause in each step, so that the kill hits the run in the middle, after a complete checkpoint.
_PAUSE_S = "0.15"
_TRAINER_STEPS, _LARGE_STEPS = 10, 3
_START_S, _END_S = 60.0, 80.0
_PIPELINE = str(HOME / "examples" / "parallel" / "pipeline.py")
_PRINTED = re.compile(r"step (\d+) +loss ([\d.]+)")

Losses = Mapping[int, float]


def run(bench: Bench) -> Iterator[Finding]:
    """Two rounds of runs side by side: the second round needs a checkpoint from the first."""
    with ExitStack() as stack:
        one, fsdp = _script(bench, stack, "one", "one"), _script(bench, stack, "fsdp", "fsdp")
        tensor = _script(bench, stack, "tensor", "tp")
        killed = _script(bench, stack, "killed", "fsdp", pause=_PAUSE_S, restarts=3)
        whole, pipeline = (_pipeline(bench, stack, count) for count in (1, 2))
        yield from _kill(bench, killed)
        one.finish(_END_S)
        yield from _same("FSDP2 on 2 ranks", fsdp, script_losses(one))
        yield from _same("tensor parallel on 2 ranks", tensor, script_losses(one))
        yield from _same("FSDP2, a rank killed", killed, script_losses(one))
        whole.finish(_END_S)
        yield from _same("pipeline of 2 ranks", pipeline, pipeline_losses(whole))
    with ExitStack() as stack:
        large = [_script(bench, stack, f"large-{plan}", plan, LARGE) for plan in ("fsdp", "ddp")] if bench.gpus else []
        trained = {mesh: _trainer(bench, stack, mesh) for mesh in ("", "dp_shard=2", "tp=2")} if bench.gpus else {}
        yield from _elsewhere(bench, stack, fsdp, script_losses(one))
        yield _memory(*large) if large else untried("FSDP2: peak memory beside DDP", "no GPU")
        yield from _trained(trained)


def _elsewhere(bench: Bench, stack: ExitStack, saved: Run, losses: Losses) -> Iterator[Finding]:
    """A checkpoint from the middle of a run with FSDP2 continues in one process, and with tensor parallelism."""
    step = f"training/checkpoints/step-{RESUMED_FROM:08}"
    if not (saved.folder / step).exists():
        yield judge("FSDP2's checkpoint continues", False, f"there is no {step}", "a checkpoint")
        return
    runs = {}
    for words, plan in (("in one process", "one"), ("with tensor parallel", "tp")):
        shutil.copytree(saved.folder / step, bench.folder / f"resumed-{plan}" / step)
        runs[words] = _script(bench, stack, f"resumed-{plan}", plan)
    rest = {number: loss for number, loss in losses.items() if number > RESUMED_FROM}
    for words, run in runs.items():
        yield from _same(f"FSDP2's checkpoint continues {words}", run, rest)


def _trained(runs: dict[str, Run]) -> Iterator[Finding]:
    """Compare the trainer on meshes with the trainer in one process."""
    if not runs:
        yield untried("the trainer with --mesh", "no GPU; on CPUs `make test` tries it")
        return
    alone = runs.pop("")
    alone.finish(_END_S)
    for mesh, run in runs.items():
        yield from _same(f"the trainer with --mesh {mesh}", run, trainer_losses(alone))


def _script(
    bench: Bench,
    stack: ExitStack,
    name: str,
    plan: str,
    size: tuple[str, str] | None = None,
    pause: str = "0",
    **more: Any,
) -> Run:
    """A run of gpu_check's script.

    The large model trains a few steps without a checkpoint, which would take seconds.
    """
    small = SMALL_ON_GPU if bench.gpus else SMALL_ON_CPU
    steps = (str(_LARGE_STEPS), "0") if size else (str(STEPS), str(KEPT_EVERY))
    arguments = bench.script("cut", bench.backend, plan, *steps, *(size or small), pause)
    return stack.enter_context(
        bench.hosts(name, arguments, [Place()] * (1 if plan == "one" else 2), variables=_EXACT, **more)
    )


def _pipeline(bench: Bench, stack: ExitStack, count: int) -> Run:
    """The pipeline example, which is plain torch: `muster.Training` does not save such a model."""
    arguments = ["--script", _PIPELINE, "--steps", str(STEPS)]
    return stack.enter_context(bench.hosts(f"pipeline-{count}", arguments, [Place()] * count, variables=_EXACT))


def _trainer(bench: Bench, stack: ExitStack, mesh: str) -> Run:
    """The trainer with recipe `text`, which has a plan for tensor parallelism."""
    options = ["--precision", "fp32", "--eval-every", "0", "--log-every", "1", "--checkpoint-every", "0"]
    arguments = ["--recipe", "text", "--steps", str(_TRAINER_STEPS), *options, *(["--mesh", mesh] if mesh else [])]
    name = f"trainer-{mesh.partition('=')[0] or 'one'}"
    return stack.enter_context(bench.hosts(name, arguments, [Place()] * (2 if mesh else 1), variables=_EXACT))


def _kill(bench: Bench, run: Run) -> Iterator[Finding]:
    """Kill rank 1 with SIGKILL in the middle, and wait until training continues."""
    try:
        run.wait(lambda: len(script_losses(run)) >= KILL_AFTER, f"step {KILL_AFTER}", _START_S)
        victim = int(starts_of(run, 1)[-1]["pid"])
        bench.say(f"rank 1 (process {victim}) of two with FSDP2 is killed")
        moment = time.time()
        os.kill(victim, signal.SIGKILL)
        back = run.wait(lambda: _again(run), "training to go on", _START_S)
    except Late as fault:
        yield fault.finding("FSDP2, a rank killed: training goes on")
        return
    seconds, step = back["t"] - moment, starts_of(run, 0)[1]["step"]
    yield judge(
        "FSDP2, a rank killed: training goes on", step >= KEPT_EVERY, f"{seconds:.1f} s later, from step {step}",
        f"from step >= {KEPT_EVERY}", seconds=round(seconds, 2), step=step,
    )  # fmt: skip


def _again(run: Run) -> dict[str, Any] | None:
    """The first loss after rank 0 has started a second time."""
    starts = starts_of(run, 0)
    since = starts[1]["t"] if len(starts) > 1 else float("inf")
    return next((line for line in read_lines(run.folder / "losses.jsonl") if line["t"] > since), None)


def _same(what: str, run: Run, expected: Losses) -> Iterator[Finding]:
    """Whether a run succeeds and has the same losses as one process."""
    try:
        run.finish(_END_S)
    except Late as fault:
        yield fault.finding(what)
        return
    losses = script_losses(run) or trainer_losses(run) or pipeline_losses(run)
    far = largest_difference(losses, expected)
    ends = f"loss {losses[min(losses)]:.4f} to {losses[max(losses)]:.4f}" if losses else "no loss"
    text = f"{len(losses)} of {len(expected)} steps, {ends}, at most {far:.1e} apart"
    yield judge(what, far <= APART, text, f"<= {APART:.0e} from one process", apart=far)


def _memory(fsdp: Run, ddp: Run) -> Finding:
    """Compare the larger rank's peak memory, as torch counts it, of the same model split and whole."""
    what = "FSDP2: peak memory beside DDP"
    try:
        for run in (fsdp, ddp):
            run.finish(_END_S)
    except Late as fault:
        return fault.finding(what)
    mine, other = (max(rank["peak_mb"] for rank in run.records_of_ranks()) for run in (fsdp, ddp))
    measured = f"{mine:.0f} MB a rank, DDP {other:.0f} MB: {mine / other:.2f}x"
    return judge(what, mine <= MOST_RATIO * other, measured, f"<= {MOST_RATIO}x", fsdp_mb=mine, ddp_mb=other)


def largest_difference(losses: Losses, expected: Losses) -> float:
    """The largest relative difference of a loss; infinite if a step is missing, or there is none."""
    if not expected or losses.keys() != expected.keys():
        return float("inf")
    return max(abs(losses[step] - loss) / abs(loss) for step, loss in expected.items())


def starts_of(run: Run, rank: int) -> list[dict[str, Any]]:
    """Each start of a rank of gpu_check's script, oldest first."""
    return read_lines(run.folder / f"begun-{rank}.jsonl")


def script_losses(run: Run) -> Losses:
    """The loss of each step of gpu_check's script; for a repeated step, the last one."""
    return {line["step"]: line["loss"] for line in read_lines(run.folder / "losses.jsonl")}


def trainer_losses(run: Run) -> Losses:
    """The loss of each step of the trainer."""
    return {line["step"]: line["loss"] for line in run.metrics()}


def pipeline_losses(run: Run) -> Losses:
    """The losses that the pipeline prints."""
    return {int(step): float(loss) for step, loss in _PRINTED.findall(run.logs())}
