"""One order to the program of inside/, and its answer line by line. No I/O of its own."""

from __future__ import annotations

import base64
import json
import mmap
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..core import docker_faults
from ..core.errors import BadAnswer, DeployError
from ..core.fields import json_object, record, text, whole
from ..core.printable import visible
from ..core.text import amount
from . import commands, store, uv
from .inside.tools import NO_INDEX, NO_UV
from .settings import Settings

Files = Mapping[str, bytes | mmap.mmap]
_MOST_WHEELS = 4 << 30  # bytes of wheels that one place may have built
_MOST_WORDS = 8000
_CHUNK = 1 << 20
_PIECE = record({"wheel": text(300, store.WHEEL), "bytes": text(1 << 20)})


class Unreached(DeployError):
    """A place that reaches no index; `uv`: it could not even get uv."""

    def __init__(self, place: str, words: str, uv: bool) -> None:
        super().__init__(f"{place}: it reaches no package index: {words}", "docs/packages.md#no-index")
        self.uv = uv


class ToolFailed(DeployError):
    """uv failed at a place; `words`: all that it says."""

    def __init__(self, place: str, what: str, words: str, hint: str) -> None:
        first, *others = [line.strip() for line in words.splitlines() if line.strip()] or ["no words"]
        cause = next((line for line in others if line.startswith("cause:")), "")
        shown = "; ".join(filter(None, (first.removeprefix("error: "), cause.removeprefix("cause: "))))
        super().__init__(f"{place}: {what}: {shown}", hint)
        self.words = words


class Exchange:
    """What goes in, and what comes out. `tell` gets each line of progress, without passwords."""

    def __init__(self, place: str, settings: Settings, tell: Callable[[str], None]) -> None:
        self._place, self._settings, self._tell = place, settings, tell
        self._over = threading.Event()
        self._answer: dict[str, Any] | None = None
        self._failed: tuple[int, str] | None = None
        self._wheels, self._size = dict[str, bytearray](), 0

    def input(self, order: Mapping[str, Any], files: Files) -> Iterator[bytes]:
        """The program's text, the order and its files. It ends with the answer: an earlier end would end the order."""
        settings = self._settings
        certificates = {"ca": settings.certificates} if settings.certificates else {}
        texts = {"uv.txt": uv.PINS.encode(), **certificates, **files}
        whole_order = {
            **order,
            "uv": uv.VERSION,
            "variables": dict(settings.variables),
            "paths": dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), "ca") if certificates else {},
            "files": [(name, len(data)) for name, data in texts.items()],
        }
        yield commands.program()
        yield json.dumps(whole_order).encode() + b"\n"
        for data in texts.values():
            for start in range(0, len(data), _CHUNK):
                yield data[start : start + _CHUNK]
        self._over.wait()

    def line(self, line: str) -> None:
        """Take a line of output. Raises DeployError for one that no program of ours writes."""
        if not line.startswith("{"):
            return
        row = json_object(line, "its packages")
        if "say" in row:
            self._tell(visible(self._settings.hidden(str(row["say"])[:300])))
        elif "wheel" in row:
            piece = _PIECE(row, "a wheel")
            self._size += len(piece["bytes"])
            if self._size > _MOST_WHEELS:
                raise DeployError(f"{self._place}: it built more than {amount(_MOST_WHEELS)} of wheels")
            self._wheels.setdefault(piece["wheel"], bytearray()).extend(_bytes(piece["bytes"]))
        elif "failed" in row:
            words = self._settings.hidden(str(row.get("words", ""))[:_MOST_WORDS])
            self._failed = (whole(0, 255)(row["failed"], "its code"), words)
            self._over.set()
        elif isinstance(row.get("done"), dict):
            self._answer = row["done"]
            self._over.set()

    def close(self) -> None:
        """End the input, whatever happens."""
        self._over.set()

    def finish(
        self, done: tuple[int, str], mode: str, path: str, hint: Callable[[str], str]
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The answer, and the wheels that came with it. `done`: the program's exit code, and other output.

        Raises Unreached, or ToolFailed with uv's own words.
        """
        code, other = done
        if self._failed:
            kind, words = self._failed
            if kind in (NO_UV, NO_INDEX):
                raise Unreached(self._place, words, kind == NO_UV)
            what = "resolve" if mode == "lock" else "install"
            raise ToolFailed(self._place, f"uv could not {what} the packages of {path}", words, hint(words))
        if code or self._answer is None:
            raise docker_faults.fault(other)
        return self._answer, {name: bytes(data) for name, data in self._wheels.items()}


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as fault:
        raise BadAnswer("a wheel", "base64", text) from fault
