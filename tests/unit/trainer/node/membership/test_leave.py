"""`muster leave` on a node is refused, agreed on or given up, and each request gets one answer."""

import json

import pytest

from muster.reserve import note
from trainer.node.membership import leave
from trainer.node.membership.leave import Leaving
from trainer.node.membership.members import Epoch
from trainer.node.notes import Journal

ALL, REST = Epoch(4, ("a", "b", "c")), Epoch(5, ("a", "c"))


@pytest.fixture
def asked(tmp_path):
    """A node b that was asked to leave."""
    note(tmp_path, leave=True)
    return Leaving(tmp_path, "b")


def answer(folder):
    return Journal(folder).newest("leaves") or None


def may():
    return ""


def test_nobody_leaves_unasked(tmp_path):
    leaving = Leaving(tmp_path, "b")
    leaving.look(may, ALL, 1.0)
    assert (leaving.is_leaving, leaving.has_left, answer(tmp_path)) == (False, False, None)


def test_a_node_has_left_once_the_others_train_without_it(asked, tmp_path):
    asked.look(may, ALL, 1.0)
    asked.look(may, ALL, 3.0)
    assert (asked.is_leaving, asked.has_left, answer(tmp_path)) == (True, False, None)
    asked.look(may, REST, 3.1)
    assert asked.has_left
    assert answer(tmp_path) == {"why": "", "members": ["a", "c"]}


def test_a_node_that_trains_nothing_leaves_once_the_others_have_heard_of_it(asked, tmp_path):
    asked.look(may, REST, 1.0)
    asked.look(may, REST, 1.1)
    assert not asked.has_left
    asked.look(may, REST, 2.0)
    assert asked.has_left


def test_a_leave_that_would_leave_too_few_nodes_is_refused(asked, tmp_path):
    asked.look(lambda: "too few", ALL, 1.0)
    assert (asked.is_leaving, answer(tmp_path)) == (
        False,
        {"why": "too few", "members": ["a", "b", "c"], "needed": True},
    )


def test_a_node_stays_if_the_others_do_not_agree_and_may_be_asked_again(asked, tmp_path):
    asked.look(may, ALL, 1.0)
    asked.look(may, ALL, 17.0)
    assert not asked.is_leaving
    assert "did not agree" in answer(tmp_path)["why"]
    assert "needed" not in answer(tmp_path)
    asked.look(may, ALL, 17.5)
    assert not asked.is_leaving, "its own answer is no request"
    note(tmp_path, leave=True)
    asked.look(may, ALL, 18.0)
    assert asked.is_leaving


def test_on_a_host_without_a_node_the_request_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("MUSTER_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("MUSTER_NODE", "b")
    with pytest.raises(SystemExit, match="error: no node of a run is here"):
        leave.main()


@pytest.fixture
def here(monkeypatch, tmp_path):
    """The private folder of the node on this program's host."""
    monkeypatch.setenv("MUSTER_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("MUSTER_NODE", "b")
    folder = tmp_path / "nodes/.b"
    folder.mkdir(parents=True)
    return folder


def test_an_answer_to_an_earlier_request_is_not_taken_for_this_ones(here, monkeypatch, capsys):
    note(here, leaves={"why": "too few"})
    leaving = Leaving(here, "b")
    monkeypatch.setattr(leave.time, "sleep", lambda _: leaving.look(lambda: "now it is the arbiter", ALL, 1.0))
    assert leave.main() == 0
    assert json.loads(capsys.readouterr().out)["why"] == "now it is the arbiter"


def test_a_request_that_no_agent_answers_is_taken_back(here, monkeypatch, capsys):
    monkeypatch.setattr(leave, "_PATIENCE_S", 0.0)
    assert leave.main() == 1
    assert "did not answer" in capsys.readouterr().err
    leaving = Leaving(here, "b")
    leaving.look(may, ALL, 1.0)
    assert not leaving.is_leaving


def test_a_node_that_has_left_answers_no_further_request(asked, tmp_path):
    for epoch, now in ((ALL, 1.0), (REST, 3.0)):
        asked.look(may, epoch, now)
    note(tmp_path, leave=True)
    asked.look(lambda: "too few", REST, 30.0)
    assert asked.has_left
    assert answer(tmp_path)["why"] == ""
