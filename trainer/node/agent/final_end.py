"""The exit code of a node that ended for good, kept in the run folder for a restarted container and for the witness.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from muster.errors import DONE
from muster.files import read, replace
from muster.reserve import write_surely

from ...verdict import Verdict, publish
from ..notes import folder_of


def code_of(folder: Path, name: str, start: str) -> int | None:
    """The exit code of this start of a node, if its end was final; else None."""
    with suppress(OSError, ValueError):
        own, _, code = read(_path(folder, name)).rpartition(" ")
        return int(code) if own == start else None
    return None


class FinalEnd:
    """The end of this start of a node. It is kept only if the host starts a node again when it ends badly."""

    def __init__(self, folder: Path | None, name: str, environment: Mapping[str, str]) -> None:
        self._folder, self._name, self._start = folder, name, environment.get("PET_RDZV_ID", "")
        self._kept_in = folder if environment.get("MUSTER_RESTARTED_BY_HOST") == "1" else None

    def code(self) -> int | None:
        """The exit code that an earlier agent of this start kept, if its end was final; else None."""
        return code_of(self._kept_in, self._name, self._start) if self._kept_in else None

    def is_final(self, code: int) -> bool:
        """Whether the host will not start this node again after this end."""
        return self._kept_in is None or code == DONE or self.code() is not None

    def publish_verdict(self, verdict: Verdict) -> int:
        """Publish the verdict of a node that ends for good without its ranks, and keep its code; returns the code."""
        if self._folder:
            publish(verdict, self._folder, f"{self._name}-agent")
        self.keep_code(verdict.code)
        return verdict.code

    def keep_code(self, code: int) -> None:
        """Keep this code as final."""
        if self._kept_in:
            keep = partial(replace, _path(self._kept_in, self._name), f"{self._start} {code}")
            write_surely(keep, folder_of(self._kept_in, self._name))


def _path(folder: Path, name: str) -> Path:
    return folder / "nodes" / f".{name}.last"
