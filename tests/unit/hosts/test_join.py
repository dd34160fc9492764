"""`fab join`: who may join a run that goes on, and what a host and its node may answer."""

import json

import pytest

from deploy.core.errors import BadAnswer, UsageError
from deploy.hosts.join import has_heard, refuse, refuse_answer
from tests.unit.hosts.test_leave import container


def claim(state="runs"):
    about = {"token": "ab12", "run": "other", "user": "eve", "control": "eve@there"}
    about |= {"gpus": ["GPU-12345678"], "waits": False, "whole": False, "state": state}
    return f"claim 17 ab12 eve {json.dumps(about)}\n"


@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_host_whose_node_has_ended_may_join(code):
    assert refuse("run", "b", container(code=code)).code == code


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (container(least=0, code=0), "it runs without --min-nodes"),
        (container(), "b is in run already"),
    ],
)
def test_who_cannot_join_is_refused_by_name(node, why):
    with pytest.raises(UsageError, match=why):
        refuse("run", "b", node)


def test_a_host_says_that_it_has_started_the_node_or_why_not():
    refuse_answer("run", "b", "started\n")
    with pytest.raises(UsageError, match=r"its GPUs are taken by run other \(eve\)"):
        refuse_answer("run", "b", claim())
    with pytest.raises(UsageError, match="its part of the overlay network"):
        refuse_answer("run", "b", "overlay\n")
    with pytest.raises(BadAnswer):
        refuse_answer("run", "b", "")


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        ('{"number": 5, "place": -1, "nodes": 2, "store": "", "stayed": false, "lost": []}', True),
        ('{"number": 0, "place": -1}', False),
        ("", False),
        ("[]", False),
    ],
)
def test_a_node_has_heard_once_it_knows_an_epoch(told, heard):
    assert has_heard(told) == heard
