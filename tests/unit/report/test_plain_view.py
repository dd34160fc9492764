"""A run without a terminal: what is said before its first step."""

from __future__ import annotations

import pytest

from deploy.report import plain_view
from deploy.run.progress import State


def test_where_the_nodes_are_is_told_now_and_then_until_their_ranks_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = [100.0], list[str]()
    monkeypatch.setattr(plain_view.time, "monotonic", lambda: clock[0])
    state = State(("gpu-a", "gpu-b"), script=True)
    view = plain_view.PlainView(lambda words, style: said.append(words), state, "train.py", "2 hosts")

    def later(seconds: float) -> list[str]:
        clock[0] += seconds
        before = len(said)
        view.tell([])
        return said[before:]

    assert later(9.0) == []
    state.apply({"kind": "node_up", "t": 1.0, "node": "gpu-b"})
    assert later(1.0) == ["gpu-a starting; gpu-b up, waiting for the others   10 s"]
    assert later(29.0) == []
    state.apply({"kind": "node_up", "t": 2.0, "node": "gpu-a"})
    assert later(1.0) == ["gpu-a, gpu-b up, loading torch   40 s"]
    state.apply({"kind": "began", "t": 3.0, "rank": 0, "node": "gpu-a"})
    assert later(60.0) == [], "the script prints now"
