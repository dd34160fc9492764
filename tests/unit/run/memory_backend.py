"""The smallest backend: nodes are names in a list. Unit tests start, follow and end whole runs on it in milliseconds.

It also shows what a fourth backend needs: one class, and one line in the table of backends.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.core.errors import DeployError, EngineLost
from deploy.core.facts import NodeState
from deploy.run.backend import Backend
from deploy.run.environment import RunSpec
from deploy.run.progress import State


class MemoryBackend(Backend):
    """Records the verbs called. `ctrl_c`: the verb during which Ctrl-C is pressed; `fails`: the verb that fails.

    `vanishes`: the backend is lost once its nodes run. The node named in `broken` cannot be started. Running nodes end
    with `verdict`; "" means that they run until they are asked to stop.
    """

    ctrl_c, fails, broken, verdict, vanishes = "", "", "", "done", False

    def __init__(self, run: RunSpec) -> None:
        self.run, self._code = run, dict[str, int]()
        self.verbs, self.running = list[str](), list[str]()

    @contextmanager
    def lock(self) -> Iterator[None]:
        self._do("lock")
        try:
            yield
        finally:
            self.verbs.append("unlock")

    def check(self) -> None:
        self._do("check")

    def prepare(self) -> None:
        self._do("prepare")

    def start(self) -> None:
        for name in self.run.names:
            if name == self.broken:
                raise DeployError(f"{name}: cannot be started")
            self.running.append(name)
        self._do("start")

    def undo(self) -> None:
        self._do("undo")
        self.running.clear()

    def states(self, state: State) -> list[NodeState]:
        if self.vanishes:
            raise EngineLost("the memory is gone")
        if self.ctrl_c == "states" and "states" not in self.verbs:
            self._do("states")
        if self.verdict and self.running:
            self._end(self.verdict, 0 if self.verdict == "done" else 1)
        return [
            NodeState(name, "running" if name in self.running else "exited", self._code.get(name))
            for name in self.run.names
        ]

    def stop(self) -> None:
        self.verbs.append("stop")
        self._end("stopped", 75)

    def kill(self) -> None:
        self.verbs.append("kill")
        self.running.clear()

    def collect_logs(self) -> None:
        self.verbs.append("collect_logs")

    def clean(self) -> None:
        self.verbs.append("clean")
        self.running.clear()

    def _do(self, verb: str) -> None:
        self.verbs.append(verb)
        if verb == self.ctrl_c:
            os.kill(os.getpid(), signal.SIGINT)
        if verb == self.fails:
            raise DeployError(f"{verb} failed")

    def _end(self, verdict: str, code: int) -> None:
        """End every node; its rank writes its verdict into the run folder, as a trainer does."""
        folder = self.run.run_dir / "outcome"
        folder.mkdir(exist_ok=True)
        for place, name in enumerate(self.run.names):
            verdict_ = {
                "verdict": verdict,
                "code": code,
                "rank": place,
                "node": name,
                "step": 7,
                "message": "",
                "hint": "",
            }
            (folder / f"{name}-0.json").write_text(json.dumps({**verdict_, "since": 0, "t": time.time()}))
            self._code[name] = code
        self.running.clear()
