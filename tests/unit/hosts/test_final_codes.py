"""A node that was killed and came back in the middle of a run has not failed at its end."""

from deploy.core.facts import NodeState
from deploy.core.names import NodeName
from deploy.hosts.backend import FinalCodes

B = NodeName("b")


def test_a_node_that_came_back_before_the_end_has_the_code_of_its_last_start():
    codes, back = FinalCodes(), NodeState(B, "running", 137, 1)
    codes.before_the_end(back)
    assert codes.at_the_end(back) == back, "it still runs when another node's rank is done"
    ended = NodeState(B, "exited", 0, 1)
    assert codes.at_the_end(ended) == ended


def test_a_node_that_its_engine_starts_again_after_the_end_stays_ended():
    codes = FinalCodes()
    codes.before_the_end(NodeState(B, "running", None, 0))
    for seen in (NodeState(B, "waiting", 1, 0), NodeState(B, "running", 1, 1), NodeState(B, "exited", 0, 1)):
        assert (codes.at_the_end(seen).state, codes.at_the_end(seen).code) == ("exited", 1)


def test_a_restart_seen_together_with_the_verdict_belongs_to_the_end():
    codes = FinalCodes()
    codes.before_the_end(NodeState(B, "running", None, 0))
    assert codes.at_the_end(NodeState(B, "running", 1, 1)).state == "exited"


def test_a_follower_that_comes_when_the_run_is_over_takes_the_first_code_it_sees():
    assert FinalCodes().at_the_end(NodeState(B, "running", 1, 3)).code == 1
