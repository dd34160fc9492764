"""Compare the final weights of two runs of the trainer. Imports torch, but uses no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .finding import Finding, judge
from .nodes import Run


def newest(folder: Path) -> tuple[int, dict[str, Any]]:
    """The step and state of a run folder's newest usable checkpoint. Raises ValueError if there is none."""
    from muster.checkpoint import store

    checkpoint, _ = store.newest_usable(folder / "checkpoints")
    if checkpoint is None:
        raise ValueError(f"{folder.name}: no usable checkpoint")
    state, _ = store.load(checkpoint.path)
    return int(state["position"]["step"]), state


def differences(first: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of the tensors, anywhere in the two states, that differ in any bit."""
    mine, theirs = dict(tensors(first)), dict(tensors(other))
    return sorted(
        {
            *mine.keys() ^ theirs.keys(),
            *(name for name in mine.keys() & theirs.keys() if not same_bits(mine[name], theirs[name])),
        }
    )


def same_bits(first: Any, other: Any) -> bool:
    """Whether two tensors have the same type, shape and bits."""
    import torch

    alike = first.dtype == other.dtype and first.shape == other.shape
    return alike and torch.equal(*(each.ravel().view(torch.uint8) for each in (first, other)))


def tensors(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """The tensors in nested dictionaries and lists, each with its path."""
    import torch

    if isinstance(value, torch.Tensor):
        return [(name, value if value.dim() else value.reshape(1))]
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return [pair for key, part in pairs for pair in tensors(part, f"{name}.{key}" if name else str(key))]


def compare_runs(what: str, first: Run, other: Run, parts: tuple[str, ...]) -> Finding:
    """Whether two runs ended at the same step with the same bits in these parts of their state."""
    (step, mine), (last, theirs) = newest(first.folder), newest(other.folder)
    apart = differences({part: mine[part] for part in parts}, {part: theirs[part] for part in parts})
    measured = f"step {step} and {last}; " + (f"differ: {', '.join(apart[:3])}" if apart else "bit-identical")
    return judge(what, step == last and not apart, measured, "bit-identical")
