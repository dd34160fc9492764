"""A long step reports its progress if no terminal shows it; a short step prints nothing."""

import threading

from deploy.report import plain_view
from deploy.report.plain_view import Transfers


def test_a_long_step_reports_its_newest_phase_repeatedly(monkeypatch):
    for limit in ("FIRST_S", "THEN_S"):
        monkeypatch.setattr(plain_view, limit, 0.01)
    said, enough = [], threading.Event()
    phase = {"now": "reading"}

    def say(words):
        said.append(words)
        phase["now"] = "installing"
        if len(said) == 2:
            enough.set()

    with plain_view.ticking(lambda: f"packages   {phase['now']}", say):
        assert enough.wait(20)
    assert said[0].startswith("packages   reading   ")
    assert said[1].startswith("packages   installing   ")


def test_a_short_step_prints_nothing():
    said = []
    with plain_view.ticking(lambda: "packages   installing", said.append):
        pass
    assert said == []


def test_the_one_line_view_of_a_transfer_has_each_host():
    transfers = Transfers(["a", "b"])
    transfers.note_progress("a", 30 << 20, 60 << 20)
    line = transfers.line()
    assert line.startswith("a ")
    assert "b waiting" in line
