"""The faults of run_faults.py that need no hosts, in three nodes as processes of this machine.

    python -m benchmarks.run_faults_here [NAME ...]

Followed as `make up` follows a run: the first word on the fault counts, or the end's.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.run_faults import ARGUMENTS, FAULTS, TELLS, Fault, judgement, table
from benchmarks.venv import HOME
from deploy.core.facts import NodeState
from deploy.local import processes
from deploy.run import follow
from deploy.run.backend import Backend
from deploy.run.environment import RunSpec, local_spec
from deploy.run.progress import Event, State
from lab.ports import free_port

NAMES = {"master": "rack-1", "worker-1": "rack-2", "worker-2": "rack-3"}


class _Nodes(Backend):
    """Local nodes that stay ended once they have ended."""

    def __init__(self, spec: RunSpec, command: Sequence[str]) -> None:
        self._spec, self._nodes = spec, processes.LocalNodes(spec.run_dir, list(command), HOME)

    def start(self) -> None:
        for node in self._spec.nodes:
            self._nodes.start(node, self._spec.run_dir / "logs" / f"{node.name}.log")

    def states(self, state: State) -> list[NodeState]:
        return self._nodes.states(lambda _: False)

    def stop(self) -> None:
        self._nodes.signal_all(signal.SIGTERM)

    def kill(self) -> None:
        self._nodes.end()

    def clean(self) -> None:
        self.kill()


def trial(fault: Fault, folder: Path) -> tuple[str, float, str]:
    """Make the fault; returns the judgement, after how many seconds of the run it was said, and the words."""
    run_dir, script = folder / "run", folder / fault.file
    (run_dir / "logs").mkdir(parents=True)
    script.write_text(fault.source)
    words = ["--script", str(script)] if fault.script else ARGUMENTS.replace("mine.py", str(script)).split()
    spec = local_spec(run_dir, 1, 2, words, free_port(), 2, "Linux")
    for node in spec.nodes:
        more = {"PET_MAX_RESTARTS": "0"} if fault.script else {}
        node.environment.update({**more, "PYTHONPATH": str(HOME)})
    state, began = State(spec.names, script=bool(fault.script)), time.time()
    backend = _Nodes(spec, [sys.executable, "-m", "trainer.node.agent", *words])
    backend.start()
    messages: list[str] = []

    def tell(_: list[Event]) -> None:
        messages[:] = [line.text for line in state.story if TELLS.search(line.text)]
        if messages or time.time() > began + fault.limit_s + 60:
            raise TimeoutError

    try:
        result = follow.follow(backend, follow.Follower(run_dir), state, tell, lambda: 0)
        messages = messages or [
            f"{result.verdict}: {result.node} (rank {result.rank}): {result.message.splitlines()[0]}"
        ]
    except TimeoutError:
        pass
    finally:
        backend.kill()
    took, text = time.time() - began, messages[0] if messages else ""
    for node, host in NAMES.items():
        text = text.replace(node, host)
    return judgement(fault.right.removeprefix("error: "), text), took, text


def main(arguments: Sequence[str]) -> int:
    """`[NAME ...]`: those faults, or all that need no hosts."""
    return table(arguments or [name for name, fault in FAULTS.items() if not (fault.outside or fault.job)], trial)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
