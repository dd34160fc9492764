"""What a run without a terminal prints, mainly before its first step."""

from __future__ import annotations

import time

import pytest

from deploy.report import plain_view
from deploy.run.progress import State
from deploy.run.state.story import Happening


def test_the_nodes_progress_is_printed_regularly_until_their_ranks_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = [100.0], list[str]()
    monkeypatch.setattr(plain_view.time, "monotonic", lambda: clock[0])
    state = State(("gpu-a", "gpu-b"), script=True)
    view = plain_view.PlainView(lambda words, style: said.append(words), state, "train.py", "2 hosts")

    def later(seconds: float) -> list[str]:
        clock[0] += seconds
        before = len(said)
        view.tell()
        return said[before:]

    assert later(9.0) == []
    state.apply({"kind": "node_up", "t": 1.0, "node": "gpu-b"})
    assert later(1.0) == ["gpu-a starting; gpu-b up, waiting for the others   10 s"]
    assert later(29.0) == []
    state.apply({"kind": "node_up", "t": 2.0, "node": "gpu-a"})
    assert later(1.0) == ["gpu-a and gpu-b up, loading torch   40 s"]
    state.apply({"kind": "began", "t": 3.0, "rank": 0, "node": "gpu-a"})
    assert later(60.0) == [], "the script prints now"


def test_old_story_lines_are_printed_with_their_clock_time_and_new_ones_without() -> None:
    said, now = list[str](), time.time()
    state = State(("gpu-a",), script=True)
    state.story.recall([Happening(now - 400.0, "gpu-a is lost"), Happening(now - 90_000.0, "a day before")])
    view = plain_view.PlainView(lambda words, style: said.append(words), state, "train.py", "1 host")
    state.story.tell(Happening(now + 1.0, "gpu-a is back"))
    view.tell()
    assert said[1] == time.strftime("%H:%M:%S  gpu-a is lost", time.localtime(now - 400.0)) or "-" in said[1]
    assert said[2] == time.strftime("%Y-%m-%d %H:%M:%S  a day before", time.localtime(now - 90_000.0))
    assert said[3] == "gpu-a is back"
