"""The folder of a push: this machine looks at it in a thread of its own, while hosts are called and asked."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.ahead import Ahead
from . import code_layer
from .code_layer import Look
from .credentials import NO_CHOICE, Choice
from .folder_memory import FolderMemory
from .layer_cache import default_folder


class FolderLook:
    """`choice`: which files to send. `cache`: the folder that keeps what is remembered from one push to the next."""

    def __init__(self, folder: Path, choice: Choice = NO_CHOICE, cache: Path | None = None) -> None:
        self.folder, self.choice = folder, choice
        self.memory = FolderMemory(cache or default_folder().parent, folder)
        self._look = Ahead(self._now)

    def result(self) -> Look:
        """What there is. Raises UsageError for a bad folder, and DeployError as code_layer.pack does."""
        return self._look.result()

    def _now(self) -> Look:
        self.memory.load(self.choice)
        with _uncollected():
            return code_layer.look(self.folder, self.choice)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: it would go through all entries made so far again and again, and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
