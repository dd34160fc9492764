"""What a node believes about hosts that have joined, and what it remembers."""

import json

import pytest

from trainer.node.membership.newcomers import Newcomers

PLANNED = ("a", "b")


def known(tmp_path, own=None):
    return Newcomers(tmp_path / "joined", PLANNED, own or {})


def test_newcomers_are_passed_on_and_remembered_in_the_order_of_joining(tmp_path):
    node = known(tmp_path, {"e": ["10.0.0.5", 29600, 4]})
    assert node.hear({"d": ["10.0.0.4", 29601, 3]}) == ["d"]
    assert node.names == ("d", "e")
    back = known(tmp_path)
    assert back.names == ("d", "e")
    assert back.where("d") == ("10.0.0.4", 29601)
    assert back.addresses() == node.addresses()


def test_a_host_that_joins_again_is_asked_at_its_new_address_and_old_news_is_ignored(tmp_path):
    node = known(tmp_path)
    node.hear({"d": ["10.0.0.4", 29601, 3]})
    assert node.hear({"d": ["10.0.0.4", 29601, 3]}) == []
    assert node.hear({"d": ["10.0.0.9", 29601, 4]}) == ["d"]
    assert node.hear({"d": ["10.0.0.4", 29601, 3]}) == []
    assert node.where("d") == ("10.0.0.9", 29601)


@pytest.mark.parametrize(
    "said",
    [
        None,
        ["d"],
        {"a": ["10.0.0.4", 29601, 3]},  # a node of the plan: its address is the plan's
        {"../d": ["10.0.0.4", 29601, 3]},
        {"d": ["gpu-d", 29601, 3]},
        {"d": ["10.0.0.4", True, 3]},
        {"d": ["10.0.0.4", 0, 3]},
        {"d": ["10.0.0.4", 29601, -1]},
        {"d": ["10.0.0.4", 29601]},
    ],
)
def test_odd_news_of_newcomers_is_ignored(tmp_path, said):
    node = known(tmp_path)
    assert node.hear(said) == []
    assert node.names == ()


def test_no_more_newcomers_are_believed_than_a_run_may_have(tmp_path):
    node = known(tmp_path)
    for start in (0, 60, 120):
        node.hear({f"n{number}": ["10.0.0.4", 29601, number] for number in range(start, start + 60)})
    assert len(node.names) == 64


def test_a_broken_file_is_ignored(tmp_path):
    (tmp_path / "joined").write_text(json.dumps({"d": "nowhere"})[:-1])
    assert known(tmp_path).names == ()
