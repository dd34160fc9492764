"""Several commands that follow one run from one folder: `muster attach` in two terminals, or next to a board."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.core.facts import NodeState
from deploy.core.names import NodeName
from deploy.hosts.backend import HostsBackend, RunHandle
from deploy.hosts.look.attach import follow_until_done
from deploy.report.console import Console
from deploy.report.interrupts import Interrupts
from deploy.report.script_lines import RANK_0
from deploy.run.files import locks, record


class Hosts(HostsBackend):
    """Two hosts whose nodes are killed one after the other and start again; `meanwhile` is called at each look."""

    look_s = 0.0

    def __init__(self, run, meanwhile):
        super().__init__([], run, print)
        self._meanwhile, self._looks = meanwhile, 0

    def states(self, state):
        self._looks += 1
        self._meanwhile(self._looks)
        if self._looks == 6:
            (self.run.run_dir / "outcome").mkdir(exist_ok=True)
            for node in "ab":
                (self.run.run_dir / f"outcome/{node}-0.json").write_text(f'{{"verdict": "done", "node": "{node}"}}')
        ended = self._looks > 6
        killed = {2: "a", 4: "b"}.get(self._looks)
        return [
            NodeState(name, "exited" if ended or name == killed else "running", 137 if name == killed else 0 * ended)
            for name in state.names
        ]

    def remove(self):
        return []


@pytest.mark.parametrize(("leaves", "lines"), [(9, []), (3, ["b was killed by SIGKILL"])])
def test_one_follower_writes_the_story_and_another_takes_over_when_it_leaves(tmp_path: Path, leaves, lines) -> None:
    """Once, each line was twice in the story and on the page."""
    run = RunHandle(tmp_path, {"h1": NodeName("a"), "h2": NodeName("b")}, True, ("train.py",))
    other = locks.hold_run(tmp_path)
    assert other
    console = Console(as_json=True)
    with Interrupts(console) as interrupts:
        leave = SimpleNamespace(at=lambda look: other.release() if look == leaves else None)
        follow_until_done(Hosts(run, leave.at), console, interrupts, RANK_0)
    shown = [line.text for line in record.story_of(tmp_path) if line.grave]
    other.release()
    assert shown == lines
