"""Commands as argument lists: built here, run by the doors, quoted nowhere."""

from __future__ import annotations

from collections.abc import Sequence


def agent(python: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """One node: the trainer's agent, which starts torchrun."""
    return (python, "-m", "trainer.agent", *arguments)


def build_image(script: str) -> tuple[str, ...]:
    """The image of the local Docker ground."""
    return (script,)
