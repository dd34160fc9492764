"""Sends one order to the program in inside/, and reads its answer line by line. Does no I/O itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...causes import docker_faults
from ...core.errors import DeployError
from ...core.fields import json_object, whole
from ...core.printable import visible
from ...core.text import amount
from . import commands, uv
from .inside.tools import NO_INDEX, NO_UV
from .settings import Settings
from .store import Content

Files = Mapping[str, Content]
_MOST_WORDS = 8000
_MOST_SAID = 64 << 20  # the most characters in the whole answer to one order
_CHUNK = 1 << 20


class Unreached(DeployError):
    """Raised if a place cannot reach any package index. `uv`: it could not even get uv."""

    def __init__(self, place: str, words: str, uv: bool) -> None:
        super().__init__(f"{place}: it reaches no package index: {words}", "muster docs offline-and-proxies")
        self.uv = uv


class ToolFailed(DeployError):
    """Raised if uv failed at a place. `words`: all of uv's output, if that is more than the message has."""

    def __init__(self, place: str, what: str, words: str, hint: str) -> None:
        first, *others = [line.strip() for line in words.splitlines() if line.strip()] or ["no words"]
        cause = next((line for line in others if line.startswith("cause:")), "")
        shown = "; ".join(filter(None, (first.removeprefix("error: "), cause.removeprefix("cause: "))))
        super().__init__(f"{place}: {what}: {shown}", hint)
        self.words = words if len(others) > bool(cause) else ""


class Exchange:
    """The input and the output of one order. `tell` gets each line of progress, without passwords."""

    def __init__(self, place: str, settings: Settings, tell: Callable[[str], None]) -> None:
        self._place, self._settings, self._tell = place, settings, tell
        self._over = threading.Event()
        self._answer: dict[str, Any] | None = None
        self._failed: tuple[int, str] | None = None
        self._size = 0

    def input(self, order: Mapping[str, Any], files: Files) -> Iterator[bytes]:
        """The program's text, the order and its files. It stays open until the answer: its end cancels the order."""
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
        """Take a line of output. Raises DeployError for too many, or a line that Muster's program cannot write."""
        self._size += len(line)
        if self._size > _MOST_SAID:
            raise DeployError(f"{self._place}: its packages' program says more than {amount(_MOST_SAID)}")
        if not line.startswith("{") or self._over.is_set():
            return
        row = json_object(line, f"{self._place}: its packages")
        if "say" in row:
            self._tell(visible(self._settings.hidden(str(row["say"])[:300])))
        elif "failed" in row:
            words = self._settings.hidden(str(row.get("words", ""))[:_MOST_WORDS])
            self._failed = (whole(255)(row["failed"], "its code"), words)
            self._over.set()
        elif isinstance(row.get("done"), dict):
            self._answer = row["done"]
            self._over.set()

    def close(self) -> None:
        """End the input, whatever happens."""
        self._over.set()

    def finish(self, done: tuple[int, str], what: str, hint: Callable[[str], str]) -> dict[str, Any]:
        """Return the answer. `done`: the program's exit code, and other output. `what`: its task, for a message.

        Raises Unreached, or ToolFailed with uv's own words.
        """
        code, other = done
        if self._failed:
            kind, words = self._failed
            if kind in (NO_UV, NO_INDEX):
                raise Unreached(self._place, words, kind == NO_UV)
            raise ToolFailed(self._place, f"uv could not {what}", words, hint(words))
        if code < 0 and not other.strip():
            raise DeployError(f"{self._place}: a signal ended the program that was to {what}", "try again; free -h")
        if code or self._answer is None:
            raise docker_faults.fault(other)
        return self._answer
