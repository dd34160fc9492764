"""A deploy's claim on a machine's GPUs keeps other deploys, of any user, off them until its container has them.

A small script on the host (scripts/claim.sh) keeps the claim while our connection lives. It locks the machine while
this process looks and chooses, and looks again once the claim is written, so that no GPU is given twice
(docs/decisions/0139).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import DeployError
from ..core.printable import one_line
from ..door.session import Session
from ..door.stream import LineStream
from . import audit, gpu_choice, gpus
from .commands import GPU_COLUMNS, GPU_PATIENCE_S, script
from .gpu_choice import Choice
from .gpus import Gpus
from .lock import STALE_AFTER_S

_ANSWER_S, _MOST_LINES = 60.0, 100_000
_NAME = re.compile(r"noted (claim-[0-9]{1,20}-[0-9a-f]{1,64})")


class Claim:
    """Our conversation with one machine. `name`: the claim's name there. `choice`: our GPUs, or why we have none."""

    def __init__(self, session: Session, token: str, run: str) -> None:
        user, control = audit.user_and_machine()
        self._about: dict[str, Any] = {"token": token, "run": run, "user": user, "control": control}
        words = (token, f"{STALE_AFTER_S:g}", str(GPU_PATIENCE_S), GPU_COLUMNS)
        self.host, self.name, self.choice, self.lost = session.name, "", Choice(taken="nobody has looked"), False
        self._stream = session.stream(script("claim", *words))

    def attempt(self, decide: Callable[[Gpus], Choice], alone: bool = False) -> Choice:
        """Lock the machine, look, decide, and claim what was chosen, unless another deploy claims it at that moment.

        Raises DeployError if the host cannot do this, and whatever `decide` raises.
        """
        self._say(b"look\n")
        try:
            choice = decide(gpus.parse(self._until("choose")[:-1]))
        except BaseException:
            self.close()
            raise
        if choice.taken:
            self._say(b"\n")
        else:
            own = {"gpus": [gpu.uuid for gpu in choice.gpus], "waits": False, "whole": choice.whole}
            self._say(json.dumps({**self._about, **own}).encode() + b"\n")
            *others, noted = self._until("noted ")
            if not (match := _NAME.fullmatch(noted)):
                raise DeployError(f"{self.host}: the claim on its GPUs was not recorded: {one_line(noted[:200])}")
            self.name, claims = match[1], gpus.parse(others).claims
            choice = gpu_choice.yield_to_others(choice, claims, str(self._about["token"]), alone)
        self.choice = choice
        return choice

    def beat(self) -> None:
        """Tell the script that this process is alive. Sets `lost` if the script has ended."""
        try:
            self._stream.write(b"\n")
        except DeployError:
            self.lost = True

    def close(self) -> None:
        """Give the claim back. A second call does nothing."""
        self._stream.close()

    @contextmanager
    def _talking(self) -> Iterator[LineStream]:
        try:
            yield self._stream
        except DeployError as fault:
            why = f"{self.host}: the claim on its GPUs was lost: {fault.message}"
            raise DeployError(why, "try again") from fault

    def _say(self, data: bytes) -> None:
        with self._talking() as stream:
            stream.write(data)

    def _until(self, last: str) -> list[str]:
        lines: list[str] = []
        while not lines or not lines[-1].startswith(last):
            with self._talking() as stream:
                lines.append(stream.read_line(_ANSWER_S).decode(errors="replace"))
            if lines[-1].startswith("error "):
                raise DeployError(f"{self.host}: {one_line(lines[-1][6:500])}")
            if len(lines) > _MOST_LINES:
                raise DeployError(f"{self.host}: its answer about its GPUs never ends")
        return lines
