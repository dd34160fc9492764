"""`muster leave` and `muster join`: which hosts they refuse, and what a host and its node may answer."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from deploy.core.errors import BadAnswer, UsageError
from deploy.core.names import RunId
from deploy.core.results import Results
from deploy.host.facts import Container
from deploy.hosts.act import members
from deploy.hosts.act.members import Answer, knows_epoch, refuse_answer, refuse_join
from deploy.job.inventory import Host
from deploy.job.options import Options
from deploy.report.console import Console

B = Host("b", "b", 2222, "me")


def container(least=2, code=None):
    return Container("run", "b", 1, 3, "muster-run", "Up", code, 29500, least=least)


def test_a_node_of_a_run_with_min_nodes_may_be_asked_to_leave():
    members.refuse_leave("run", B, container())


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (None, "b has no node of run"),
        (container(least=0), "without --min-nodes it needs all of its nodes"),
        (container(code=0), "b is not in run any more: it has left"),
        (container(code=137), "b is not in run any more: its node was killed"),
    ],
)
def test_a_host_without_a_node_that_can_leave_is_refused_by_name(node, why):
    with pytest.raises(UsageError, match=why):
        members.refuse_leave("run", B, node)


def test_only_named_hosts_leave():
    """Hosts taken from cluster.toml or from the record would be all hosts of the run."""
    with pytest.raises(UsageError, match="no hosts"):
        members.refuse_unnamed(Options(run="run"), "leave")


def test_a_nodes_answer_is_parsed_and_anything_else_is_refused():
    assert members.read('{"why": "", "members": ["a", "c"]}') == Answer("", ("a", "c"))
    assert members.read('{"why": "x", "members": [], "needed": true}') == Answer("x", (), True)
    for text in (
        "",
        "[]",
        '{"why": "", "members": [], "needed": 1}',
        '{"why": 3, "members": []}',
        '{"why": "", "members": ["../x"]}',
    ):
        with pytest.raises(BadAnswer):
            members.read(text)


def claim(state="runs"):
    about = {"token": "ab12", "run": "other", "user": "eve", "control": "eve@there"}
    about |= {"gpus": ["GPU-12345678"], "waits": False, "whole": False, "state": state}
    return f"claim 17 ab12 eve {json.dumps(about)}\n"


@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_host_whose_node_has_ended_may_join(code):
    assert refuse_join("run", B, container(code=code)).code == code


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (container(least=0, code=0), "the run was started without --min-nodes"),
        (container(), "b is in run already"),
    ],
)
def test_a_host_that_cannot_join_is_refused_by_name(node, why):
    with pytest.raises(UsageError, match=why):
        refuse_join("run", B, node)


def test_the_suggested_command_logs_in_as_this_one_did():
    """Once, it named the host alone: another user, on another port."""
    with pytest.raises(UsageError) as refused:
        refuse_join("run", B, container())
    assert refused.value.hint == "muster status --hosts me@b:2222"
    with pytest.raises(UsageError) as refused:
        members.refuse_leave("run", B, container(code=0))
    assert refused.value.hint.startswith("muster join --hosts me@b:2222 --run run brings it back")


def test_a_host_answers_that_it_has_started_the_node_or_why_not():
    refuse_answer("run", B, "started\n")
    with pytest.raises(UsageError, match=r"its GPUs are taken by run other \(eve\)"):
        refuse_answer("run", B, claim())
    with pytest.raises(UsageError, match="its part of the overlay network"):
        refuse_answer("run", B, "overlay\n")
    with pytest.raises(BadAnswer):
        refuse_answer("run", B, "")


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        ('{"number": 5, "place": -1, "nodes": 2, "store": "", "stayed": false, "lost": []}', True),
        ('{"number": 0, "place": -1}', False),
        ("", False),
        ("[]", False),
    ],
)
def test_a_node_has_been_reached_once_it_knows_an_epoch(told, heard):
    assert knows_epoch(told) == heard


@pytest.mark.parametrize("code", [0, 137])
def test_a_node_that_was_killed_while_leaving_counts_as_having_left(code, monkeypatch, capsys):
    """Once, the command waited a minute for it and then said that it had not ended."""
    session = SimpleNamespace(name="b", host=B)
    ends = iter([container(), container(code=code)])
    monkeypatch.setattr(members, "known_cluster", lambda options: SimpleNamespace(hosts=(B,)))
    monkeypatch.setattr(members, "open_all", lambda hosts: nullcontext(Results({"b": session})))
    monkeypatch.setattr(members.observe, "containers", lambda sessions: Results({}))
    monkeypatch.setattr(members.ended, "find_run", lambda *_: (RunId("run"), {"b": container()}))
    monkeypatch.setattr(members, "_ask_to_leave", lambda *_: Answer("", ("a", "c")))
    monkeypatch.setattr(members.audit, "note", lambda *_: None)
    monkeypatch.setattr(members, "_node_on", lambda *_: next(ends, None) or pytest.fail("it is waited for"))
    monkeypatch.setattr(members, "_LOOK_EVERY_S", 0.0)
    assert members.leave(Options(hosts="b", run="run"), Console()) == 0
    said = capsys.readouterr()
    assert said.out == "b has left run: a and c continue\n"
    assert said.err == ""
