"""`fab leave`: whom it refuses before it asks the node, and what a node may answer."""

import pytest

from deploy.core.errors import BadAnswer, UsageError
from deploy.host.facts import Container
from deploy.hosts import leave
from deploy.hosts.leave import Answer
from deploy.job.options import Options


def container(least=2, code=None):
    return Container("run", "b", 1, 3, "muster-run", "Up", code, 29500, least=least)


def test_a_node_of_a_run_that_trains_on_without_it_may_be_asked():
    leave.refuse("run", "b", container())


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (None, "b has no node of run"),
        (container(least=0), "without --min-nodes it needs all of its nodes"),
        (container(code=0), "b is not in run any more: it has left"),
        (container(code=137), "b is not in run any more: its node was killed"),
    ],
)
def test_what_has_no_node_to_leave_is_refused_by_name(node, why):
    with pytest.raises(UsageError, match=why):
        leave.refuse("run", "b", node)


def test_only_named_hosts_leave():
    """Those of the file, or of the record, would be all hosts of the run."""
    with pytest.raises(UsageError, match="no hosts"):
        leave.refuse_unnamed(Options(run="run"), "leave")


def test_the_answer_of_a_node_is_read_and_anything_else_refused():
    assert leave.read('{"why": "", "members": ["a", "c"]}') == Answer("", ("a", "c"))
    assert leave.read('{"why": "x", "members": [], "needed": true}') == Answer("x", (), True)
    for text in (
        "",
        "[]",
        '{"why": "", "members": [], "needed": 1}',
        '{"why": 3, "members": []}',
        '{"why": "", "members": ["../x"]}',
    ):
        with pytest.raises(BadAnswer):
            leave.read(text)
